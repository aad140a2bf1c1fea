"""Windows that are silent about some directions: level of the test of constancy, splits, coefficients, false
alarms.

A stable direction is constant in the last of eight windows, a moving one in the fourth.

Run: python benchmarks/silent.py [logs] (1000 unless given; false alarms on a fifth of them)
"""

from __future__ import annotations

import sys

import numpy as np

import invariant_bandits as ib
from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import window_paths
from invariant_bandits.decomposition.split import constancy_test

WINDOWS = 8
P = 6
STABLE = 4
SILENT = ((7, 2), (3, 5))
ONLINE, K = 1000, 5


def basis_of(rng: np.random.Generator) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((P, P)))
    return np.asarray(q * np.sign(np.diagonal(r)))


def logged(
    rng: np.random.Generator,
    rounds: int,
    silent: tuple[tuple[int, int], ...],
    basis: Array,
) -> tuple[Array, Array, Array]:
    """Features (n, p), rewards (n,), coefficients (m, p) along the basis, of which the last two move."""
    coefficients = np.tile(rng.uniform(0.5, 1.5, P), (WINDOWS, 1))
    coefficients[:, STABLE:] += 0.5 * rng.standard_normal((WINDOWS, P - STABLE))
    scales = rng.uniform(0.5, 2.0, (WINDOWS, 1, P))
    coordinates = rng.standard_normal((WINDOWS, rounds, P)) * scales
    for window, direction in silent:
        coordinates[window, :, direction] = rng.normal()
    rewards = np.einsum("mnp,mp->mn", coordinates, coefficients) + rng.standard_normal(
        (WINDOWS, rounds)
    )
    return (coordinates @ basis.T).reshape(-1, P), rewards.ravel(), coefficients


def level(logs: int) -> None:
    print(
        f"test of constancy at 5 %, {logs} logs: rejected among stable directions told by all windows, by "
        f"seven"
    )
    for rounds in (60, 300):
        for name, draw in (("features", lambda _: np.eye(P)), ("turned", basis_of)):
            rejected = np.zeros(STABLE)
            for seed in range(logs):
                rng = np.random.default_rng(seed)
                basis = draw(rng)
                features, rewards, _ = logged(rng, rounds, SILENT, basis)
                moments = ib.WindowedMoments.from_arrays(
                    features, rewards, windows=WINDOWS
                )
                paths, *_ = window_paths(moments, basis)
                tests = [
                    constancy_test(paths.along(basis[:, [j]])) for j in range(STABLE)
                ]
                rejected += [test.log_p < np.log(0.05) for test in tests]
            share = 100 * rejected / logs
            print(
                f"  {rounds} rounds, {name:<8}  {np.delete(share, 2).round(1)} %   {share[2]:.1f} %",
                flush=True,
            )


def splits(logs: int) -> None:
    print(
        f"splits, {logs} logs: right (dimension, and subspace within 0.5), error of the component, drift "
        f"variances"
    )
    for rounds in (60, 150, 300):
        for name, silent in (("regular", ()), ("silent", SILENT)):
            right = 0
            errors = []
            drifts = []
            for seed in range(logs):
                rng = np.random.default_rng(10_000 + seed)
                basis = basis_of(rng)
                features, rewards, coefficients = logged(rng, rounds, silent, basis)
                moments = ib.WindowedMoments.from_arrays(
                    features, rewards, windows=WINDOWS
                )
                fit = ib.InvariantSubspaceDecomposition().fit(moments)
                truth = ib.Split(basis[:, :STABLE], basis[:, STABLE:])
                drifts.append(ib.DriftPrior.from_moments(moments, basis).drift)
                if (
                    fit.split_.residual_dim == P - STABLE
                    and fit.split_.distance(truth) < 0.5
                ):
                    right += 1
                    errors.append(
                        np.linalg.norm(
                            fit.component_ - truth.invariant @ coefficients[0, :STABLE]
                        )
                    )
            drift = np.mean(drifts, axis=0)
            print(
                f"  {rounds} rounds, {name:<8} right {right / logs:.3f}  error {np.mean(errors):.4f}"
                f"  drift: stable {drift[:STABLE].max():.4f}, moving {drift[STABLE:].round(3)} (0.25 "
                f"planted)",
                flush=True,
            )


def false_alarms(logs: int) -> None:
    """Online the stable coefficients stay, the moving ones are drawn afresh; an alarm is false."""
    print(f"false alarms at 1 %, {logs} logs, {ONLINE} online rounds")
    for name, silent in (("regular", ()), ("silent", SILENT)):
        alarms = supported = 0
        for seed in range(logs):
            rng = np.random.default_rng(20_000 + seed)
            basis = basis_of(rng)
            features, rewards, coefficients = logged(rng, 300, silent, basis)
            policy = ib.AutoISD.from_history(
                ib.WindowedMoments.from_arrays(features, rewards, windows=WINDOWS)
            )
            now = coefficients[0].copy()
            now[STABLE:] = coefficients[:, STABLE:].mean(
                axis=0
            ) + 0.5 * rng.standard_normal(P - STABLE)
            truth, scales = basis @ now, rng.uniform(0.5, 2.0, P)
            for _ in range(ONLINE):
                offered = (rng.standard_normal((K, P)) * scales) @ basis.T
                action = policy.select(offered)
                policy.update(
                    offered[action],
                    float(offered[action] @ truth + rng.standard_normal()),
                )
            supported += policy.alarm_supported
            alarms += policy.alarm
        print(
            f"  {name:<8} {alarms} of {supported} logs that support an alarm",
            flush=True,
        )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    level(count)
    splits(count)
    false_alarms(max(count // 5, 1))
