"""The offline phase against its peers and the machine's own matrix product; every figure a ratio or median of
one run.

Run: python benchmarks/offline.py
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import invariant_bandits as ib
from invariant_bandits.decomposition.joint_diagonalization import floored
from invariant_bandits.simulation.paper import PaperWorld


def seconds(action: Callable[[], Any], repeats: int) -> float:
    """Median time of `action` after one warm-up."""
    action()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def logged(p: int, rounds: int) -> ib.WindowedMoments:
    logs = PaperWorld(blocks=(4, 1, 3, 2) * (p // 10)).log(
        rounds, np.random.default_rng(p)
    )
    return ib.WindowedMoments.from_arrays(
        logs.features, logs.rewards, windows=8, offered=logs.offered
    )


def fitting() -> None:
    print("fit from moments, 8 windows, compiled code warm")
    for p, rounds, bound in ((10, 8000, 15), (50, 20_000, 250), (100, 40_000, 1000)):
        moments = logged(p, rounds)
        fit = ib.InvariantSubspaceDecomposition()
        taken = 1e3 * seconds(lambda fit=fit, moments=moments: fit.fit(moments), 5)
        print(
            f"  p = {p:>3}: {taken:7.1f} ms   (bound {bound} ms)   found {fit.split_}"
        )


def diagonalisers() -> None:
    print(
        "joint diagonalisation of the same 8 matrices: median ms, likelihood criterion reached (lower is "
        "better)"
    )
    for p in (10, 50, 100):
        moments = logged(p, 400 * p)
        assert moments.offered is not None
        stack = floored(moments.offered.covariance())
        for name, run in peers(stack).items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    taken = 1e3 * seconds(run, 3)
                    basis = run()
            except ImportError as error:
                print(f"  p = {p:>3}  {name:<34} skipped: {error}")
                continue
            print(
                f"  p = {p:>3}  {name:<34} {taken:9.1f} ms   criterion {criterion(stack, basis):.4f}"
            )


def peers(stack: Any) -> dict[str, Callable[[], Any]]:
    def riemann(method: str) -> Callable[[], Any]:
        def run() -> Any:
            from pyriemann.utils.ajd import ajd

            return (
                ajd(stack, method=method)[0].T
                if method != "rjd"
                else ajd(stack, method=method)[0]
            )

        return run

    def quasi_newton() -> Any:
        from qndiag import qndiag

        return qndiag(stack)[0].T

    return {
        "ours (orthogonal)": lambda: ib.joint_diagonalize(stack).basis,
        "pyRiemann rjd (orthogonal)": riemann("rjd"),
        "pyRiemann ajd_pham (not orthogonal)": riemann("ajd_pham"),
        "qndiag (not orthogonal)": quasi_newton,
    }


def criterion(stack: Any, basis: Any) -> float:
    turned = basis.T @ stack @ basis
    diagonal = np.log(np.diagonal(turned, axis1=1, axis2=2)).sum(axis=1)
    return float((diagonal - np.linalg.slogdet(turned)[1]).mean())


def streaming() -> None:
    rows, p = 1_000_000, 50
    rng = np.random.default_rng(0)
    features, rewards = rng.standard_normal((rows, p)), rng.standard_normal(rows)
    other = features.copy()
    square = rng.standard_normal((3000, 3000))
    pairs = []
    for _ in range(7):
        product = seconds(lambda: features.T @ other, 1)
        ours = seconds(
            lambda: ib.WindowedMoments.from_arrays(features, rewards, windows=50), 1
        )
        pairs.append((product, ours))
    ratio = statistics.median(product / ours for product, ours in pairs)
    product, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    flops = 2.0 * rows * p * p
    peak = 2.0 * 3000**3 / seconds(lambda: square @ square, 3)
    print(
        f"moments of {rows:,} × {p} rows into 50 windows: {1e3 * ours:.0f} ms, {flops / ours / 1e9:.1f} "
        f"GFLOP/s"
    )
    print(
        f"  dgemm of the same product:   {1e3 * product:.0f} ms, {flops / product / 1e9:.1f} GFLOP/s; "
        f"ratio {ratio:.2f}"
    )
    print(f"  dgemm of 3000 × 3000 squares: {peak / 1e9:.1f} GFLOP/s")


def importing() -> None:
    def beyond_start(code: str) -> float:
        command = [sys.executable, "-X", "importtime", "-c", code]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        line = next(
            line
            for line in log.splitlines()
            if line.rstrip().endswith("| invariant_bandits")
        )
        return int(line.split("|")[1]) / 1e6

    times = [beyond_start("import invariant_bandits") for _ in range(5)]
    print(
        f"import invariant_bandits: {statistics.median(times) * 1e3:.1f} ms by -X importtime (bound 300 ms)"
    )


if __name__ == "__main__":
    print(
        f"{platform.python_implementation()} {platform.python_version()}, numpy {np.__version__}, "
        f"{platform.machine()}"
    )
    importing()
    fitting()
    streaming()
    diagonalisers()
