"""What every policy offers: Policy, Scores, its state in a file, and random draws for those that randomise.

A file holds the whole state of a policy, checked, without pickle: what is loaded continues bit for bit.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from typing import (
    Any,
    ClassVar,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    cast,
    runtime_checkable,
)

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
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import POLICIES, name_of
from invariant_bandits.storage import ANYTHING, StateSchema, ThreadSafe, lock_of

KIND = "policy"
ESTIMATES = ("prior", "recompute")
"""Settings of policies that hold an estimate rather than an option."""
Seed: TypeAlias = int | np.random.Generator
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


@runtime_checkable
class Policy(Protocol):
    """Interface of a policy: choose one of K offered actions from their features, then learn its reward.

    Any object with the methods `select` and `update` can be used in `simulate`, `compare` and experiment
    grids. The method `update` may have two more parameters: `offered`, the features (K, p) of all
    offered actions, and `action`, the index of the played action. A policy that chooses at random also has
    the method `propensities(features)`, which returns the probability (K,) of choosing each action.

    >>> import invariant_bandits as ib
    >>> class First:
    ...     def select(self, features):
    ...         return 0
    ...     def update(self, features, reward):
    ...         pass
    >>> isinstance(First(), ib.Policy), isinstance(ib.LinUCB(3), ib.Policy), isinstance("LinUCB", ib.Policy)
    (True, True, False)
    >>> ib.simulate({"first": First}, ib.simulation.PaperEpisodes(logged=100), 20, replications=2, seed=0)
    SimulationResult(first; 2 repetitions of 20 rounds)
    """

    def select(self, features: Any) -> int:
        """Return the index of the action to play, given the features (K, p) of K actions.

        The policy does not change.
        """

    def update(self, features: Any, reward: float) -> None:
        """Learn the reward of the played action with features (p,)."""


@runtime_checkable
class CompletePolicy(Policy, Protocol):
    """What the library's own policies have besides, and models, state files and the service need.

    `settings` and `arrays` are the whole state: `from_state` from them, a policy continues bit for bit.

    Attributes
    ----------
    dim : int
        Number of features p.
    rounds : int
        Rounds learned so far.
    """

    dim: int

    @property
    def rounds(self) -> int:
        """Rounds learned so far."""

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N independent rounds (N, K, p) in the present state."""

    def scores(self, features: Any) -> Scores:
        """Means and widths of the actions with features (K, p)."""

    def propensities(self, features: Any) -> Array:
        """Probability (K,) of each action being the next choice, over the policy's own randomness."""

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the chosen action with features (p,)."""

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain numbers, strings and dictionaries."""

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Everything else, as arrays by name."""

    @classmethod
    def from_past(cls, past: Past, **options: Any) -> Self:
        """A fresh policy that knows the past."""

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these `settings` and `arrays`."""


def missing_parts(policy: Any) -> list[str]:
    """Names of the methods and attributes of CompletePolicy that a policy lacks."""
    parts = {*vars(CompletePolicy), *CompletePolicy.__annotations__, *vars(Policy)}
    return sorted(
        part for part in parts if not part.startswith("_") and not hasattr(policy, part)
    )


class BasePolicy(ThreadSafe):
    """Base class of the library's policies, which learn many rounds at once and can be saved.

    Threads may use one policy at the same time: every method sees one state, and every round is learned
    whole. A class of your own that adds to the state holds `self._lock`, as `ThreadSafe` says, wherever it
    changes or reads that.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.LinUCB(2)
    >>> policy.update_many(np.eye(2), [1.0, 0.0])
    >>> policy.rounds
    2
    """

    dim: int
    rounds: Any

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
        policy: Any = self
        rows = np.ascontiguousarray(
            finite_array("features", features, ("N", policy.dim))
        )
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
                learn = learn_from(policy)
                for row, gain, others, action in zip(
                    rows, gains, sets, played, strict=True
                ):
                    learn(row, gain, offered=others, action=action)
            except Exception:
                self._put_back(before)
                raise

    options: ClassVar[tuple[str, ...]] = ()
    """Attributes that the constructor takes as keywords, and that are stored."""
    shown: ClassVar[tuple[str, ...]] = ("dim",)
    """Names of the attributes that `repr` shows in addition to `rounds`."""
    _draws: Draws | None = None

    @property
    def seed(self) -> int | None:
        """What the draws depend on, beside the rounds learned; None if nothing is drawn."""
        return None if self._draws is None else self._draws.seed

    def propensities(self, features: Any) -> Array:
        """One for the action that `select` returns, zero for the others (K,)."""
        policy: Any = self
        return one_hot(policy.select(features), len(features))

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        return {name: getattr(self, name) for name in self.options}

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


class ComposedPolicy(BasePolicy):
    """A policy that decides as another one does, `_playing`, given the features as `_seen` has them.

    `_common` are the settings that it hands on.
    """

    _playing: Any
    _common: Mapping[str, Any]

    def _seen(self, features: Any, checked: Callable[[Any, int], Array]) -> Any:
        """Features as the other policy takes them, whose own checks do if they stay as they are."""
        return features

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""
        with self._lock:
            return int(self._playing.select(self._seen(features, offered_array)))

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p) in the present state."""
        with self._lock:
            return np.asarray(
                self._playing.select_many(self._seen(features, batch_array))
            )

    def scores(self, features: Any) -> Scores:
        """Means and widths of the actions with features (K, p), by the policy that plays."""
        with self._lock:
            return cast(
                Scores, self._playing.scores(self._seen(features, offered_array))
            )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        return {**super().settings(), **self._common}


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
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**63))
        self.seed = whole_number("seed", seed, 0)
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


@lru_cache(maxsize=256)
def _unknown_to(update: Any) -> frozenset[str]:
    """Which of `offered` and `action` a function does not take."""
    parameters = inspect.signature(update).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return (
        frozenset()
        if takes_all
        else frozenset({"offered", "action"}.difference(parameters))
    )


def learn_from(policy: Any) -> Callable[..., None]:
    """`policy.update`, which takes `offered` and `action` even if the policy does not."""
    update: Callable[..., None] = policy.update
    unknown = _unknown_to(getattr(update, "__func__", update))
    if not unknown:
        return update

    def learn(features: Any, reward: float, **known: Any) -> None:
        update(
            features, reward, **{name: known[name] for name in known.keys() - unknown}
        )

    return learn


@lru_cache(maxsize=256)
def _has_one_pass(kind: type) -> bool:
    """Whether a class of policies decides by the methods of the one that defines `expect`."""
    known = next((each for each in kind.__mro__ if "expect" in vars(each)), None)
    names = ("select", "scores", "propensities")
    return known is not None and all(
        getattr(kind, name) is getattr(known, name) for name in names
    )


def expect(policy: Any, features: Array) -> tuple[Array, Array]:
    """Propensities and expected rewards (K,) of the actions with features (K, p), in one pass if possible."""
    if _has_one_pass(policy.__class__):
        both: tuple[Array, Array] = policy.expect(features)
        return both
    return policy.propensities(features), policy.scores(features).mean


def one_hot(action: int, actions: int) -> Array:
    """Probabilities (K,) of a policy that does not randomise: one for its action."""
    result = np.zeros(actions)
    result[action] = 1.0
    return result


def own_propensities(policy: Any, features: Array) -> Array:
    """Return the probabilities (K,) with which a policy chooses, checked.

    A policy without `propensities` chooses what `select` returns with probability 1.
    """
    propensities = getattr(policy, "propensities", None)
    if callable(propensities):
        chances = np.asarray(propensities(features), dtype=np.float64)
        listed = chances.tolist() if chances.shape == (len(features),) else [np.nan]
        if not abs(sum(listed) - 1.0) < 1e-6 or min(listed) < 0.0:
            raise InputError(
                f"propensities must be {len(features)} shares that add up to 1, got {chances}"
            )
        return chances
    action = policy.select(features)
    if not 0 <= action < len(features):
        raise InputError(
            f"select must return an action from 0 to {len(features) - 1}, got {action!r}"
        )
    return one_hot(action, len(features))


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
