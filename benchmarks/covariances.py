"""Three ways to update the covariance of a Kalman filter: what a round costs, and what is left after a
million.

plain      P − (Pz)(Pz)ᵀ/S with the leverage of one round limited, as AutoISD's filters do Joseph     (I −
kzᵀ)P(I − kzᵀ)ᵀ + v·kkᵀ (Bucy & Joseph 1968) factored   W − (Wf)fᵀ·…, P = WWᵀ, f = Wᵀz (Potter 1963); a walk
of the coefficients costs a QR decomposition per round

Accuracy: variances along all directions against the inverse of the information matrix in extended precision,
with the same noise variances. Run with OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from numba import njit

STEEPEST = 1e10
OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}


@njit(**OPTIONS)
def plain(rows, noise, P):
    d = P.shape[0]
    g = np.empty(d)
    for t in range(len(rows)):
        z = rows[t]
        for i in range(d):
            g[i] = 0.0
        for i in range(d):
            row = 0.0
            for j in range(i):
                row += P[i, j] * z[j]
                g[j] += P[i, j] * z[i]
            g[i] += row + P[i, i] * z[i]
        spread = 0.0
        for i in range(d):
            spread += g[i] * z[i]
        gain = 1.0 / (max(spread, 0.0) + noise[t])
        for i in range(d):
            scaled = g[i] * gain
            for j in range(i):
                P[i, j] -= scaled * g[j]
            P[i, i] = max(P[i, i] - scaled * g[i], 0.0)


@njit(**OPTIONS)
def joseph(rows, noise, P):
    d = P.shape[0]
    g = np.empty(d)
    k = np.empty(d)
    rest = np.empty(d)
    for t in range(len(rows)):
        z, v = rows[t], noise[t]
        spread = 0.0
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += P[i, j] * z[j]
            g[i] = total
            spread += total * z[i]
        for i in range(d):
            k[i] = g[i] / (spread + v)
        for i in range(d):
            total = 0.0
            for j in range(d):
                P[i, j] -= k[i] * g[j]
                total += P[i, j] * z[j]
            rest[i] = total
        for i in range(d):
            for j in range(i + 1):
                P[i, j] += -rest[i] * k[j] + v * k[i] * k[j]
                P[j, i] = P[i, j]


@njit(**OPTIONS)
def factored(rows, noise, W):
    d = W.shape[0]
    f, g = np.empty(d), np.empty(d)
    for t in range(len(rows)):
        z, v = rows[t], noise[t]
        for j in range(d):
            f[j] = 0.0
        for i in range(d):
            for j in range(d):
                f[j] += W[i, j] * z[i]
        size = 0.0
        for j in range(d):
            size += f[j] * f[j]
        scale = 1.0 / (size + v + np.sqrt(v * (size + v)))
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += W[i, j] * f[j]
            g[i] = total * scale
            for j in range(d):
                W[i, j] -= g[i] * f[j]


@njit(**OPTIONS)
def factored_walk(rows, noise, W, steps):
    d = W.shape[0]
    both = np.zeros((2 * d, d))
    for t in range(len(rows)):
        factored(rows[t : t + 1], noise[t : t + 1], W)
        both[:d] = W.T
        both[d:] = np.diag(steps)
        W[:] = np.linalg.qr(both)[1].T


def streams(dim: int, rounds: int, rng: np.random.Generator) -> dict[str, Any]:
    ordinary = rng.normal(size=(rounds, dim))
    ordinary[:, -1] = 1.0
    outliers = ordinary * np.where(rng.random((rounds, 1)) < 0.001, 1e4, 1.0)
    alternate = ordinary * np.where(np.arange(rounds)[:, None] % 2, 1e7, 1.0)
    two = ordinary * np.where(
        np.isin(np.arange(rounds), [100, 101])[:, None], 1e10, 1.0
    )
    near = ordinary[:, :1] + 1e-4 * ordinary
    return {
        "ordinary": ordinary,
        "one in a thousand × 1e4": outliers,
        "every second × 1e7": alternate,
        "two × 1e10": two,
        "nearly collinear": near,
    }


def effective_noise(rows: Any, start: Any) -> Any:
    """Noise variances with the leverage of every round limited, as the filters of AutoISD have them."""
    P, noise = start.copy(), np.ones(len(rows))
    for t in range(len(rows)):
        if t < 2000 or np.abs(rows[t]).max() > 100.0:
            spread = rows[t] @ (np.tril(P) + np.tril(P, -1).T) @ rows[t]
            noise[t] = max(1.0, spread / STEEPEST)
        plain(rows[t : t + 1], noise[t : t + 1], P)
    return noise


def exact(rows: Any, noise: Any, start: Any) -> Any:
    """The covariance, by Cholesky in extended precision."""
    information = np.diag(1.0 / np.diagonal(start)).astype(np.longdouble)
    for first in range(0, len(rows), 10_000):
        part = rows[first : first + 10_000].astype(np.longdouble)
        information += (
            part / noise[first : first + 10_000, None].astype(np.longdouble)
        ).T @ part
    d = len(start)
    L, inverse = np.zeros_like(information), np.eye(d, dtype=np.longdouble)
    for i in range(d):
        for j in range(i + 1):
            rest = information[i, j] - L[i, :j] @ L[j, :j]
            L[i, j] = np.sqrt(rest) if i == j else rest / L[j, j]
    for i in range(d):
        inverse[i] = (inverse[i] - L[i, :i] @ inverse[:i]) / L[i, i]
    return inverse.T @ inverse


def judged(P: Any, truth: Any) -> tuple[float, float]:
    """Largest relative error of a variance along the axes of the truth, and the smallest eigenvalue in
    its units.
    """
    values, axes = np.linalg.eigh(truth.astype(np.float64))
    root = axes / np.sqrt(values)
    alike = root.T @ P @ root
    return float(np.abs(np.diagonal(alike) - 1.0).max()), float(
        np.linalg.eigvalsh(0.5 * (alike + alike.T)).min()
    )


def accuracy(dim: int, rounds: int) -> None:
    for name, rows in streams(dim, rounds, np.random.default_rng(0)).items():
        start = 10.0 * np.eye(dim)
        noise = effective_noise(rows, start)
        truth = exact(rows, noise, start)
        P = start.copy()
        J = start.copy()
        W = np.sqrt(start)
        plain(rows, noise, P)
        joseph(rows, noise, J)
        factored(rows, noise, W)
        kinds = {
            "plain": np.tril(P) + np.tril(P, -1).T,
            "Joseph": J,
            "factored": W @ W.T,
        }
        words = ", ".join(
            f"{kind} {judged(item, truth)[0]:.0e} ({judged(item, truth)[1]:+.2f})"
            for kind, item in kinds.items()
        )
        print(f"p = {dim}, {rounds:,} rounds, {name}: {words}", flush=True)


def cost(dim: int, turns: int = 30) -> None:
    rows, noise = np.random.default_rng(0).normal(size=(3000, dim)), np.ones(3000)
    steps = np.full(dim, 1e-3)
    ways = {
        "plain": lambda: plain(rows, noise, 10.0 * np.eye(dim)),
        "Joseph": lambda: joseph(rows, noise, 10.0 * np.eye(dim)),
        "factored": lambda: factored(rows, noise, np.sqrt(10.0) * np.eye(dim)),
        "factored, walking": lambda: factored_walk(
            rows[:300], noise[:300], np.sqrt(10.0) * np.eye(dim), steps
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            times[name].append(
                (time.perf_counter() - begin) / (300 if "walking" in name else 3000)
            )
    best = {name: min(item) for name, item in times.items()}
    words = ", ".join(
        f"{name} {1e6 * value:.2f} µs ({value / best['plain']:.1f})"
        for name, value in best.items()
    )
    print(f"p = {dim}, one filter, one round: {words}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1_000_000)
    given = parser.parse_args()
    for dim in (10, 50):
        cost(dim)
    accuracy(10, given.rounds)
    accuracy(50, given.rounds // 10)
