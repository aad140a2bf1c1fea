"""A model that begins empty: features get their names as they come, up to a limit, and share places
beyond it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits import storage
from invariant_bandits.checks import LARGEST_WHOLE, InputError, whole_number
from invariant_bandits.policies import state
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.linear import Common, LinUCB
from invariant_bandits.policies.memory import Forever
from invariant_bandits.policies.randomised import Randomised
from invariant_bandits.service.learners.base import (
    Actions,
    Context,
    Learner,
    Round,
    checked_labels,
    describe_belief,
)
from invariant_bandits.storage import ArraySpec, Check, FileError, StateSchema, truth_value

DEEPEST = 16
MOST_NUMBERS = 2_000
"""So many named numbers may one action have, crossings included."""
CONSTANT = "1"


def named_numbers(given: Any, what: str) -> dict[str, float]:
    """Numbers by dotted name of nested JSON; a text, true or false counts as an indicator name=value, null as
    nothing.

    Lists are read as if their parts stood side by side: numbers get their place as a name. Numbers beyond ±1
    are compressed, sign(x)·(1 + log|x|), so that no unit drowns the others.

    >>> named_numbers([{"user": {"age": 1.0, "city": "Bern"}}, {"tags": ["new", "dry"]}], "context")
    {'user.age': 1.0, 'user.city=Bern': 1.0, 'tags=new': 1.0, 'tags=dry': 1.0}
    """
    numbers: dict[str, float] = {}
    for name, value in _leaves(given, "", what, 0):
        numbers[name] = numbers.get(name, 0.0) + value
    if len(numbers) > MOST_NUMBERS:
        raise InputError(f"{what}: at most {MOST_NUMBERS} features can be taken, got {len(numbers)}")
    return numbers


def _leaves(given: Any, name: str, what: str, depth: int) -> Iterator[tuple[str, float]]:
    if depth > DEEPEST:
        raise InputError(f"{what}: nested deeper than {DEEPEST} levels at {name!r}")
    if given is None:
        return
    if isinstance(given, Mapping):
        for key, value in given.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key), what, depth + 1)
    elif isinstance(given, bool | str):
        text = given if isinstance(given, str) else str(given).lower()
        yield f"{name}={text}", 1.0
    elif isinstance(given, int | float):
        yield name or CONSTANT, _compressed(given, name, what)
    elif isinstance(given, Sequence):
        for place, value in enumerate(given):
            numbered = isinstance(value, int | float) and not isinstance(value, bool)
            yield from _leaves(value, f"{name}[{place}]" if numbered else name, what, depth + 1)
    else:
        raise InputError(f"{what}: {name!r} must be JSON, got {type(given).__name__}")


def _compressed(value: float, name: str, what: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{what}: {name!r} must be a finite number, got {value!r}")
    return number if abs(number) <= 1.0 else math.copysign(1.0 + math.log(abs(number)), number)


def action_numbers(
    context: Mapping[str, float], label: str | None, own: Mapping[str, float]
) -> dict[str, float]:
    """Named numbers of one action: a constant, what it is, and that crossed with the context.

    An action with features is what these say; one without is its label.

    >>> action_numbers({"hour": 0.5}, "a", {})
    {'1': 1.0, 'a:a': 1.0, 'a:a|hour': 0.5}
    """
    base = {f"f:{name}": value for name, value in own.items()} if own else {f"a:{label}": 1.0}
    numbers = {CONSTANT: 1.0, **base}
    if len(base) * (1 + len(context)) > MOST_NUMBERS:
        raise InputError(
            f"context: {len(context)} features crossed with {len(base)} of an action are more than "
            f"{MOST_NUMBERS}"
        )
    for name, value in base.items():
        for other, factor in context.items():
            numbers[f"{name}|{other}"] = value * factor
    return numbers


LIMIT = 256
"""So many features get places of their own."""
SHARED = 32
"""So many places are shared by all further ones, by their hash."""
SMALLEST = 16
"""Places at the beginning; they double as they are needed."""
START: Common = {"ridge": 1.0, "noise_scale": 0.5, "exploration": 0.1}
"""Of the LinUCB that an empty model begins as: rewards are taken to be of the order of 1."""
MOST_PLACES = 1024
"""Largest limit: learning costs its square in time and memory."""
LONGEST_LABEL = 256
KIND = "open model"


def _label(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_LABEL:
        raise InputError(f"{name} must be a text of 1 to {LONGEST_LABEL} characters, got {value!r:.80}")
    return value


def _arms(name: str, value: Any) -> dict[str, bool]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be labels and whether they are active, got {type(value).__name__}")
    return {
        _label(name, label): truth_value(f"{name}[{label!r:.80}]", active) for label, active in value.items()
    }


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InputError(f"{name} must be a list of texts, got {value!r:.80}")
    if len(set(value)) != len(value):
        raise InputError(f"{name} must differ from each other, got {value!r:.80}")
    return tuple(value)


def _columns(name: str, value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(_label(name, one) for one in _names(name, value))


SETTINGS: dict[str, Check] = {
    "arms": _arms,
    "columns": _columns,
    "limit": lambda name, value: whole_number(name, value, 1, MOST_PLACES),
    "seed": lambda name, value: whole_number(name, value, 0, LARGEST_WHOLE),
    "places": _names,
}
"""Every setting of a stored open model."""


def _schema(about: Mapping[str, Any], names: Sequence[str]) -> StateSchema:
    """What a file of an open model must hold."""
    settings = json.loads(about["said"])
    if set(about) != {"said"} or not isinstance(settings, dict) or set(settings) != set(SETTINGS):
        raise InputError(
            f"settings must be {', '.join(SETTINGS)}, got {', '.join(map(str, settings))!r:.200}"
        )
    StateSchema(settings=SETTINGS).check_settings(settings)
    return StateSchema({"policy": ArraySpec(("n",), "uint8", 0.0, 255.0)})


class OpenLearner(Learner, kind="open"):
    """Named features found on the way, and a policy over their places.

    Parameters
    ----------
    arms : mapping of str to bool
        Registered arms, and whether they are active; without any, every decision must say what is offered.
    columns : sequence of str or None
        Names that a context must have, exactly; None takes all.
    limit : int
        How many features get places of their own.
    seed : int
        Of the random draws.
    """

    def __init__(
        self,
        arms: Mapping[str, bool] | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int = LIMIT,
        seed: int = 0,
        places: Mapping[str, int] | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._arms = _arms("arms", arms or {})
        self.columns = _columns("columns", columns)
        self.limit, self.seed = SETTINGS["limit"]("limit", limit), SETTINGS["seed"]("seed", seed)
        self.places = dict(places or {})
        self.policy: Policy = LinUCB(SMALLEST, **START) if policy is None else policy
        self._check_policy()
        self._wrapped: tuple[float, Any, Randomised] | None = None

    def _check_policy(self) -> None:
        """Raise unless the policy has the places that the names need, and is one that can go on with them."""
        policy, taken = self.policy, len(self.places)
        if self.grows:
            plain = type(policy) is LinUCB and isinstance(policy.memory, Forever)
            if plain and taken <= self.limit and policy.dim <= max(self.limit + SHARED, SMALLEST):
                return
        elif type(policy) is AutoISD and policy.dim == taken:
            return
        raise InputError(
            f"policy must be a LinUCB or an AutoISD over the places of the model, got {type(policy).__name__}"
            f" over {policy.dim} for {taken} names, limit {self.limit}"
        )

    # -- deciding --

    def round_of(self, context: Context, labels: Sequence[str], actions: Actions) -> Round:
        """Labels and features of a round; new names take the next free places, without being kept."""
        names, numbers = self._numbers(context, labels, actions)
        places = dict(self.places)
        for one in numbers:
            self._take_places(places, one)
        return Round(names, self._matrix(numbers, places))

    def _numbers(
        self, context: Context, labels: Sequence[str], actions: Actions
    ) -> tuple[tuple[str, ...], list[dict[str, float]]]:
        """Labels, and named numbers per offered action."""
        names = self._offered(labels, actions)
        if self.columns is not None:
            self._check_columns(context)
        shared = named_numbers(context, "context")
        own = [{}] * len(names) if actions is None else [named_numbers(one, "arms") for one in actions]
        if not names:
            if not all(own):
                raise InputError("arms: an action has neither a label nor features")
            return (), [action_numbers(shared, None, one) for one in own]
        if len(own) != len(names):
            raise InputError(f"arms: {len(names)} labels and {len(own)} rows of features do not fit")
        return names, [action_numbers(shared, name, one) for name, one in zip(names, own, strict=True)]

    def _offered(self, labels: Sequence[str], actions: Actions) -> tuple[str, ...]:
        if not labels and actions is None:
            active = tuple(label for label, is_active in self._arms.items() if is_active)
            if not active:
                raise InputError("arms: none are registered, so a decision must say what is offered")
            return active
        names = checked_labels(labels)
        if actions is not None and not actions:
            raise InputError("arms: at least one action must be offered, got none")
        for label in names if self._arms else ():
            if not self._arms.get(label, False):
                known = "is retired" if label in self._arms else "is not known"
                raise InputError(f"arms: {label!r} {known}")
        return names

    def _check_columns(self, context: Context) -> None:
        given = set(context or {})
        missing, foreign = set(self.columns or ()) - given, given - set(self.columns or ())
        if missing or foreign:
            name = sorted(missing or foreign)[0]
            raise InputError(f"context: {name!r} is {'missing' if missing else 'not a column of this model'}")

    @property
    def grows(self) -> bool:
        """Whether new names get places; a policy that was fitted to some leaves others out."""
        return isinstance(self.policy, LinUCB)

    def _take_places(self, places: dict[str, int], numbers: Mapping[str, float]) -> None:
        """Give every new name the next free place, as long as there are any."""
        for name in numbers if self.grows else ():
            if name not in places and len(places) < self.limit:
                places[name] = len(places)

    def _matrix(
        self, numbers: Sequence[Mapping[str, float]], places: Mapping[str, int]
    ) -> np.ndarray[Any, Any]:
        """Features (K, p), p the room that these places need."""
        features = np.zeros((len(numbers), self._room(len(places))))
        for row, one in enumerate(numbers):
            for name, value in one.items():
                place = places.get(name)
                if place is None and not self.grows:
                    continue
                if place is None:
                    code = zlib.crc32(name.encode())
                    place, value = self.limit + (code >> 1) % SHARED, value if code & 1 else -value
                features[row, place] += value
        return features

    def _room(self, taken: int) -> int:
        """How many places are kept for so many names: doubled as needed, in the end with the shared ones."""
        if not self.grows:
            return self.policy.dim
        room = SMALLEST
        while room < taken:
            room *= 2
        return max(self.policy.dim, room if room < self.limit else self.limit + SHARED)

    def policy_for(self, round: Round, floor: float) -> Randomised:
        """The policy over the places of the round, randomised."""
        policy = self._grown(round.features.shape[1])
        if self._wrapped is None or self._wrapped[0] != floor or self._wrapped[1] is not policy:
            wrapped = Randomised(policy, floor, seed=self.seed)
            if policy is not self.policy:
                return wrapped
            self._wrapped = (floor, policy, wrapped)
        return self._wrapped[2]

    def _grown(self, room: int) -> Policy:
        """The policy with places for more features, of which it knows nothing yet."""
        more = room - self.policy.dim
        if more <= 0 or not isinstance(self.policy, LinUCB):
            return self.policy
        arrays = self.policy.arrays()
        factor = arrays["memory.factor"]
        old = self.policy.dim
        wider = np.zeros((room, room + 1))
        wider[:old, :old], wider[:old, -1] = factor[:, :-1], factor[:, -1]
        wider[range(old, room), range(old, room)] = np.sqrt(self.policy.ridge)
        return LinUCB.from_state({**self.policy.settings(), "dim": room}, {**arrays, "memory.factor": wider})

    def means(self, round: Round) -> list[float]:
        """Expected rewards (K,)."""
        means: list[float] = self._grown(round.features.shape[1]).scores(round.features).mean.tolist()
        return means

    # -- learning --

    def seen(self, context: Context, labels: Sequence[str], actions: Actions) -> None:
        """Keep the places of names that a decided round brought."""
        _, numbers = self._numbers_again(context, labels, actions)
        for one in numbers:
            self._take_places(self.places, one)
        self.policy = self._grown(self._room(len(self.places)))

    def _numbers_again(
        self, context: Context, labels: Sequence[str], actions: Actions
    ) -> tuple[tuple[str, ...], list[dict[str, float]]]:
        """The same for a round of the past, whose arms may be retired by now."""
        arms, columns = self._arms, self.columns
        self._arms, self.columns = {}, None
        try:
            return self._numbers(context, labels, actions)
        finally:
            self._arms, self.columns = arms, columns

    def learn(
        self, context: Context, labels: Sequence[str], actions: Actions, place: int, reward: float
    ) -> None:
        """Learn the reward of the action at `place`."""
        self.seen(context, labels, actions)
        _, numbers = self._numbers_again(context, labels, actions)
        features = self._matrix(numbers, self.places)
        self.policy.update(features[place], reward, offered=features, action=place)

    # -- arms --

    @property
    def arms(self) -> dict[str, bool]:
        """Registered arms, and whether they are active."""
        return dict(self._arms)

    @property
    def input_columns(self) -> dict[str, str] | None:
        """Names that a context must have, if it must."""
        return None if self.columns is None else dict.fromkeys(self.columns, "any")

    def add_arm(self, label: str, features: Mapping[str, Any] | None) -> None:
        """Register an arm."""
        if _label("label", label) in self._arms:
            raise InputError(f"label {label!r} is there already, or was: labels are never used again")
        if features is not None:
            raise InputError(
                "features: arms of a model that began empty have none of their own; send them as actions"
            )
        self._arms[label] = True

    def retire_arm(self, label: str) -> None:
        """Never choose an arm again."""
        if not self._arms.get(label, False):
            raise InputError(f"label: {label!r} is not an active arm")
        self._arms[label] = False

    # -- telling and storing --

    @property
    def rounds(self) -> int:
        """Rounds learned online."""
        return self.policy.rounds

    def about(self) -> dict[str, Any]:
        """What it is and believes, plain values."""
        names = [*self.places, *(f"free {j}" for j in range(len(self.places), self.policy.dim))]
        return {
            "policy": "linucb" if self.grows else "auto-isd",
            "features": list(self.places),
            "feature_limit": self.limit,
            "hashed": self.grows and len(self.places) >= self.limit,
            "columns": None if self.columns is None else list(self.columns),
            **describe_belief(self.policy, names),
        }

    def to_bytes(self) -> bytes:
        """The whole state."""
        about = {
            "arms": self._arms,
            "columns": None if self.columns is None else list(self.columns),
            "limit": self.limit,
            "seed": self.seed,
            "places": list(self.places),
        }
        policy = np.frombuffer(state.to_bytes(self.policy), dtype=np.uint8)
        return storage.encode(KIND, {"policy": policy}, {"said": json.dumps(about)})

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> Self:
        """The learner with this state."""
        arrays, header = storage.decode(content, KIND, name, _schema)
        settings = json.loads(header["said"])
        places = {one: place for place, one in enumerate(settings.pop("places"))}
        try:
            return cls(**settings, places=places, policy=state.from_bytes(arrays["policy"].tobytes(), name))
        except FileError:
            raise
        except InputError as error:
            raise FileError(f"{name} does not hold a whole model: {error}") from None
