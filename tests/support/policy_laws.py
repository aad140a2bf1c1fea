"""Policies on which all laws are tried beyond the registered defaults: oracles, odd splits, policies that
recompute.
"""

from __future__ import annotations

import numpy as np

import invariant_bandits as ib
from invariant_bandits.policies.registry import POLICIES, PolicySpec
from invariant_bandits.testing import ACTIONS, DIM, bits, example_past, maker_of, play

__all__ = [
    "ACTIONS",
    "COMPONENT",
    "DIM",
    "MAKERS",
    "MEMORIES",
    "SPLIT",
    "bits",
    "history",
    "play",
]

MEMORIES = {
    "forever": ib.Forever(),
    "window": ib.SlidingWindow(7),
    "discount": ib.Discount(0.9),
    "restart": ib.Restart(9),
}

SPLIT = ib.Split.from_residual(
    np.linalg.qr(np.random.default_rng(5).normal(size=(DIM, 2)))[0]
)
COMPONENT = SPLIT.invariant @ np.array([0.7, -0.4])
PRECISION = np.array([[90.0, 20.0], [20.0, 60.0]])
TRUE_SPLIT = ib.Split(np.eye(DIM)[:, :3], np.eye(DIM)[:, 3:])
EVERYTHING = ib.Split(np.eye(DIM), np.zeros((DIM, 0)))
NOTHING = ib.Split(np.zeros((DIM, 0)), np.eye(DIM))


def history(seed: int = 3):
    """Logs whose covariances change over four windows, and one coefficient with them."""
    return example_past(seed).moments


def registered_makers():
    """Words -> maker of every registered policy, with every memory where it takes one."""
    makers = {}
    for entry in POLICIES:
        memories = MEMORIES if entry.takes("memory") else {"": None}
        for words, memory in memories.items():
            name, options = (
                (f"{entry.name}, {words}", {"memory": memory})
                if words
                else (entry.name, {})
            )
            makers[name] = maker_of(PolicySpec(entry.name, options))
    return makers


def _makers():
    makers = {}
    for name, memory in MEMORIES.items():
        makers[f"LinUCB, {name}"] = lambda m=memory: ib.LinUCB(DIM, memory=m)
        makers[f"LinTS, {name}"] = lambda m=memory: ib.LinTS(DIM, memory=m, seed=4)
        makers[f"Greedy, {name}"] = lambda m=memory: ib.Greedy(DIM, memory=m)
        makers[f"EpsilonGreedy, {name}"] = lambda m=memory: ib.EpsilonGreedy(
            DIM, epsilon=0.3, memory=m, seed=4
        )
        makers[f"ISDLinUCB both oracles, {name}"] = lambda m=memory: ib.ISDLinUCB(
            SPLIT, COMPONENT, memory=m
        )
        makers[f"ISDLinUCB, {name}"] = lambda m=memory: ib.ISDLinUCB(
            SPLIT, COMPONENT, component_precision=PRECISION, memory=m
        )
        makers[f"ISDLinTS, {name}"] = lambda m=memory: ib.ISDLinTS(
            SPLIT, COMPONENT, component_precision=PRECISION, memory=m, seed=4
        )
        makers[f"ISDLinUCB recomputing, {name}"] = lambda m=memory: (
            ib.ISDLinUCB.from_history(history(), recompute_every=40, memory=m)
        )
    return makers | {
        "AutoISD": lambda: ib.AutoISD.from_history(history()),
        "AutoISD with known noise": lambda: ib.AutoISD.from_history(
            history(), noise="known"
        ),
        "AutoISD without caution": lambda: ib.AutoISD.from_history(
            history(), caution=None, horizon=500
        ),
        "AutoISD without a baseline": lambda: ib.AutoISD.from_history(
            history(), intercept=False, share=0.01
        ),
        "Randomised AutoISD": lambda: ib.Randomised(
            ib.AutoISD.from_history(history()), seed=4
        ),
        "Randomised LinTS": lambda: ib.Randomised(
            ib.LinTS(DIM, seed=4), floor=0.3, seed=4
        ),
        "Randomised DisjointLinUCB": lambda: ib.Randomised(
            ib.DisjointLinUCB(DIM, ACTIONS), floor=0.3
        ),
        "Randomised LinUCB by gap": lambda: ib.Randomised(
            ib.LinUCB(DIM, memory=ib.Discount(0.9)),
            kind="inverse-gap",
            floor=0.1,
            sharpness=3.0,
        ),
        "Randomised twice": lambda: ib.Randomised(
            ib.Randomised(ib.LinUCB(DIM)), floor=0.0, kind="inverse-gap"
        ),
        "SWLinUCB": lambda: ib.SWLinUCB(DIM, window=12, feature_bound=2.0),
        "DLinUCB": lambda: ib.DLinUCB(DIM, discount=0.95),
        "RestartLinUCB": lambda: ib.RestartLinUCB(DIM, every=15, exploration=0.5),
        "DisjointLinUCB": lambda: ib.DisjointLinUCB(DIM, ACTIONS, ridge=0.3),
        "Uniform": lambda: ib.Uniform(DIM, seed=4),
        "ISDLinUCB theorem": lambda: ib.ISDLinUCB.from_history(
            history(), radius="theorem", feature_bound=9.0
        ),
        "ISDLinUCB joint": lambda: ib.ISDLinUCB(
            SPLIT, COMPONENT, component_precision=PRECISION, radius="joint"
        ),
        "ISDLinUCB joint, restart": lambda: ib.ISDLinUCB.from_history(
            history(), radius="joint", subspace_error=0.1, memory=ib.Restart(15)
        ),
        "ISDLinUCB known split": lambda: ib.ISDLinUCB.from_history(
            history(), split=TRUE_SPLIT, recompute_every=30, memory=ib.Discount(0.97)
        ),
        "ISDLinTS from history": lambda: ib.ISDLinTS.from_history(
            history(), recompute_every=50, seed=4
        ),
        "ISDLinUCB all invariant": lambda: ib.ISDLinUCB(
            EVERYTHING, np.ones(DIM), component_precision=np.eye(DIM)
        ),
        "ISDLinUCB none invariant": lambda: ib.ISDLinUCB(NOTHING, np.zeros(DIM)),
    }


MAKERS = _makers()
