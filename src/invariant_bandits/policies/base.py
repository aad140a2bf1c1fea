"""What every policy of the library has: options, views of `decide`, its state in a file, and random draws.

A file holds the whole state of a policy, checked, without pickle: what is loaded continues bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeAlias, cast

import numpy as np

from invariant_bandits import storage
from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    number_between,
    shaped_array,
    whole_number,
)
from invariant_bandits.policies import kernels
from invariant_bandits.policies.choice import Choice, one_hot
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import POLICIES, name_of
from invariant_bandits.storage import ANYTHING, StateSchema, ThreadSafe, lock_of

KIND = "policy"
ESTIMATES = ("prior", "recompute")
"""Settings of policies that hold an estimate rather than an option."""
Seed: TypeAlias = int | np.random.Generator
BATCH = 3
"""Stream of random numbers that draws the rounds of a batch."""
NUMBERS_AT_ONCE = 65_536
"""Projected features of a batch that stay in the processor's cache."""
LARGEST_SETTING = 1e100
"""Factors and scales of policies lie between its inverse and it, or are 0: radii stay finite."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Expected rewards of the offered actions and how uncertain they are.

    Attributes
    ----------
    mean : array, shape (K,)
        Expected reward of each of the K offered actions.
    width : array, shape (K,)
        Uncertainty of each expected reward, before multiplication by the policy's parameter `exploration`.
    propensities : array, shape (K,), or None
        Probability of choosing each action, or None if the policy does not know these probabilities exactly.

    >>> import numpy as np, invariant_bandits as ib
    >>> scores = ib.LinUCB(2, noise_scale=0.1).scores(np.eye(2))
    >>> isinstance(scores, ib.Scores), scores.mean.tolist(), scores.width.round(2).tolist()
    (True, [0.0, 0.0], [1.96, 1.96])
    """

    mean: Array
    width: Array
    propensities: Array | None = None


class Option(NamedTuple):
    """An option of a policy.

    Attributes
    ----------
    default : object
        Its value if none is given.
    check : callable
        Takes the name and a value, and returns the value as the policy uses it, or raises InputError.

    >>> import invariant_bandits as ib
    >>> class CarefulLinUCB(ib.LinUCB):
    ...     options = {**ib.LinUCB.options, "patience": ib.Option(100)}
    >>> CarefulLinUCB(2, patience=20).patience, CarefulLinUCB(2).patience
    (20, 100)
    """

    default: Any
    check: Callable[[str, Any], Any] = lambda _, value: value


class BasePolicy(ThreadSafe):
    """Base class of policies that decide, learn many rounds at once and can be saved.

    A class of your own has `decide` and `update`. It lists its `options`, from which the constructor makes
    attributes, and in `needs` what it takes from a Past. If it has a state, it stores that in `arrays` and
    reads it in `_restore`.

    Threads may use one policy at the same time: every method sees one state, and every round is learned
    whole. A class of your own that adds to the state holds `self._lock`, as `ThreadSafe` says, wherever it
    changes or reads that.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.LinUCB(2)
    >>> policy.update_many(np.eye(2), [1.0, 0.0])
    >>> policy.rounds
    2
    """

    options: ClassVar[Mapping[str, Option]] = {}
    """Keywords of the constructor, which become attributes and are stored."""
    starting: ClassVar[tuple[str, ...]] = ()
    """Names of further keywords of `from_past`, which are not stored as options."""
    needs: ClassVar[tuple[str, ...]] = ("dim",)
    """Parameters of the constructor that `from_past` takes from the attributes of a Past."""
    shown: ClassVar[tuple[str, ...]] = ("dim",)
    """Names of the attributes that `repr` shows in addition to `rounds`."""
    keeps_baseline: ClassVar[bool] = False
    """Whether the policy has an intercept of its own. Others learn rewards less a baseline."""
    alarm: Any = False
    """Whether the policy has noticed that what the logs taught no longer holds."""
    randomised: bool = False
    """Whether the policy draws its actions; otherwise its choice is certain."""
    dim: int
    rounds: Any
    seed: int
    _draws: Draws | None = None

    def __init__(self, dim: int, **options: Any) -> None:
        self.dim = whole_number("dim", dim, 1)
        self.rounds = 0
        self._take_options(options)

    def _take_options(self, given: Mapping[str, Any]) -> None:
        """Set every option as an attribute, checked, by its default if it is not given."""
        for name in given.keys() - self.options.keys():
            known = ", ".join(self.options) or "none"
            raise InputError(
                f"{type(self).__name__} has no option {name!r}; it has {known}"
            )
        for name, option in self.options.items():
            setattr(self, name, option.check(name, given.get(name, option.default)))
        if "seed" in self.options:
            self._draws = Draws(self.seed)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # A class with another `decide` must not inherit the shortcuts to the old one.
        if "decide" in vars(cls):
            for shortcut in ("select", "select_many", "scores"):
                if shortcut not in vars(cls):
                    setattr(cls, shortcut, vars(BasePolicy)[shortcut])

    @classmethod
    def from_past(cls, past: Past, **options: Any) -> Self:
        """Return a fresh policy for what is known before the first round.

        The options are those of the constructor. They precede what the policy takes from the past.
        """
        return cls(**{**cls.known_from(past), **options})

    @classmethod
    def known_from(cls, past: Past) -> dict[str, Any]:
        """Return what the constructor needs and the past knows, by name."""
        return {name: getattr(past, name) for name in cls.needs}

    # -- deciding --

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions with features (K, p), without changing the policy.

        Parameters
        ----------
        offered : array, shape (K, p)
            Features of the K offered actions.
        draw : float, optional
            Number from 0 to 1 that draws the action from the propensities. By default a policy that
            randomises draws with its own seed: the same action until it has learned another round.
        """
        raise NotImplementedError

    def select(self, features: Any) -> int:
        """Return the index of the action to play, given the features (K, p) of K actions."""
        return self.decide(features).action

    def propensities(self, features: Any) -> Array:
        """Return the probability (K,) of choosing each of K actions with features (K, p)."""
        if self.randomised:
            return self.decide(features).propensities
        return one_hot(self.select(features), len(features))

    def scores(self, features: Any) -> Scores:
        """Return the expected rewards and widths (K,) of K actions with features (K, p)."""
        choice = self.decide(features)
        propensities = choice.propensities if self.randomised else None
        return Scores(choice.means, choice.widths, propensities)

    def why(self, features: Any) -> str:
        """Return the reason of the choice: "greedy", "exploration" or "test"."""
        return self.decide(features).reason

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return the actions (N,) for N rounds with features (N, K, p), without learning in between.

        The first action is the one that `select` returns for the first round. A policy that randomises
        draws independently in each round.
        """
        rounds = batch_array(features, self.dim)
        with self._lock:
            actions = [self.select(rounds[0])]
            if self._draws is None:
                actions += [self.select(offered) for offered in rounds[1:]]
            else:
                draws = self._draws.at(self.rounds, BATCH).random(len(rounds)).tolist()
                actions += [
                    self.decide(offered, draw=draw).action
                    for offered, draw in zip(rounds[1:], draws[1:], strict=True)
                ]
        return np.array(actions, dtype=np.int64)

    def explain(self, feature_names: Any = None) -> Any:
        """Return what the policy believes has changed since the logs, or None if it has no such beliefs."""
        return None

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,).

        Some policies also need `offered`, the features (K, p) of all actions, or `action`, the index of the
        played one.
        """
        raise NotImplementedError

    def update_many(
        self, features: Any, rewards: Any, *, offered: Any = None, actions: Any = None
    ) -> None:
        """Learn N rounds in their order, exactly as N calls of `update` would.

        If one of the N rounds is invalid, the policy does not change at all.

        Parameters
        ----------
        features : array, shape (N, p)
            Features of the played actions.
        rewards : array, shape (N,)
            Rewards of the played actions.
        offered : sequence of N arrays (K, p), optional
            Features of all offered actions in each round, for policies that use them.
        actions : array of int, shape (N,), optional
            Index of the played action in each round, for policies that need the index.
        """
        rows = np.ascontiguousarray(finite_array("features", features, ("N", self.dim)))
        gains = finite_array("rewards", rewards, (len(rows),)).tolist()
        sets = [None] * len(rows) if offered is None else list(offered)
        played = [None] * len(rows) if actions is None else list(actions)
        for name, count in (("offered", len(sets)), ("actions", len(played))):
            if count != len(rows):
                raise InputError(
                    f"{name} must have an entry for each of the {len(rows)} rounds, got {count}"
                )
        with self._lock:
            before = copy.deepcopy(self._unlocked())
            try:
                for row, gain, others, action in zip(
                    rows, gains, sets, played, strict=True
                ):
                    self.update(row, gain, offered=others, action=action)
            except Exception:
                self._put_back(before)
                raise

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """Return what the constructor was given, as plain values."""
        names = ["dim", *self.options] if "dim" in self.needs else self.options
        return {name: getattr(self, name) for name in names}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The counter."""
        return {"counters": np.array([self.rounds], dtype=np.int64)}

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        policy = cls(**settings)
        policy._restore(arrays)
        return policy

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Continue from these arrays."""
        self.rounds = int(arrays["counters"][0])

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """What the arrays of a policy with these settings must be, of which a file has these names.

        Saving and loading hold a state against it. Finite numbers, unless a class says more.
        """
        return ANYTHING

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)}" for name in (*self.shown, "rounds")]
        return f"{type(self).__name__}({', '.join(parts)})"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the whole state of the policy to a file, which `ib.load` reads.

        An existing file with the same name is replaced in one step.
        """
        storage.replace_file(path, to_bytes(self))


def to_bytes(policy: Any) -> bytes:
    """The content of a file that holds the whole state of `policy`; InputError if its state is broken."""
    settings, arrays = to_state(policy)
    return storage.encode(KIND, arrays, settings)


def to_state(policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The registered name and the settings of a policy, and its arrays, validated."""
    name = name_of(policy)
    with lock_of(policy):
        settings, arrays = policy.settings(), policy.arrays()
    state = {"policy": name, "settings": settings}
    try:
        state_schema(state, arrays).check(arrays)
    except Exception as error:
        broken = f"policy: this {type(policy).__name__} cannot be stored, its state is broken"
        raise InputError(f"{broken}: {' '.join(str(error).split())}") from error
    return state, arrays


def resolved_options(policy: Any) -> dict[str, Any]:
    """Return what a policy of the library was made with: all options, defaults included, as plain values.

    Nested options have names such as "memory.window". What was estimated from logs as a whole, such as a
    prior, is not an option. A policy that does not say what it was made with has no options.
    """
    if not isinstance(policy, BasePolicy):
        return {}
    options = {}
    for name, value in storage.flatten(policy.settings()).items():
        plain = value.item() if isinstance(value, np.generic) else value
        is_estimate = any(part in ESTIMATES for part in name.split("."))
        if not is_estimate and (
            plain is None or isinstance(plain, bool | int | float | str)
        ):
            options[name] = plain
    return options


def stored_kind(name: Any) -> Any:
    """The class of policies that a file names."""
    if name not in POLICIES:
        raise InputError(
            f"its policy is not known here: it must be a registered name, got {name!r:.80}"
        )
    return POLICIES.find(name).kind


def state_schema(settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
    """What a file with these settings must hold, the names of its arrays being these.

    A class of another package that does not define `state_schema` itself may keep any finite numbers.
    """
    kind = stored_kind(settings.get("policy"))
    if not kind.__module__.startswith(
        "invariant_bandits."
    ) and "state_schema" not in vars(kind):
        return ANYTHING
    return cast(StateSchema, kind.state_schema(settings.get("settings"), names))


def from_state(settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The policy that `to_state` took apart."""
    return stored_kind(settings["policy"]).from_state(settings["settings"], arrays)


def from_bytes(content: bytes | bytearray, name: str) -> Any:
    """The policy in the content of a file; its next decisions are bit for bit those of the saved one.

    Raises FileError if the content is truncated, altered, foreign or newer. `name` is for messages.
    """
    arrays, settings = storage.decode(content, KIND, name, state_schema)
    try:
        return from_state(settings, arrays)
    except Exception as error:
        raise storage.not_whole(name, str(settings["policy"]), error) from None


def checked_seed(name: str, seed: Seed) -> int:
    """Return a whole number from 0 to 2^63 − 1, drawn if a generator is given, or raise."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return whole_number(name, seed, 0)


SEED = Option(0, checked_seed)


class Draws:
    """Random numbers that depend on the seed and the rounds learned alone.

    Deciding twice gives the same decision.

    Philox is counter-based (Salmon et al. 2011): every round has its own stream, none has to be stored.

    Parameters
    ----------
    seed : int or numpy.random.Generator
        A whole number from 0 to 2^63 − 1, or a generator of the caller's from which one is drawn.
    """

    def __init__(self, seed: Seed) -> None:
        self.seed = checked_seed("seed", seed)
        self._source = np.random.Philox(key=self.seed)
        self._state = self._source.state
        self._generator = np.random.Generator(self._source)

    def at(self, rounds: int, purpose: int = 0, within: int = 0) -> np.random.Generator:
        """The stream of the decision after `rounds` learned rounds. Other purposes have streams of their own.

        So have decisions `within` the same round, by numbers below 2^64.

        One generator is moved to the start of the stream, which is five times faster than making a new one:
        use it up before asking again, and hold the lock of the policy meanwhile.
        """
        self._state["state"]["counter"][:] = (0, within, rounds, purpose)
        self._source.state = self._state
        return self._generator


def offered_array(features: Any, dim: int) -> Array:
    """Features of offered actions (K, p), contiguous, or InputError."""
    return np.ascontiguousarray(finite_array("features", features, ("K", dim)))


def chosen_array(features: Any, dim: int) -> Array:
    """Features of the chosen action (p,), contiguous, or InputError."""
    return np.ascontiguousarray(finite_array("features", features, (dim,)))


def reward_number(reward: Any) -> float:
    """One finite reward, or InputError."""
    return float(finite_array("reward", reward, ()))


def batch_array(features: Any, dim: int) -> Array:
    """Features of N rounds (N, K, p), contiguous, or InputError; finiteness is left to the compiled pass."""
    return np.ascontiguousarray(shaped_array("features", features, ("N", "K", dim)))


def too_large() -> InputError:
    """The refusal of finite numbers whose squares cannot be summed."""
    return InputError(
        "features and reward must be smaller: the sum of their squares must stay below 1e200"
    )


def refuse(features: Any, dim: int, reward: Any = None) -> NoReturn:
    """Raise an InputError that says why a compiled loop refused its input.

    `features` are those of offered actions (K, p), or with a reward those of the played one (p,).
    """
    if reward is None:
        offered_array(features, dim)
    else:
        chosen_array(features, dim)
        reward_number(reward)
    raise too_large()


def positive(name: str, value: float) -> float:
    """Return `value` as a positive float whose square and inverse square are finite, or raise."""
    number = number_between(name, value, 0.0, np.inf)
    least, most = 1.0 / LARGEST_SETTING, LARGEST_SETTING
    if not least <= number <= most:
        raise InputError(
            f"{name} must lie between {least:g} and {most:g}, got {number:g}"
        )
    return number


def not_negative(name: str, value: float, most: float = LARGEST_SETTING) -> float:
    """Return `value` as a float from 0 to `most`, or raise."""
    number = 0.0 if np.ndim(value) == 0 and value == 0 else positive(name, value)
    if number > most:
        raise InputError(f"{name} must be from 0 to {most:g}, got {value!r}")
    return number


def check_rounds(features: Array, start: int = 0, stop: int | None = None) -> None:
    """Raise if `select` would refuse a round from `start` to `stop` of features (N, K, p).

    Features are contiguous, and those of all these rounds together must be usable.
    """
    part = features[start:stop]
    if not kernels.usable(part.reshape(1, -1)):
        finite_array("features", features, features.shape)
        raise too_large()


def upper_bounds(
    features: Array,
    panel: Array,
    norms: Sequence[tuple[slice, float]],
    offset: Any = 0.0,
) -> Iterator[tuple[slice, Array]]:
    """Upper confidence bounds (n, K) of a batch of rounds (N, K, p) in one state, block by block.

    panel : array, shape (1 + q, p)
        Takes φ to its mean, and to coordinates whose norms are the widths.
    norms : sequence of (slice, float)
        Rows of the panel that make up one norm, and its factor.
    offset : array, shape (1 + q, 1), optional
        What is added to these.
    """
    rounds, actions, p = features.shape
    step = max(1, NUMBERS_AT_ONCE // (len(panel) * actions))
    for start in range(0, rounds, step):
        block = slice(start, min(start + step, rounds))
        check_rounds(features, block.start, block.stop)
        with np.errstate(invalid="ignore", over="ignore"):
            projected = panel @ features[block].reshape(-1, p).T + offset
            bounds = projected[0]
            for rows, factor in norms:
                bounds += factor * np.sqrt(
                    np.einsum("jt,jt->t", projected[rows], projected[rows])
                )
        yield block, bounds.reshape(-1, actions)
