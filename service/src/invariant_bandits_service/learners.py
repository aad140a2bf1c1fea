"""What decides and learns inside a service: the state of one version of a served model.

Deciding never changes it; `seen` and `learn` do. A model that was fitted to logs is a `FittedLearner`. One
that begins empty is an `OpenLearner`: features get positions as they come, up to a limit, and share positions
beyond it. Learners must not know events, the store or HTTP.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self
from zlib import crc32

import msgspec
import numpy as np
from scipy.special import stdtrit

from invariant_bandits import storage
from invariant_bandits.checks import LARGEST_WHOLE, Array, InputError
from invariant_bandits.evaluation.intervals import mean_over_clusters
from invariant_bandits.features.columns import Column
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.model.decisions import Ledger
from invariant_bandits.model.model import Model
from invariant_bandits.policies import base as policy_base
from invariant_bandits.policies.auto import AutoISD, Belief
from invariant_bandits.policies.base import BasePolicy
from invariant_bandits.policies.choice import Choice
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.memory import Forever
from invariant_bandits.policies.wrapper import unwrapped
from invariant_bandits.storage import ArraySpec, FileError, StateSchema

Context = Mapping[str, Any] | None
Labels = Sequence[str]
Actions = Sequence[Any] | None


MOST_OFFERED = 500
"""Actions offered in one decision, registered arms included."""
NUMBER_WORTH = 10_000.0
"""Multiplications that take as long as encoding one named number (0.4 ns and 4 µs on a machine of 2026)."""


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


def draw_number(seed: int, draw: int, features: Array) -> float:
    """Return the number from 0 to 1 that a seed, the number `draw` and features (K, p) give.

    The features are part of it, so that models with the same seed draw independently of each other.
    """
    salt = seed.to_bytes(8, "little")
    key = draw.to_bytes(8, "little")
    digest = blake2b(features.tobytes(), digest_size=8, key=key, salt=salt).digest()
    return int.from_bytes(digest) * 2.0**-64


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

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        Learner.kinds[kind] = cls

    @abstractmethod
    def round_of(self, context: Context, labels: Labels, actions: Actions) -> Round:
        """Labels and features of a round; InputError names what is wrong.

        Without labels and actions, all active arms are offered.
        """

    @abstractmethod
    def policy_over(self, size: int = 0) -> BasePolicy:
        """Return the policy, over at least so many features."""

    def decide(self, round: Round, floor: float, draw: float | None = None) -> Choice:
        """Return what the policy decides in the present state, by a number from 0 to 1.

        A policy without a floor of its own gets the share `floor` of uniform chance.
        """
        policy = self.policy_over(round.features.shape[1])
        choice = policy.decide(round.features, draw=draw)
        propensities = choice.propensities
        if not hasattr(policy, "floor"):
            propensities = floor / len(propensities) + (1.0 - floor) * propensities
        return choice._replace(
            propensities=propensities, means=choice.means + self.baseline
        )

    def floor_of(self, asked: float) -> float:
        """The share of uniform chance that decisions really have if this one is asked for."""
        return float(getattr(self.policy_over(), "floor", asked))

    def cost(self, context: Context, labels: Labels, actions: Actions) -> float:
        """Estimate the work of a round, in numbers to be encoded; InputError if too much is offered."""
        count = len(labels) if actions is None else len(actions)
        if not labels and actions is None:
            count = sum(self.arms.values())
        if count > MOST_OFFERED:
            raise InputError(
                f"arms: {count:,} would be offered, at most {MOST_OFFERED} can be: name some"
            )
        policy = unwrapped(self.policy_over())
        products: int = getattr(policy, "members", 1) * policy.dim**2
        return count * (self._count_numbers(context, actions) + products / NUMBER_WORTH)

    @abstractmethod
    def _count_numbers(self, context: Context, actions: Actions) -> float:
        """How many numbers describe an offered action, about."""

    def why(self, choice: Choice, action: int, floor: float) -> str:
        """Why an action was drawn from a choice, see `Decided.why`."""
        propensity = choice.propensities[action]
        if propensity < choice.propensities.max():
            # nothing but the floor gives so little; it was rounded in between
            by_floor = self.floor_of(floor) / len(choice.means)
            return "floor" if propensity <= by_floor * (1.0 + 1e-9) else "exploration"
        if choice.means[action] == choice.means.max():
            return "greedy"
        return choice.reason if action == choice.action else "exploration"

    def seen(self, context: Context, labels: Labels, actions: Actions) -> None:  # noqa: B027 - most take no note
        """Take note of a round that was decided, before its reward is known."""

    @abstractmethod
    def learn(
        self,
        context: Context,
        labels: Labels,
        actions: Actions,
        action: int,
        reward: float,
    ) -> None:
        """Learn the reward of an action, given by its index; a round that was seen before can be learned."""

    def forget(self, text: str) -> None:  # noqa: B027 - most have no names from requests
        """Keep no feature name with this value, such as the address of a person."""

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
    def input_columns(self) -> dict[str, str]:
        """Names of the columns it needs, and what each holds; none if it takes what comes."""
        return {}

    def differences(self, other: Learner) -> list[str]:
        """Describe in words how the requests that another learner takes differ from those of this one."""
        differences: list[str] = []
        for what in ("kind", "link"):
            active, given = getattr(self, what), getattr(other, what)
            if active != given:
                differences.append(f"{what}: {active} is active, {given} was given")
        differences += _differences("column", self.input_columns, other.input_columns)
        differences += _differences("arm", _activity(self), _activity(other))
        return differences

    # -- description and storage --

    @property
    def link(self) -> str:
        """Between coefficients and expected rewards: identity, or logit for rewards from 0 to 1."""
        return str(getattr(unwrapped(self.policy_over()), "link", "identity"))

    @property
    def reward_scale(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the rewards that it was fitted to, if it was."""
        return None

    @property
    def rounds(self) -> int:
        """Rounds learned online."""
        return int(self.policy_over().rounds)

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


def _activity(learner: Learner) -> dict[str, str]:
    """Return, for every arm of a learner, whether it is active or retired."""
    activity: dict[str, str] = {}
    for label, is_active in learner.arms.items():
        activity[label] = "active" if is_active else "retired"
    return activity


def _differences(
    what: str, active: Mapping[str, str], given: Mapping[str, str]
) -> list[str]:
    """Describe what is missing, new or changed in `given`; `what` names the items."""
    differences: list[str] = []
    for name in active:
        if name not in given:
            differences.append(f"{what} {name!r} is missing")
    for name in given:
        if name not in active:
            differences.append(f"{what} {name!r} is new")
    for name, was in active.items():
        if given.get(name, was) != was:
            differences.append(f"{what} {name!r} is {given[name]}, was {was}")
    return differences


def learner_from_bytes(kind: str, content: bytes, name: str) -> Learner:
    """A learner from its stored state."""
    if kind not in Learner.kinds:
        known = ", ".join(sorted(Learner.kinds))
        raise FileError(f"{name} holds a learner of kind {kind!r}; known are {known}")
    return Learner.kinds[kind].from_bytes(content, name)


def checked_labels(labels: Labels) -> tuple[str, ...]:
    """Labels of offered arms, or InputError for one that is empty or given twice."""
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise InputError(f"arms: {twice!r} is offered twice")
    if not all(labels):
        raise InputError("arms: a label is empty")
    return tuple(labels)


def describe_belief(policy: Any, names: Sequence[str]) -> dict[str, Any]:
    """Beliefs, drift and alarm of a policy that has them, as plain values; else nothing."""
    belief = policy.explain(names)
    return belief.to_dict() if isinstance(belief, Belief) else {}


def logged_reward(counts: Array, means: Array) -> dict[str, Any]:
    """What the logs' policy earned per round, and an interval at 95 % from how its windows differ.

    Parameters
    ----------
    counts, means : array, shape (m,)
        Rounds and mean reward per window.
    """
    windows = mean_over_clusters(counts, counts * means)
    mean = windows["mean"]
    interval = None
    if windows["error"] is not None:
        half = float(stdtrit(windows["buckets"] - 1, 0.975)) * windows["error"]
        interval = [mean - half, mean + half]
    return {"logged_reward": mean, "logged_reward_interval": interval}


# -- models that were fitted --


class FittedLearner(Learner, kind="model"):
    """Decides by the policy of a Model.

    A policy that does not randomise is made to, with the floor that is asked for.

    Parameters
    ----------
    model : Model
        Becomes the learner's own; decisions that waited in it for their rewards are left behind.
    seed : int
        Of the random draws.

    Attributes
    ----------
    plain : RowFeatures or None
        Reads rows of numbers at once, where all columns are such.
    """

    def __init__(self, model: Model, seed: int = 0) -> None:
        model.ledger = Ledger()
        self.model = model
        self.seed = seed
        self.baseline = model.baseline
        self.takes = "rows" if model.arms is None else "labels"
        features = model.feature_map
        self.plain = (
            features
            if isinstance(features, RowFeatures) and features.is_plain
            else None
        )

    def round_of(self, context: Context, labels: Labels, actions: Actions) -> Round:
        """Labels and features of a round; InputError names what is wrong."""
        if actions and not context and not labels:
            features = self._plain_features(actions)
            if features is not None:
                return Round((), features)
        self._check_numbers("context", context or {})
        offered: list[Any] | None = None
        if self.model.arms is None:
            if labels:
                raise InputError(
                    "arms: this model takes feature rows, one per offered action, not labels"
                )
            if actions is not None:
                offered = [self._row(index, row) for index, row in enumerate(actions)]
        else:
            if actions is not None:
                raise InputError(
                    "arms: this model knows its arms by label; rows of features cannot be offered"
                )
            if labels:
                offered = list(labels)
        names, features = self.model.round_of(context, offered)
        return Round(names, features)

    def _plain_features(self, rows: Sequence[Any]) -> Array | None:
        """Return the features (K, p) of rows of numbers; None if they are not such, or columns are not."""
        if self.plain is None or type(rows[0]) is not list:
            return None
        with suppress(ValueError):  # rows of several lengths
            numbers = np.array(rows)
            width = len(self.plain.columns)
            if numbers.dtype.kind in "fi" and numbers.shape[1:] == (width,):
                return self.plain.apply_numbers(numbers.astype(np.float64, copy=False))
        return None

    def _row(self, index: int, offered: Any) -> Mapping[str, Any]:
        """One offered row by the names of its columns; a list has them in their order."""
        names = [column.name for column in self.model.feature_map.columns]
        if isinstance(offered, list | tuple) and len(offered) == len(names):
            offered = dict(zip(names, offered, strict=True))
        if not isinstance(offered, Mapping):
            size = type(offered).__name__
            if isinstance(offered, list):
                size = f"{len(offered)} values"
            needed = f"must be {len(names)} values, or a mapping of columns"
            raise InputError(f"arms[{index}]: {needed}, got {size}")
        self._check_numbers(f"arms[{index}]", offered)
        return offered

    def _check_numbers(self, where: str, values: Mapping[str, Any]) -> None:
        """Raise if a column of numbers has something else; texts that look like numbers are not such."""
        for column in self.model.feature_map.columns:
            value = values.get(column.name)
            if value is None or column.categories is not None:
                continue
            is_vector = column.width is not None and isinstance(value, list)
            for number in value if is_vector else [value]:
                if not isinstance(number, int | float) or isinstance(number, bool):
                    raise InputError(
                        f"{where}.{column.name}: must be a number, got {number!r}"
                    )

    def policy_over(self, size: int = 0) -> BasePolicy:
        """Return the model's policy."""
        return self.model.policy

    def _count_numbers(self, context: Context, actions: Actions) -> float:
        return len(self.model.feature_map.columns)

    def learn(
        self,
        context: Context,
        labels: Labels,
        actions: Actions,
        action: int,
        reward: float,
    ) -> None:
        """Learn the reward of an action, given by its index. Retired arms are learned from as well."""
        if self.model.arms is None:
            features = self.round_of(context, labels, actions).features
        else:
            features = self.model.features(
                {**(context or {}), str(self.model.schema.arm): list(labels)}
            )
        gain = self.model.schema.learned_reward(reward) - self.model.baseline
        self.model.policy.update(
            features[action], gain, offered=features, action=action
        )

    @property
    def arms(self) -> dict[str, bool]:
        """Known arms, and whether they are active."""
        if self.model.arms is None:
            return {}
        return {arm.label: arm.active for arm in self.model.arms.arms}

    @property
    def reward_scale(self) -> tuple[float, float]:
        """Mean and standard deviation of the rewards that it was fitted to."""
        moments = self.model.moments
        mean = float(moments.counts @ moments.reward_mean / moments.rounds)
        between = float(moments.counts @ (moments.reward_mean - mean) ** 2)
        return mean, math.sqrt(
            (float(moments.reward_square.sum()) + between) / moments.rounds
        )

    @property
    def input_columns(self) -> dict[str, str]:
        """Names of the columns it needs, and what each holds."""
        return {
            column.name: _content_of(column)
            for column in self.model.feature_map.columns
        }

    def add_arm(self, label: str, features: Mapping[str, Any] | None) -> None:
        """Make a new arm known."""
        self.model.add_arm(label, features)

    def retire_arm(self, label: str) -> None:
        """Never choose an arm again."""
        self.model.retire_arm(label)

    def about(self) -> dict[str, Any]:
        """What it is and believes, plain values."""
        model = self.model
        return {
            "policy": model.policy_name,
            "identity": model.identity,
            "features": list(model.names),
            "columns": [column.name for column in model.feature_map.columns],
            "logged_rounds": int(model.moments.rounds),
            "logged_windows": int(model.moments.windows),
            **logged_reward(model.moments.counts, model.moments.reward_mean),
            "value": None if model.value is None else dict(model.value),
            **describe_belief(model.policy, list(model.names)),
        }

    def to_bytes(self) -> bytes:
        """The whole state."""
        return self.seed.to_bytes(8, "little") + self.model.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> Self:
        """The learner with this state."""
        return cls(
            Model.from_bytes(content[8:], name), int.from_bytes(content[:8], "little")
        )


def _content_of(column: Column) -> str:
    """What a column holds, in a word."""
    if column.categories is not None:
        return "categories"
    return "numbers" if column.width is None else f"{column.width} numbers"


# -- models that began empty --

MOST_NUMBERS = 2_000
"""So many named numbers may one action have, crossings included."""
CONSTANT = "1"


def named_numbers(values: Any, what: str) -> dict[str, float]:
    """Return the numbers of nested JSON by dotted name.

    A text, true or false counts as an indicator name=value; null counts as nothing.

    Lists are read as if their parts stood side by side: numbers get their index as a name. Numbers beyond ±1
    are compressed, sign(x)·(1 + log|x|), so that no unit drowns the others.

    >>> named_numbers([{"user": {"age": 1.0, "city": "Bern"}}, {"tags": ["new", "dry"]}], "context")
    {'user.age': 1.0, 'user.city=Bern': 1.0, 'tags=new': 1.0, 'tags=dry': 1.0}
    """
    numbers: dict[str, float] = {}
    for name, leaf in leaves(values, what):
        text = leaf if isinstance(leaf, str) else str(leaf).lower()
        is_word = isinstance(leaf, bool | str)
        feature = f"{name}={text}" if is_word else name or CONSTANT
        numbers[feature] = numbers.get(feature, 0.0) + (
            1.0 if is_word else _compressed(leaf)
        )
    if len(numbers) > MOST_NUMBERS:
        raise InputError(
            f"{what}: at most {MOST_NUMBERS} features can be taken, got {len(numbers)}"
        )
    return numbers


def leaves(value: Any, what: str, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield numbers, texts and truth values of nested JSON with their dotted names; null is left out.

    >>> dict(leaves({"user": {"age": 31, "new": True}, "tags": ["a"], "at": [1.5, None]}, "context"))
    {'user.age': 31, 'user.new': True, 'tags=a': 1.0, 'at[0]': 1.5}
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, what, f"{name}.{key}" if name else str(key))
    elif isinstance(value, str | int | float):
        yield name, value
    elif isinstance(value, Sequence):
        for index, part in enumerate(value):
            if isinstance(part, str):
                yield f"{name}={part}", 1.0
            else:
                numbered = isinstance(part, int | float) and not isinstance(part, bool)
                yield from leaves(part, what, f"{name}[{index}]" if numbered else name)
    elif value is not None:
        raise InputError(f"{what}: {name!r} must be JSON, got {type(value).__name__}")


def _count_leaves(value: Any) -> int:
    """How many values nested JSON holds."""
    if isinstance(value, Mapping):
        return sum(map(_count_leaves, value.values()))
    return sum(map(_count_leaves, value)) if isinstance(value, list | tuple) else 1


def _compressed(number: float) -> float:
    return (
        float(number)
        if abs(number) <= 1.0
        else math.copysign(1.0 + math.log(abs(number)), number)
    )


def action_numbers(
    context: Mapping[str, float], label: str | None, own: Mapping[str, float]
) -> dict[str, float]:
    """Named numbers of one action: a constant, what it is, and that crossed with the context.

    An action with features is what these say; one without is its label.

    >>> action_numbers({"hour": 0.5}, "a", {})
    {'1': 1.0, 'a:a': 1.0, 'a:a|hour': 0.5}
    """
    base = (
        {f"f:{name}": value for name, value in own.items()}
        if own
        else {f"a:{label}": 1.0}
    )
    numbers = {CONSTANT: 1.0, **base}
    if len(base) * (1 + len(context)) > MOST_NUMBERS:
        crossed = f"{len(context)} features crossed with {len(base)} of an action"
        raise InputError(f"context: {crossed} are more than {MOST_NUMBERS}")
    for name, value in base.items():
        for other, factor in context.items():
            numbers[f"{name}|{other}"] = value * factor
    return numbers


LIMIT = 256
"""So many features get positions of their own; learning costs the square of it in time and memory."""
SHARED = 32
"""Positions of all further features, by a hash of their names."""
SMALLEST = 16
"""Positions at the beginning; they double as they are needed."""
START: Mapping[str, Any] = {"ridge": 1.0, "noise_scale": 0.5, "exploration": 0.1}
"""Of the LinUCB that an empty model begins as: rewards are taken to be of the order of 1."""
MOST_ARM_POSITIONS = 128
"""Positions up to which arms that come later are added to a policy that was fitted."""
MOST_PATTERNS = 256
"""Rounds of the same names whose positions are remembered, to encode the next one faster."""
KIND = "open model"

NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e]*$"
"""Texts without control characters, line ends and changes of direction."""
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern=NO_CONTROLS)]


class OpenSettings(msgspec.Struct, forbid_unknown_fields=True):
    """What an open model is besides its policy, see `OpenLearner`; positions are names in order."""

    arms: dict[Label, bool]
    seed: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_WHOLE)]
    positions: list[str] = msgspec.field(name="places")

    def __post_init__(self) -> None:
        if len(set(self.positions)) != len(self.positions):
            raise ValueError("places must differ from each other")


def _schema(about: Mapping[str, Any], names: Sequence[str]) -> StateSchema:
    """Return what a file of an open model must hold; `from_bytes` reads its settings."""
    return StateSchema({"policy": ArraySpec(("n",), "uint8", 0.0, 255.0)})


class OpenLearner(Learner, kind="open"):
    """Named features found on the way, and a policy over their positions.

    Parameters
    ----------
    arms : mapping of str to bool
        Registered arms, and whether they are active; without any, every decision must say what is offered.
    seed : int
        Of the random draws.
    positions : sequence of str
        Names of the features that have positions, in the order of these.
    policy : Policy or None
        Over these positions.
    """

    def __init__(
        self,
        arms: Mapping[str, bool] | None = None,
        *,
        seed: int = 0,
        positions: Sequence[str] = (),
        policy: BasePolicy | None = None,
    ) -> None:
        settings = {"arms": arms or {}, "seed": seed, "places": positions}
        try:
            checked = msgspec.convert(settings, OpenSettings)
        except msgspec.ValidationError as error:
            raise InputError(f"settings of the model: {error}") from None
        self._arms = dict(checked.arms)
        self.seed = checked.seed
        self.positions = {name: index for index, name in enumerate(checked.positions)}
        self.policy: BasePolicy = (
            LinUCB(SMALLEST, **START) if policy is None else policy
        )
        self._check_policy()
        self._patterns: dict[Any, Array] = {}
        """Where the numbers of a round go, by its labels and the names in its context.

        Rows, positions, and which number it is."""

    def _check_policy(self) -> None:
        """Raise unless the policy has the positions that the names need, and can go on with them."""
        policy = self.policy
        taken = len(self.positions)
        fits = type(policy) is AutoISD and policy.dim == taken
        if type(policy) is LinUCB and isinstance(policy.memory, Forever):
            fits = taken <= LIMIT and policy.dim <= LIMIT + SHARED
        if not fits:
            kind = f"{type(policy).__name__} over {policy.dim} for {taken} names, limit {LIMIT}"
            raise InputError(
                f"policy must be a LinUCB or an AutoISD over these positions, got {kind}"
            )

    # -- deciding --

    def round_of(self, context: Context, labels: Labels, actions: Actions) -> Round:
        """Labels and features of a round; new names take the next free positions, without being kept."""
        names = self._offered(labels, actions, self._arms)
        return Round(names, self._encode(context, names, actions, keep=False))

    def _offered(
        self, labels: Labels, actions: Actions, arms: Mapping[str, bool]
    ) -> tuple[str, ...]:
        """Return the labels of a round; InputError unless all are active, where arms are registered."""
        if not labels and actions is None:
            active = tuple(label for label, is_active in arms.items() if is_active)
            if not active:
                raise InputError(
                    "arms: none are registered, so a decision must say what is offered"
                )
            return active
        names = checked_labels(labels)
        for label in names if arms else ():
            if not arms.get(label, False):
                raise InputError(
                    f"arms: {label!r} is {'retired' if label in arms else 'not known'}"
                )
        return names

    def _count_numbers(self, context: Context, actions: Actions) -> float:
        own = 1.0 if not actions else _count_leaves(actions) / len(actions)
        return (1 + _count_leaves(context)) * max(own, 1.0)

    def _encode(
        self, context: Context, names: tuple[str, ...], actions: Actions, *, keep: bool
    ) -> Array:
        """Return the features (K, p) of a round; `keep` the positions that new names take.

        Positions are never given up: rounds of the same labels and the same names in the context
        have the same pattern as soon as their positions are kept.
        """
        shared = named_numbers(context, "context")
        key = (names, *shared) if actions is None else None
        if key in self._patterns:
            features = np.zeros((len(names), self._room(len(self.positions))))
            rows, columns, numbered = self._patterns[key]
            # the constant and the label count 1, label × context what the context says
            values = np.array([1.0, 1.0, *shared.values()])
            np.add.at(features, (rows, columns), values[numbered])
            return features
        numbers = self._numbers(shared, names, actions)
        positions = self.positions if keep else dict(self.positions)
        self._add_positions(numbers, names, positions)
        features = np.zeros((len(numbers), self._room(len(positions))))
        cells = []
        for row, of_action in enumerate(numbers):
            for number, (name, value) in enumerate(of_action.items()):
                index = self._position_of(name, positions)
                if index is not None:
                    features[row, index] += value
                    cells.append((row, index, number))
        if keep and key is not None:
            if len(self._patterns) >= MOST_PATTERNS:
                self._patterns.clear()
            self._patterns[key] = np.array(cells, dtype=np.intp).reshape(-1, 3).T
        return features

    def _add_positions(
        self,
        numbers: Sequence[Mapping[str, float]],
        names: tuple[str, ...],
        positions: dict[str, int],
    ) -> None:
        """Give the new names and the new arms of a round positions, as long as there are any."""
        if self.grows:
            for of_action in numbers:
                for name in of_action:
                    if name not in positions and len(positions) < LIMIT:
                        positions[name] = len(positions)
        if self._takes_arms:
            for label in names:
                self._position_arm(label, positions)

    def _position_of(self, name: str, positions: Mapping[str, int]) -> int | None:
        """Return the position of a name; None if the policy leaves it out."""
        if name in positions:
            return positions[name]
        if not self.grows:
            return None
        # names beyond the limit share positions by their hash
        return LIMIT + crc32(name.encode()) % SHARED

    def _numbers(
        self, shared: Mapping[str, float], names: tuple[str, ...], actions: Actions
    ) -> list[dict[str, float]]:
        """Return the named numbers of each offered action."""
        if actions is None:
            return [action_numbers(shared, name, {}) for name in names]
        own = [named_numbers(action, "arms") for action in actions]
        if not names and not all(own):
            raise InputError("arms: an action has neither a label nor features")
        labels: Sequence[str | None] = names or [None] * len(own)
        return [
            action_numbers(shared, label, numbers)
            for label, numbers in zip(labels, own, strict=True)
        ]

    @property
    def _takes_arms(self) -> bool:
        """Whether arms that come later start from a prior over arms."""
        return (
            isinstance(self.policy, AutoISD)
            and self.policy.prior.population is not None
        )

    def _position_arm(self, label: str, positions: dict[str, int]) -> None:
        """Give a new arm the positions that every arm has, after the others, as long as there is room."""
        first, *others = list(self.positions)[: self.policy.prior.layout.own]  # type: ignore[attr-defined]
        if (
            f"a:{label}" not in positions
            and len(positions) + 1 + len(others) <= MOST_ARM_POSITIONS
        ):
            for name in (first, *others):
                positions[f"a:{label}{name.removeprefix(first)}"] = len(positions)

    @property
    def grows(self) -> bool:
        """Whether new names get positions; a policy that was fitted to some leaves others out."""
        return isinstance(self.policy, LinUCB)

    def _room(self, taken: int) -> int:
        """How many positions are kept for so many names: doubled as needed."""
        if not self.grows:
            return max(self.policy.dim, taken)
        room = SMALLEST
        while room < taken:
            room *= 2
        return max(self.policy.dim, room if room < LIMIT else LIMIT + SHARED)

    def policy_over(self, size: int = 0) -> BasePolicy:
        """Return the policy over at least so many features; it knows nothing yet of new ones."""
        old = self.policy.dim
        policy = self.policy
        while isinstance(policy, AutoISD) and policy.dim < size:
            policy = policy.with_arm()
        if size <= old or not isinstance(self.policy, LinUCB):
            return policy
        arrays = self.policy.arrays()
        factor = arrays["memory.factor"]
        wider = np.zeros((size, size + 1))
        wider[:old, :old] = factor[:, :-1]
        wider[:old, -1] = factor[:, -1]
        new = range(old, size)
        wider[new, new] = np.sqrt(self.policy.ridge)
        settings = {**self.policy.settings(), "dim": size}
        return LinUCB.from_state(settings, {**arrays, "memory.factor": wider})

    def with_policy(
        self, policy: BasePolicy | None = None, positions: Sequence[str] = ()
    ) -> OpenLearner:
        """Return a learner of the same arms with another policy, a new one if it is None."""
        return OpenLearner(
            self._arms, seed=self.seed, positions=positions, policy=policy
        )

    # -- learning --

    def seen(self, context: Context, labels: Labels, actions: Actions) -> None:
        """Keep the positions of names that a decided round brought."""
        if actions is None:
            key = (tuple(labels), *named_numbers(context, "context"))
            if key in self._patterns:
                return
        self._encode_past(context, labels, actions)

    def _encode_past(self, context: Context, labels: Labels, actions: Actions) -> Array:
        """Return the features of a round of the past, whose arms may be retired; its names have positions."""
        features = self._encode(
            context, self._offered(labels, actions, {}), actions, keep=True
        )
        self.policy = self.policy_over(features.shape[1])
        return features

    def learn(
        self,
        context: Context,
        labels: Labels,
        actions: Actions,
        action: int,
        reward: float,
    ) -> None:
        """Learn the reward of an action, given by its index."""
        features = self._encode_past(context, labels, actions)
        self.policy.update(features[action], reward, offered=features, action=action)

    def forget(self, text: str) -> None:
        """Give positions of names with this value other names; what was learned at them stays."""
        names = {}
        for name, index in self.positions.items():
            is_meant = name.endswith(f"={text}") or f"={text}|" in name
            names[f"(erased {index})" if is_meant else name] = index
        self.positions = names
        self._patterns.clear()

    # -- arms --

    @property
    def arms(self) -> dict[str, bool]:
        """Registered arms, and whether they are active."""
        return dict(self._arms)

    def add_arm(self, label: str, features: Mapping[str, Any] | None) -> None:
        """Register an arm."""
        if label in self._arms:
            raise InputError(
                f"label {label!r} is there already, or was: labels are never used again"
            )
        if features is not None:
            raise InputError(
                "features: arms of a model that began empty have none; send them as actions"
            )
        self._arms[label] = True

    def retire_arm(self, label: str) -> None:
        """Never choose an arm again."""
        if not self._arms.get(label, False):
            raise InputError(f"label: {label!r} is not an active arm")
        self._arms[label] = False

    # -- description and storage --

    def about(self) -> dict[str, Any]:
        """What it is and believes, plain values."""
        names = [
            *self.positions,
            *(f"free {j}" for j in range(len(self.positions), self.policy.dim)),
        ]
        return {
            "policy": "linucb" if self.grows else "auto-isd",
            "features": list(self.positions),
            "feature_limit": LIMIT,
            **describe_belief(self.policy, names),
        }

    def to_bytes(self) -> bytes:
        """The whole state."""
        settings = OpenSettings(self._arms, self.seed, list(self.positions))
        policy = np.frombuffer(policy_base.to_bytes(self.policy), dtype=np.uint8)
        return storage.encode(
            KIND, {"policy": policy}, {"said": msgspec.json.encode(settings).decode()}
        )

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> Self:
        """The learner with this state."""
        arrays, about = storage.decode(content, KIND, name, _schema)
        try:
            settings = msgspec.structs.asdict(
                msgspec.json.decode(about["said"], type=OpenSettings)
            )
            return cls(
                **settings,
                policy=policy_base.from_bytes(arrays["policy"].tobytes(), name),
            )
        except FileError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise storage.not_whole(name, KIND, error) from None
