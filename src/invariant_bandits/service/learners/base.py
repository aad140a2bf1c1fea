"""A learner: the state of one version of a served model. Deciding never changes it; `seen` and `learn` do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

from scipy.special import stdtrit

from invariant_bandits.checks import Array, InputError
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.belief import Belief
from invariant_bandits.policies.randomised import Randomised
from invariant_bandits.storage import FileError

Context = Mapping[str, Any] | None
Actions = Sequence[Any] | None


_ACTIVITY = {True: "active", False: "retired"}


class Round(NamedTuple):
    """One round as a learner sees it.

    Attributes
    ----------
    labels : tuple of str
        Names of the offered arms; empty for feature rows.
    features : array, shape (K, p)
        Of the offered actions.
    """

    labels: tuple[str, ...]
    features: Array


class Choice(NamedTuple):
    """What was drawn, and from which probabilities (K,)."""

    place: int
    propensities: list[float]

    @property
    def explored(self) -> bool:
        """Whether chance chose another action than the most probable one."""
        return self.propensities[self.place] < max(self.propensities)

    def cost(self, means: Sequence[float]) -> float:
        """By how much less is expected of a draw than of the most probable action, given expected rewards
        (K,).
        """
        likeliest = max(range(len(means)), key=self.propensities.__getitem__)
        return means[likeliest] - math.fsum(
            p * mean for p, mean in zip(self.propensities, means, strict=True)
        )


class Learner(ABC):
    """The state of one version of a served model.

    Every method is a function of the state and its arguments: the same events in the same order give the same
    bits. A round is given as its context, the labels of the offered arms, and what is known of each offered
    action.

    Attributes
    ----------
    seed : int
        Of the random draws.
    takes : str
        How actions can be offered: by label, as rows of features, or as both.
    baseline : float
        What the policy's expected rewards are counted from.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Learner]]] = {}
    seed: int
    takes: Literal["labels", "rows", "both"] = "both"
    baseline: float = 0.0
    _randomised: Randomised | None = None

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        Learner.kinds[kind] = cls

    @abstractmethod
    def round_of(self, context: Context, labels: Sequence[str], actions: Actions) -> Round:
        """Labels and features of a round; InputError names what is wrong.

        Without labels and actions, all active arms are offered.
        """

    @abstractmethod
    def policy_over(self, places: int = 0) -> Policy:
        """The policy, with at least so many places for features."""

    def policy_for(self, round: Round, floor: float) -> Randomised:
        """The policy that decides about the round; one that does not randomise gets this share of uniform
        chance.
        """
        policy, known = self.policy_over(round.features.shape[1]), self._randomised
        if isinstance(policy, Randomised):
            return policy
        if known is None or known.policy is not policy or known.floor != floor:
            known = self._randomised = Randomised(policy, floor, seed=self.seed)
        return known

    def floor_of(self, asked: float) -> float:
        """The share of uniform chance that decisions really have if this one is asked for."""
        policy = self.policy_over()
        return policy.floor if isinstance(policy, Randomised) else asked

    def decide(self, round: Round, draw: int, floor: float) -> Choice:
        """The choice that number `draw` gives in the present state."""
        place, propensities = self.policy_for(round, floor).choose(round.features, draw=draw)
        return Choice(place, propensities.tolist())

    def means(self, round: Round) -> list[float]:
        """Expected rewards (K,)."""
        scores = self.policy_over(round.features.shape[1]).scores(round.features)
        expected: list[float] = (scores.mean + self.baseline).tolist()
        return expected

    def seen(self, context: Context, labels: Sequence[str], actions: Actions) -> None:  # noqa: B027 - most take no note
        """Take note of a round that was decided, before its reward is known."""

    @abstractmethod
    def learn(
        self, context: Context, labels: Sequence[str], actions: Actions, place: int, reward: float
    ) -> None:
        """Learn the reward of the action at `place`; a round that was seen before can be learned."""

    # -- arms --

    @property
    @abstractmethod
    def arms(self) -> dict[str, bool]:
        """Known arms, and whether they are active; empty where arms are not registered."""

    @abstractmethod
    def add_arm(self, label: str, features: Mapping[str, Any] | None) -> None:
        """Make a new arm known."""

    @abstractmethod
    def retire_arm(self, label: str) -> None:
        """Never choose an arm again."""

    @property
    @abstractmethod
    def input_columns(self) -> dict[str, str] | None:
        """Names of the columns it needs, and what each holds; None if it takes what comes."""

    def differences(self, other: Learner) -> list[str]:
        """In what another learner would take other requests than this one, in words."""
        words = [] if self.kind == other.kind else [f"kind: {self.kind} is active, {other.kind} was given"]
        if (self.input_columns is None) != (other.input_columns is None):
            words.append("columns: one takes any, the other only its own")
        columns = (self.input_columns or {}, other.input_columns or {})
        arms = ({label: _ACTIVITY[on] for label, on in learner.arms.items()} for learner in (self, other))
        for what, (own, others) in (("column", columns), ("arm", tuple(arms))):
            words += [f"{what} {name!r} is missing" for name in own if name not in others]
            words += [f"{what} {name!r} is new" for name in others if name not in own]
            changed = {name: others[name] for name in own if others.get(name, own[name]) != own[name]}
            words += [f"{what} {name!r} is {becomes}, was {own[name]}" for name, becomes in changed.items()]
        return words

    # -- telling and storing --

    @property
    def rounds(self) -> int:
        """Rounds learned online."""
        return self.policy_over().rounds

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What it is and believes, plain values."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The whole state; the same state has the same bytes."""

    @classmethod
    @abstractmethod
    def from_bytes(cls, content: bytes, name: str) -> Self:
        """The learner with this state; FileError if it is none. `name` is for messages."""


def learner_from_bytes(kind: str, content: bytes, name: str) -> Learner:
    """A learner from its stored state."""
    if kind not in Learner.kinds:
        raise FileError(
            f"{name} holds a learner of kind {kind!r}; known are {', '.join(sorted(Learner.kinds))}"
        )
    return Learner.kinds[kind].from_bytes(content, name)


def checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Labels of offered arms, or InputError for one that is empty or given twice."""
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise InputError(f"arms: {twice!r} is offered twice")
    if not all(labels):
        raise InputError("arms: a label is empty")
    return tuple(labels)


SPEAKS = 2.0
"""A direction is listed as moved if it stands at least so many standard deviations from the logs."""


def describe_belief(policy: Any, names: Sequence[str]) -> dict[str, Any]:
    """Beliefs, drift and alarm of a policy that has them; else nothing."""
    belief = policy.explain(names) if hasattr(policy, "explain") else None
    if not isinstance(belief, Belief):
        return {}
    columns = (belief.names, belief.shifts.tolist(), belief.errors.tolist())
    moved: list[dict[str, Any]] = [
        {"direction": name, "shift": finite(shift), "error": finite(error)}
        for name, shift, error in zip(*columns, strict=True)
    ]
    moved.sort(key=lambda move: -abs(move["shift"] or 0.0) / max(move["error"] or 1.0, 1e-300))
    return {
        "beliefs": {name: finite(share) for name, share in belief.hypotheses.items()},
        "alarm": bool(belief.alarm),
        "alarm_level": belief.alarm_level,
        "log_evidence": finite(belief.log_evidence),
        "no_alarm_because": belief.no_alarm_because,
        "drift": moved,
        "noise_ratio": finite(belief.noise_ratio),
        "baseline_shift": [finite(shift) for shift in belief.baseline_shift],
    }


def logged_reward(counts: Array, means: Array) -> dict[str, Any]:
    """What the logs' policy earned per round, and an interval at 95 % from how its windows differ.

    Parameters
    ----------
    counts, means : array, shape (m,)
        Rounds and mean reward per window.
    """
    share = counts / counts.sum()
    mean, windows = float(share @ means), len(means)
    if windows < 2:
        return {"logged_reward": mean, "logged_reward_interval": None}
    error = math.sqrt(float(share**2 @ (means - mean) ** 2) * windows / (windows - 1))
    half = float(stdtrit(windows - 1, 0.975)) * error
    return {"logged_reward": mean, "logged_reward_interval": [mean - half, mean + half]}


def finite(value: float) -> float | None:
    """A number that JSON can say, or None."""
    return float(value) if math.isfinite(value) else None
