"""Decisions, and the rewards that are still owed to them: rewards come in any order, late, twice or never."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.policies.base import reward_number
from invariant_bandits.storage import ThreadSafe

MOST_KEPT = 100_000
"""So many decisions wait for their rewards, and of so many the reward is remembered; the oldest are
forgotten.
"""


@dataclass(frozen=True)
class Decision:
    """One decision of a model.

    Attributes
    ----------
    id : str
        Identifier under which the reward of the decision is reported.
    action : str or int
        Label of the chosen arm or, if the model has no labelled arms, index of the chosen row among the
        offered rows.
    propensity : float
        Probability with which the action was chosen.
    scores : mapping of str or int to float
        Expected reward of every offered action.
    version : str
        Version of the model that made the decision.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.choice(["a", "b"], 2000)
    >>> click = (rng.random(2000) < np.where(arm == "a", 0.2, 0.4)).astype(int)
    >>> model = ib.fit_logs(pa.table({"age": rng.normal(40, 10, 2000), "arm": arm, "click": click}))
    >>> decision = model.decide({"age": 31.0}, id="visit 1")
    >>> decision.id, decision.action, decision.propensity
    ('visit 1', 'b', 1.0)
    >>> sorted(decision.scores)
    ['a', 'b']
    """

    id: str
    action: str | int
    propensity: float
    scores: Mapping[str | int, float]
    version: str

    def __post_init__(self) -> None:
        # The keys of scores that come from JSON are text.
        if isinstance(self.action, int) and any(
            isinstance(place, str) for place in self.scores
        ):
            object.__setattr__(
                self,
                "scores",
                {int(place): score for place, score in self.scores.items()},
            )


@dataclass(frozen=True)
class OpenDecision:
    """A decision that waits for its reward, with what is needed to learn from it.

    Parameters
    ----------
    decision : Decision
        What was answered.
    place : int
        Of the chosen action among the offered.
    columns : mapping of str to list
        The raw columns of the round, one value per offered action.
    labels : tuple of str
        The offered arms; empty for models of feature rows.
    """

    decision: Decision
    place: int
    columns: Mapping[str, Any]
    labels: tuple[str, ...] = ()


@dataclass
class Ledger(ThreadSafe):
    """Which decisions wait for a reward, which have one, and how many were made. Threads may share it.

    Parameters
    ----------
    open : dict of str to OpenDecision
        By id, the oldest first.
    rewarded : dict of str to float
        Rewards by id, the oldest first.
    made : int
        How many decisions were made; random draws are a function of it.
    forgotten : int
        How many were dropped without a reward, because too many waited.
    most : int
        How many decisions may wait, and how many rewards are remembered.
    """

    open: dict[str, OpenDecision] = field(default_factory=dict)
    rewarded: dict[str, float] = field(default_factory=dict)
    made: int = 0
    forgotten: int = 0
    most: int = MOST_KEPT

    def new_id(self, asked: Any) -> str:
        """The id that was asked for, or a fresh one."""
        if asked is None:
            return secrets.token_hex(8)
        if not isinstance(asked, str) or not asked:
            raise InputError(f"id must be a text that is not empty, got {asked!r}")
        if asked in self.rewarded:
            raise InputError(f"id {asked!r} was decided and rewarded before")
        return asked

    def add(self, pending: OpenDecision) -> None:
        """Wait for the reward of one more decision."""
        with self._lock:
            self.open[pending.decision.id] = pending
            self.made += 1
            while len(self.open) > self.most:
                del self.open[next(iter(self.open))]
                self.forgotten += 1

    def owed(
        self, which: Decision | str, reward: Any
    ) -> tuple[OpenDecision | None, float]:
        """(the decision that waits, its reward); None if it has this reward already. Changes nothing."""
        name = which.id if isinstance(which, Decision) else which
        if not isinstance(name, str):
            raise InputError(
                f"decision must be a Decision or its id, got {type(name).__name__}"
            )
        value = reward_number(reward)
        with self._lock:
            if name in self.open:
                return self.open[name], value
            known = self.rewarded.get(name)
            if known is None:
                more = (
                    f"; {self.forgotten:,} decisions were forgotten"
                    if self.forgotten
                    else ""
                )
                raise InputError(f"decision {name!r} is not known{more}")
            if known != value:
                words = f"has the reward {known:g} already, which {value:g} contradicts"
                raise InputError(f"decision {name!r} {words}")
            return None, value

    def all_owed(self, pairs: Iterable[Any]) -> list[tuple[OpenDecision, float]]:
        """Return which (decision, reward) pairs are new, or raise if one cannot be or two contradict."""
        new: dict[str, tuple[OpenDecision, float]] = {}
        for index, pair in enumerate(pairs):
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise InputError(
                    f"rewards[{index}] must be a pair (decision or id, reward), got {pair!r}"
                )
            waiting, value = self.owed(*pair)
            if waiting is None:
                continue
            name = waiting.decision.id
            if name in new and new[name][1] != value:
                raise InputError(
                    f"decision {name!r} gets two rewards, {new[name][1]:g} and {value:g}"
                )
            new[name] = (waiting, value)
        return list(new.values())

    def close(self, pending: OpenDecision, reward: float) -> None:
        """Its reward has come and was learned."""
        name = pending.decision.id
        with self._lock:
            del self.open[name]
            self.rewarded[name] = reward
            while len(self.rewarded) > self.most:
                del self.rewarded[next(iter(self.rewarded))]
