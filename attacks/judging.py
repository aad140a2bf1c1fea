"""What became of a forged file: refused, accepted and lawful, or something that must not be."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import invariant_bandits as ib
from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.policies.randomised import unwrapped
from invariant_bandits.policies.state import from_bytes, to_bytes
from invariant_bandits.testing import bits

UNCHANGED, REFUSED, LAWFUL = "unchanged", "refused", "accepted, lawful"
BROKEN, MEMORY = "accepted, broke a law", "too much memory"
WIDEST = 2000
"""Features, beyond which a state is not asked to decide."""


def verdict(content: bytes, kind: str, rounds: tuple[Any, ...]) -> tuple[str, str]:
    """(what became of it, why)."""
    try:
        loaded = _load(content, kind)
    except ib.FileError as error:
        return (MEMORY, str(error)) if _ran_out(error) else (REFUSED, str(error))
    except MemoryError as error:
        return MEMORY, repr(error)
    except BaseException as error:
        return BROKEN, f"loading raised {error!r}"
    try:
        with warnings.catch_warnings(action="ignore"):
            JUDGES[kind](loaded, rounds)
    except AssertionError as error:
        return BROKEN, str(error)
    except MemoryError as error:
        return MEMORY, repr(error)
    except Exception as error:
        return (MEMORY if _ran_out(error) else BROKEN), f"raised {error!r}"
    return LAWFUL, ""


def _load(content: bytes, kind: str) -> Any:
    if kind == "policy":
        return from_bytes(content, "forged")
    if kind == "moments":
        return ib.WindowedMoments.from_bytes(content, "forged")
    return ib.Model.from_bytes(content, "forged")


def _ran_out(error: BaseException | None) -> bool:
    """Whether a refusal hides that there was not enough memory."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__context__
    return False


def judge_policy(policy: Any, _: tuple[Any, ...]) -> None:
    """It decides, scores and learns ordinary rounds, or refuses them unchanged; and it can be stored again."""
    _same_when_stored(policy, to_bytes, from_bytes)
    if policy.dim > WIDEST:
        return
    rng = np.random.default_rng(0)
    for _ in range(3):
        features = rng.normal(size=(getattr(unwrapped(policy), "arms", 3), policy.dim))
        reward = 1.0 if getattr(policy, "link", "") == "logit" else float(rng.normal())
        before = bits(policy)
        try:
            action = _decided(policy, features)
            policy.update(features[action], reward, offered=features, action=action)
        except InputError:
            assert bits(policy) == before, "a refused round changed the state"
            break
    _decides_or_refuses(policy, rng.normal(size=(getattr(unwrapped(policy), "arms", 3), policy.dim)))
    _same_when_stored(policy, to_bytes, from_bytes, may_refuse=True)


def _decides_or_refuses(policy: Any, features: Any) -> None:
    try:
        _decided(policy, features)
    except InputError:
        return


def _decided(policy: Any, features: Any) -> int:
    action = policy.select(features)
    scores, chances = policy.scores(features), policy.propensities(features)
    assert 0 <= action < len(features), f"select returned {action}"
    assert np.isfinite(scores.mean).all(), f"means are {scores.mean}"
    assert ((scores.width >= 0.0) & (scores.width < np.inf)).all(), f"widths are {scores.width}"
    assert chances.shape == (len(features),), f"propensities are {chances}"
    assert abs(chances.sum() - 1.0) < 1e-6, f"propensities are {chances}"
    assert (chances >= 0.0).all(), f"propensities are {chances}"
    return int(action)


def judge_moments(moments: Any, _: tuple[Any, ...]) -> None:
    """They can be stored again and joined, and a decomposition is found or refused."""
    _same_when_stored(moments, ib.WindowedMoments.to_bytes, ib.WindowedMoments.from_bytes)
    if moments.dim > WIDEST:
        return
    try:
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            found = ib.InvariantSubspaceDecomposition().fit(moments)
    except InputError:
        return
    assert np.isfinite(found.component_).all(), f"the component is {found.component_}"


def judge_model(model: Any, rounds: tuple[Any, ...]) -> None:
    """It decides the rounds and learns their rewards, or refuses them; and it can be stored again."""
    _same_when_stored(model, ib.Model.to_bytes, ib.Model.from_bytes)
    if model.policy.dim > WIDEST:
        return
    for _ in range(2):
        try:
            decision = model.decide(*rounds)
            model.learn(decision, 1.0)
        except InputError:
            break
        assert 0.0 < decision.propensity <= 1.0 + 1e-9, f"the propensity is {decision.propensity}"
        assert np.isfinite(list(decision.scores.values())).all(), f"scores are {decision.scores}"
    _same_when_stored(model, ib.Model.to_bytes, ib.Model.from_bytes, may_refuse=True)


def _same_when_stored(one: Any, store: Any, load: Any, may_refuse: bool = False) -> None:
    """Stored and loaded, it is stored the same; a state at the edge of its range may have left it by learning."""
    try:
        content = store(one)
    except InputError as error:
        if not may_refuse or "cannot be stored" not in str(error):
            raise AssertionError(f"not stored: {error}") from None
        return
    assert store(load(content, "again")) == content, "stored, loaded and stored again it is another"


JUDGES = {"policy": judge_policy, "moments": judge_moments, "model": judge_model}
