"""What the laws are tried on: a past, fresh policies that know it, and rounds of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.memory import Discount, Forever, Restart, SlidingWindow
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import POLICIES, Contender

DIM, ACTIONS = 4, 3
MEMORIES = {
    "forever": Forever(),
    "window": SlidingWindow(7),
    "discount": Discount(0.9),
    "restart": Restart(9),
}
Make: TypeAlias = Callable[[], Any]


def example_past(seed: int = 3, horizon: int = 300) -> Past:
    """Logs of 600 rounds whose covariances change over four windows, and one of four coefficients with them."""
    rng = np.random.default_rng(seed)
    scales = np.repeat(rng.uniform(0.4, 2.0, size=(4, DIM)), 150, axis=0)
    offered = rng.normal(size=(600, ACTIONS, DIM)) * scales[:, None]
    features = offered[:, 0]
    drifting = np.repeat([2.0, -1.0, 0.5, -2.0], 150)
    rewards = features @ [1.0, -1.0, 0.5, 0.0] + drifting * features[:, 3] + rng.normal(size=600)
    logs = Feedback.from_arrays(offered, np.zeros(600, dtype=np.int64), rewards)
    return Past(logs=logs, windows=4, horizon=horizon, actions=ACTIONS, remembered=12)


def registered_makers() -> dict[str, Make]:
    """Words -> maker of every registered policy, with every memory where it takes one."""
    makers: dict[str, Make] = {}
    for entry in POLICIES:
        for words, memory in MEMORIES.items() if entry.takes("memory") else [("", None)]:
            options = {} if memory is None else {"memory": memory}
            label = f"{entry.name}, {words}" if words else entry.name
            makers[label] = _maker(Contender(entry.name, options))
    return makers


def _maker(contender: Contender) -> Make:
    return lambda: contender(example_past())


def play(policy: Any, rounds: int, seed: int, spoil: bool = False) -> list[int]:
    """Let the policy play rounds of its own; with `spoil`, arrays handed over are overwritten afterwards."""
    rng = np.random.default_rng(seed)
    coefficients = np.array([1.0, -0.5, 0.3, 0.8])
    actions = []
    for _ in range(rounds):
        features = rng.normal(size=(ACTIONS, DIM))
        noise = rng.normal()
        action = policy.select(features)
        chosen = features[action].copy()
        reward = as_it_takes(policy, chosen @ coefficients + noise)
        policy.update(chosen, float(reward), offered=features, action=action)
        if spoil:
            chosen[:] = np.nan
            features[:] = np.nan
        actions.append(action)
    return actions


def as_it_takes(policy: Any, rewards: Any) -> Array:
    """Rewards, or clicks for a policy that takes nothing else."""
    clicks = getattr(policy, "link", "identity") == "logit"
    return np.where(rewards > 0.0, 1.0, 0.0) if clicks else np.asarray(rewards)


def bits(policy: Any) -> dict[str, Any]:
    """The whole state, comparable to the last bit."""
    state = {name: array.tobytes() for name, array in policy.arrays().items()}
    return state | {"settings": repr(sorted(policy.settings().items()))}


def some_rounds(count: int, seed: int = 1) -> Array:
    """Features (count, K, p) of rounds that no policy has learned."""
    return np.random.default_rng(seed).normal(size=(count, ACTIONS, DIM))


def played(make: Make, rounds: int) -> Any:
    """A fresh policy that has played so many rounds."""
    policy = make()
    play(policy, rounds, seed=0)
    return policy


def is_randomised(policy: Any) -> bool:
    """Whether the policy draws its actions."""
    return bool(getattr(policy, "randomised", False))


def refused(words: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises InputError with these words in it."""
    try:
        call()
    except InputError as error:
        said = str(error)
    else:
        raise AssertionError(f"bad {words} must be refused with InputError")
    assert words in said, f"the refusal must name {words}, got: {said}"
