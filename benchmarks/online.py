"""Speed of the online phase against peers: decide and learn one round through the public interface, K = 5.

All contenders play in turns within one run, so that a busy machine slows them alike; each figure is the
median over the turns, in microseconds per round, and what counts are the ratios. Run with
OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np

import invariant_bandits as ib
from invariant_bandits.simulation.paper import PaperWorld

ACTIONS, TURN = 5, 300
Step = Callable[[int], None]


class NumpyLinUCB:
    """LinUCB as a careful NumPy user writes it: rank-one updates of inverse and estimate, scalars outside
    NumPy.
    """

    def __init__(self, dim: int, ridge: float = 0.1, delta: float = 0.01) -> None:
        self.inverse = np.eye(dim) / ridge
        self.estimate = np.zeros(dim)
        self.log_volume = 0.0
        self.base = -2.0 * log(delta)
        self.bias = sqrt(ridge)

    def radius(self) -> float:
        """Lemma 1."""
        return sqrt(self.base + self.log_volume) + self.bias

    def select(self, features: Any) -> int:
        """Index of the best upper confidence bound."""
        norms = np.einsum("kp,kp->k", features @ self.inverse, features)
        np.sqrt(norms, out=norms)
        norms *= self.radius()
        norms += features @ self.estimate
        return int(norms.argmax())

    def update(self, row: Any, reward: float) -> None:
        """Sherman-Morrison, and the determinant by its lemma."""
        moved = self.inverse @ row
        growth = 1.0 + float(row @ moved)
        error = reward - float(row @ self.estimate)
        self.estimate += moved * (error / growth)
        self.inverse -= moved[:, None] * (moved / growth)
        self.log_volume += log(growth)


def player(policy: Any, rounds: list[Any], rewards: list[float]) -> Step:
    def step(t: int) -> None:
        features = rounds[t]
        action = policy.select(features)
        policy.update(features[action], rewards[t])

    return step


def coba_player(rounds: list[Any], rewards: list[float]) -> Step:
    from coba.learners import LinUCBLearner

    learner = LinUCBLearner(features=["a"])
    offered = [[tuple(row) for row in features.tolist()] for features in rounds]

    def step(t: int) -> None:
        action, probability, *_ = learner.predict(None, offered[t])
        learner.learn(None, action, rewards[t], probability)

    return step


def vowpal_player(rounds: list[Any], rewards: list[float]) -> Step:
    """squarecb on action features; the text of the features is prepared outside the clock, to its
    advantage.
    """
    import vowpalwabbit

    workspace = vowpalwabbit.Workspace("--cb_explore_adf --squarecb --quiet")
    offered = [
        [
            "| " + " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(row))
            for row in features.tolist()
        ]
        for features in rounds
    ]
    uniforms = np.random.default_rng(0).random(len(rounds)).tolist()

    def step(t: int) -> None:
        probabilities = workspace.predict(offered[t])
        rest, action = uniforms[t], 0
        while action < ACTIONS - 1 and rest > probabilities[action]:
            rest -= probabilities[action]
            action += 1
        lines = list(offered[t])
        lines[action] = f"0:{-rewards[t]}:{probabilities[action]} {lines[action]}"
        workspace.learn(lines)

    return step


def contenders(dim: int, rounds: list[Any], rewards: list[float]) -> dict[str, Step]:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    residual = max(1, dim // 5)
    split = ib.Split(basis[:, residual:], basis[:, :residual])
    precision = 1000.0 * np.eye(dim - residual)
    policies = {
        "LinUCB": ib.LinUCB(dim),
        "ISDLinUCB, component known": ib.ISDLinUCB(split, np.zeros(dim)),
        "ISDLinUCB, component estimated": ib.ISDLinUCB(
            split, np.zeros(dim), component_precision=precision
        ),
        "SWLinUCB, window 100": ib.SWLinUCB(dim, window=100),
        "DLinUCB": ib.DLinUCB(dim, discount=0.99),
        "LinTS": ib.LinTS(dim),
        "NumPy rank-one": NumpyLinUCB(dim),
    }
    logs = PaperWorld(blocks=(4, 1, 3, 2) * (dim // 10)).log(max(2000, 80 * dim), rng)
    moments = ib.WindowedMoments.from_arrays(
        logs.features, logs.rewards, windows=8, offered=logs.offered
    )
    policies["AutoISD"] = ib.AutoISD.from_history(moments)
    steps = {name: player(policy, rounds, rewards) for name, policy in policies.items()}
    for name, make in (
        ("coba LinUCB", coba_player),
        ("vowpalwabbit squarecb", vowpal_player),
    ):
        try:
            steps[name] = make(rounds, rewards)
        except ImportError as error:
            print(f"  {name} is left out: {error}")
    return steps


def online(dim: int, turns: int) -> None:
    rng = np.random.default_rng(0)
    rounds = [rng.normal(size=(ACTIONS, dim)) for _ in range(TURN * (turns + 1))]
    rewards = rng.normal(size=len(rounds)).tolist()
    print(f"\np = {dim}, microseconds per round")
    steps = contenders(dim, rounds, rewards)
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            for t in range(turn * TURN, (turn + 1) * TURN):
                step(t)
            if turn:
                spent[name].append((time.perf_counter() - start) / TURN * 1e6)
    medians = {name: float(np.median(values)) for name, values in spent.items()}
    for name, value in medians.items():
        print(f"  {name:32s} {value:9.1f}   {value / medians['LinUCB']:7.2f} × LinUCB")


def batch(dim: int, turns: int, count: int = 10_000) -> None:
    """select_many against NumPy's own products for the same scores."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, ACTIONS, dim))
    policy, plain = ib.LinUCB(dim), NumpyLinUCB(dim)
    for row, reward in zip(features[:200, 0], rng.normal(size=200), strict=True):
        policy.update(row, reward)
        plain.update(row, reward)
    flat = features.reshape(-1, dim)
    radius = plain.radius()

    def with_numpy() -> Any:
        norms = np.einsum("np,np->n", flat @ plain.inverse, flat)
        values = flat @ plain.estimate + radius * np.sqrt(norms)
        return values.reshape(count, ACTIONS).argmax(axis=1)

    spent: dict[str, list[float]] = {"select_many": [], "NumPy": []}
    for _ in range(turns):
        for name, call in (
            ("select_many", lambda: policy.select_many(features)),
            ("NumPy", with_numpy),
        ):
            start = time.perf_counter()
            call()
            spent[name].append((time.perf_counter() - start) * 1e3)
    agree = float((policy.select_many(features) == with_numpy()).mean())
    ours, theirs = (float(np.median(spent[name])) for name in ("select_many", "NumPy"))
    print(
        f"  p = {dim:3d}: select_many {ours:6.1f} ms, NumPy {theirs:6.1f} ms, {theirs / ours:.2f} × as fast",
        end="",
    )
    print(f", same choice in {agree:.4f} of rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--turns", type=int, default=15, help=f"turns of {TURN} rounds per contender"
    )
    turns = parser.parse_args().turns
    for dim in (10, 50, 100):
        online(dim, turns)
    print(f"\na batch of 10,000 contexts, {ACTIONS} actions each")
    for dim in (10, 50, 100):
        batch(dim, turns)


if __name__ == "__main__":
    main()
