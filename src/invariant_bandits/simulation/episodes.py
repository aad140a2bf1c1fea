"""Episodes: logged rounds, then online rounds of the same environment, with the truth of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.registry import Registry
from invariant_bandits.simulation import paper as online_paths
from invariant_bandits.simulation.paper import (
    LoggedRounds,
    PaperWorld,
    check_counts,
    regimes_of,
)

Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True, eq=False)
class RegisteredEnvironment:
    """A class of environments under a name.

    Parameters
    ----------
    name : str
        What it is asked for by.
    kind : type
        The class.
    seeded_as : str
        What the seeds of its runs are derived from.
    """

    name: str
    kind: Any
    seeded_as: str


ENVIRONMENTS: Registry[RegisteredEnvironment] = Registry(
    "environment", "invariant_bandits.simulation"
)


def register_environment(
    name: str, *, seeded_as: str | None = None
) -> Callable[[Kind], Kind]:
    """Register a class of simulated environments under a name.

    The class must be a dataclass with a method `draw(horizon, rng)` that returns an Episode.

    Parameters
    ----------
    name : str
        Name by which experiments refer to the environment.
    seeded_as : str, optional
        Text from which experiments derive their random seeds; by default the name. Keep `seeded_as` unchanged
        when you rename or move the class, so that a seed still draws the same episodes.

    >>> from dataclasses import dataclass
    >>> import invariant_bandits as ib
    >>> from invariant_bandits.simulation.episodes import ENVIRONMENTS
    >>> @ib.register_environment("quiet")
    ... @dataclass(frozen=True)
    ... class QuietEpisodes:
    ...     def draw(self, horizon, rng):
    ...         world = ib.simulation.PaperWorld(varying=None)
    ...         return ib.simulation.PaperEpisodes(world=world).draw(horizon, rng)
    >>> ENVIRONMENTS.find("quiet").kind.__name__
    'QuietEpisodes'
    >>> ENVIRONMENTS.remove("quiet")
    """

    def registered(kind: Kind) -> Kind:
        if not is_dataclass(kind) or not callable(getattr(kind, "draw", None)):
            raise InputError(
                f"environment must be a dataclass with draw(horizon, rng), got {kind.__name__}"
            )
        ENVIRONMENTS.add(RegisteredEnvironment(name, kind, seeded_as or name))
        return kind

    return registered


def described(environment: Any, *, seeded: bool = False) -> dict[str, Any]:
    """Return an environment and its settings as plain data, equal for equal environments.

    The `kind` is the registered name, which finds the class again. With `seeded`, it is the text from which
    seeds are derived.
    """
    kind = type(environment)
    known = {
        entry.kind: entry.seeded_as if seeded else entry.name for entry in ENVIRONMENTS
    }
    return {
        "kind": known.get(kind, f"{kind.__module__}.{kind.__qualname__}"),
        **asdict(environment),
    }


class SimulatedPast(Past):
    """What a policy may know before the first online round, and beside it the truth, for oracles only.

    Policies of the library do not read the truth: `build_policy` hands an oracle the split that it knows.

    Parameters
    ----------
    truth : Episode
        The whole episode, or another object with the true `split` and `component`.
    **known :
        As in Past.
    """

    def __init__(self, truth: Any, **known: Any) -> None:
        super().__init__(**known)
        self.truth = truth


ORACLE, KNOWN = "oracle", "known"
"""Values of the option `split`: the true split with an estimated component, and both true."""


def build_policy(spec: PolicySpec, past: Past) -> Any:
    """Return a fresh policy that knows the past, and as an oracle the true split and component."""
    split = spec.registered().options.get("split")
    truth = getattr(past, "truth", None)
    if truth is not None and isinstance(split, str) and split in (ORACLE, KNOWN):
        spec = spec.registered()
        options = {**spec.options, "split": truth.split}
        if split == KNOWN:
            options["component"] = truth.component
        spec = replace(spec, options=options)
    return spec.build(past)


MOST_FREE = 12
"""Free coordinates of a hypercube: 2^12 actions of 13 features take 0.4 MB per round."""


@runtime_checkable
class Episode(Protocol):
    """One simulated run of T rounds: the features and the reward of every action in every round.

    Any object with the arrays `offered` and `rewards` is an episode. The attributes `means`, `logs`,
    `past`, `split` and `component` are optional.

    - `means`, array (T, K): expected rewards of the K actions in each of the T rounds. Without expected
      rewards, regret is computed from realised rewards.
    - `logs`, a Feedback: logged rounds from which policies may learn before the first round.
    - `past`, a Past: what policies may know before the first round, if they know more than logged rounds.
    - `split`, a Split: the true directions of feature space in which coefficients are stable or drift, for
      policies that may know the truth.
    - `component`, array (p,): the true stable coefficients, for policies that may know the truth.

    Attributes
    ----------
    offered : array, shape (T, K, p)
        Features (p numbers) of the K offered actions in each of the T rounds.
    rewards : array, shape (T, K)
        Reward that each of the K actions yields if a policy chooses the action.

    >>> import numpy as np, invariant_bandits as ib
    >>> episode = ib.simulation.PaperEpisodes(logged=100).draw(7, np.random.default_rng(0))
    >>> isinstance(episode, ib.simulation.Episode), episode.offered.shape, episode.rewards.shape
    (True, (7, 5, 10), (7, 5))
    """

    @property
    def offered(self) -> Array:
        """Features of the offered actions (T, K, p)."""

    @property
    def rewards(self) -> Array:
        """Reward that each action yields if a policy chooses the action (T, K)."""


class Environment(Protocol):
    """Interface of simulated environments: objects that draw episodes, for instance a PaperEpisodes.

    >>> from types import SimpleNamespace
    >>> import invariant_bandits as ib
    >>> class Dice:
    ...     def draw(self, horizon, rng):
    ...         return SimpleNamespace(offered=rng.random((horizon, 2, 3)), rewards=rng.random((horizon, 2)))
    >>> result = ib.simulate(["linucb", "uniform"], Dice(), 20, replications=2, seed=0)
    >>> result.settings["regret"]
    'against the largest realised reward'
    """

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """Draw one simulated episode; `horizon` is its number of rounds."""


def past_of(episode: Any) -> Past:
    """What a policy may know before the first round: the episode's `past`, or its `logs` and its shape.

    Without logs the noise has standard deviation 1.
    """
    if getattr(episode, "past", None) is not None:
        return cast(Past, episode.past)
    rounds, actions, dim = episode.offered.shape
    shape = {"truth": episode, "horizon": rounds, "actions": actions}
    if getattr(episode, "logs", None) is None:
        return SimulatedPast(
            **shape, moments=WindowedMoments.empty(dim, 1), noise_scale=1.0
        )
    return SimulatedPast(**shape, logs=episode.logs)


@dataclass(frozen=True)
class KnownEpisode:
    """Logged rounds, then T online rounds, with the truth of both.

    Parameters
    ----------
    logs : LoggedRounds
        The logged rounds.
    offered : array, shape (T, K, p)
        Features of all offered actions.
    coefficients : array, shape (T, p)
        True γ_t.
    noise : array, shape (T,)
        Added to the expected reward, the same whichever action is played, so that policies are compared on
        paired rounds.
    windows : int
        Into how many equal stretches the logs are cut for moments.
    expected : array, shape (T, K), optional
        Expected rewards, where they are not linear.
    outcomes : array, shape (T, K), optional
        What every action would bring, where that is not its expected reward plus noise.
    feature_bound : float
        Bound L on the length of a feature vector that policies are told.
    """

    logs: LoggedRounds
    offered: Array
    coefficients: Array
    noise: Array
    windows: int = 8
    expected: Array | None = None
    outcomes: Array | None = None
    feature_bound: float = 1.0

    @cached_property
    def means(self) -> Array:
        """True expected rewards (T, K)."""
        if self.expected is not None:
            return self.expected
        return np.asarray(np.einsum("tkp,tp->tk", self.offered, self.coefficients))

    @property
    def rewards(self) -> Array:
        """What every action brings when it is played (T, K)."""
        return (
            self.means + self.noise[:, None] if self.outcomes is None else self.outcomes
        )

    @cached_property
    def past(self) -> Past:
        """What a policy may know before the first online round.

        The feature bound is 1 by default, as policies take the norm bound to be 1. The paper fixes neither L
        nor M nor σ. The features and coefficients of its simulation are longer: the bounds are settings here,
        not true bounds. The noise scale 1 is true unless the environment has another.
        """
        return SimulatedPast(
            self,
            logs=self.logs,
            windows=self.windows,
            horizon=self.horizon,
            actions=int(self.offered.shape[1]),
            noise_scale=1.0,
            feature_bound=self.feature_bound,
            delta=1.0 / self.horizon if self.horizon > 1 else None,
        )

    @property
    def split(self) -> Split:
        """The true split of the logs."""
        return self.logs.split

    @property
    def component(self) -> Array:
        """The true invariant part of the logs' coefficients (p,)."""
        return self.logs.component

    @property
    def moments(self) -> WindowedMoments:
        """Windowed moments of the logs, offered actions included."""
        return self.past.moments

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.offered.shape[2])

    @property
    def horizon(self) -> int:
        """Number of online rounds T."""
        return len(self.offered)


@register_environment(
    "paper", seeded_as="invariant_bandits.environments.episodes.PaperEpisodes"
)
@dataclass(frozen=True)
class PaperEpisodes:
    """Simulated data as in the paper behind this library: logged rounds, then online rounds.

    Parameters
    ----------
    world : PaperWorld
        Settings of the simulated features, coefficients, noise and logs.
    logged : int
        Number of logged rounds.
    online : "constant", "rotating", "abrupt" or "recurring"
        How the drifting coefficients behave in the online rounds. With `online="constant"`, the drifting
        coefficients are drawn anew before the first online round and then fixed, as in the paper. A
        value of `world.drift` below 1 is the fraction of the way to the new draw that the coefficients move
        with `online="constant"`. With `online="rotating"`, the drifting coefficients change in every online
        round, as in the paper's seventh experiment. With `online="abrupt"`, the drifting coefficients are
        drawn anew before the first online round and at every change point. With `online="recurring"`, the
        drifting coefficients return at every change point to earlier values from the logs.
    violation : float
        Length by which the otherwise stable coefficients move in a random direction; 0 for no movement.
    fixed_actions : int, optional
        Number of actions, with standard normal features, that every online round offers again. By default,
        every online round offers new actions whose features have one common random covariance.
    windows : int
        Number of windows (periods with equally many rounds) into which the logs are cut.
    changes : int or tuple of int
        Number of change points to draw at random, or the online rounds of the change points, counted from 0.
    states : int
        Number of logged rounds, evenly spread over the logs, whose coefficients return in turn with
        `online="recurring"`.
    breach : "jump" or "creep"
        When the stable coefficients move: before the first online round ("jump"),
        or linearly from the first to the last online round ("creep").
    unit_actions : bool
        Whether the features of every fixed action are scaled to length 1.

    >>> import numpy as np, invariant_bandits as ib
    >>> environment = ib.simulation.PaperEpisodes(logged=500, online="abrupt", changes=(10,))
    >>> episode = environment.draw(horizon=20, rng=np.random.default_rng(0))
    >>> episode.offered.shape, len(np.unique(episode.coefficients, axis=0))
    ((20, 5, 10), 2)
    """

    world: PaperWorld = field(default_factory=PaperWorld)
    logged: int = 8000
    online: str = "constant"
    violation: float = 0.0
    fixed_actions: int | None = None
    windows: int = 8
    changes: int | tuple[int, ...] = 4
    states: int = 3
    breach: str = "jump"
    unit_actions: bool = False

    def __post_init__(self) -> None:
        one_of("online", self.online, ("constant", "rotating", "abrupt", "recurring"))
        one_of("breach", self.breach, ("jump", "creep"))
        check_counts(self, logged=1, states=2)
        online_paths.checked_changes(self.changes)
        if self.unit_actions and self.fixed_actions is None:
            raise InputError(
                "unit_actions needs fixed_actions: only these can be scaled"
            )

    def draw(self, horizon: int, rng: np.random.Generator) -> KnownEpisode:
        """Draw one episode: logged rounds, then online rounds.

        Parameters
        ----------
        horizon : int
            Number of online rounds T.
        rng : numpy.random.Generator
            Source of all random numbers.

        Returns
        -------
        KnownEpisode
            Logged and online rounds, with the true coefficients of every round.
        """
        whole_number("horizon", horizon, 1)
        logs = self.world.log(self.logged, rng)
        offered = self._offered(logs, horizon, rng)
        coefficients = self._coefficients(logs, horizon, rng)
        return KnownEpisode(
            logs=logs,
            offered=offered,
            coefficients=coefficients,
            noise=self.world.draw_noise(horizon, rng),
            windows=self.windows,
        )

    def _offered(
        self, logs: LoggedRounds, horizon: int, rng: np.random.Generator
    ) -> Array:
        p = self.world.dim
        if self.fixed_actions is not None:
            actions = rng.standard_normal((self.fixed_actions, p))
            if self.unit_actions:
                actions /= np.linalg.norm(actions, axis=1, keepdims=True)
            return np.ascontiguousarray(
                np.broadcast_to(actions, (horizon, self.fixed_actions, p))
            )
        root = self.world.covariance_root(logs.basis, rng)
        return rng.standard_normal((horizon, self.world.actions, p)) @ root.T

    def _coefficients(
        self, logs: LoggedRounds, horizon: int, rng: np.random.Generator
    ) -> Array:
        moving = self.world.moving_coordinates()
        staying = [j for j in range(self.world.dim) if j not in moving]
        inner = np.tile(logs.basis.T @ logs.component, (horizon, 1))
        if self.violation:
            direction = rng.standard_normal(len(staying))
            progress = (
                np.ones(horizon)
                if self.breach == "jump"
                else np.linspace(0.0, 1.0, horizon)
            )
            inner[:, staying] += progress[:, None] * (
                self.violation * direction / np.linalg.norm(direction)
            )
        inner[:, moving] = self._residual_path(logs, moving, horizon, rng)
        return inner @ logs.basis.T

    def _residual_path(
        self,
        logs: LoggedRounds,
        moving: list[int],
        horizon: int,
        rng: np.random.Generator,
    ) -> Array:
        """Residual coordinates of the online rounds (horizon, p_res)."""

        def logged(t: int) -> Array:
            return np.asarray((logs.basis.T @ logs.coefficients[t])[moving])

        if self.online == "rotating":
            return online_paths.rotating(len(moving), horizon)
        if self.online == "recurring":
            middles = [
                (2 * k + 1) * self.logged // (2 * self.states)
                for k in range(self.states)
            ]
            points = online_paths.change_points(self.changes, horizon, rng)
            return online_paths.recurring(
                np.stack([logged(t) for t in middles]), points, horizon
            )
        before = logged(0)
        first = before + min(self.world.drift, 1.0) * (
            rng.uniform(0.5, 1.5, len(moving)) - before
        )
        if self.online == "constant":
            return np.tile(first, (horizon, 1))
        points = online_paths.change_points(self.changes, horizon, rng)
        return online_paths.abrupt(first, points, horizon, rng)


@register_environment(
    "hypercube",
    seeded_as="invariant_bandits.environments.lower_bound.HypercubeEpisodes",
)
@dataclass(frozen=True)
class HypercubeEpisodes:
    """The instance behind the paper's lower bound, where no policy has a mean regret below e⁻²/8·p_res·√T.

    Vertices of [−1, 1]^p are the actions, residual coefficients are ±1/√T, the noise is Gaussian of variance
    1 (the paper's last appendix).

    The signs of an episode are uniform over all 2^p_res sign vectors and independent of its logs: the mean
    over episodes estimates the mean over instances, which `policies.radii.regret_lower_bound` bounds for
    every policy, with or without history. A linear reward is largest at a vertex, so the vertices stand for
    the whole cube. Invariant coefficients are uniform(0.5, 1.5).

    The logs lie in the cube as well: in each of `regimes` stretches every coordinate has its own scale from
    uniform(0.2, 1) and every residual coefficient its own sign, so that they show what stays (the basis is
    the coordinates') and say nothing of the signs to come.

    Parameters
    ----------
    invariant_dim : int
        Invariant coordinates p_inv, the first of the features.
    residual_dim : int
        Residual coordinates p_res.
    logged : int
        Number of logged rounds.
    vertices : "residual" or "all"
        "residual" offers the 2^p_res vertices with the invariant coordinates at 1, where they are best. "all"
        offers 2^p.
    actions : int
        Actions that a logged round offers.
    regimes : int
        Stretches of the logs.
    windows : int
        Into how many equal stretches the logs are cut for moments.

    >>> import numpy as np
    >>> from invariant_bandits.simulation.episodes import HypercubeEpisodes
    >>> HypercubeEpisodes(logged=100).draw(horizon=4, rng=np.random.default_rng(0)).offered.shape
    (4, 8, 6)
    """

    invariant_dim: int = 3
    residual_dim: int = 3
    logged: int = 2000
    vertices: str = "residual"
    actions: int = 5
    regimes: int = 8
    windows: int = 8

    def __post_init__(self) -> None:
        check_counts(
            self, invariant_dim=0, residual_dim=1, logged=1, actions=1, regimes=1
        )
        one_of("vertices", self.vertices, ("residual", "all"))
        free = self.residual_dim + (self.invariant_dim if self.vertices == "all" else 0)
        if free > MOST_FREE:
            raise InputError(
                f"vertices={self.vertices!r} would offer 2^{free} actions, more than 2^{MOST_FREE}"
            )

    @property
    def dim(self) -> int:
        """Number of features p. The invariant ones come first."""
        return self.invariant_dim + self.residual_dim

    def draw(self, horizon: int, rng: np.random.Generator) -> KnownEpisode:
        """One instance, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        invariant = rng.uniform(0.5, 1.5, self.invariant_dim)
        logs = self._log(invariant, rng)
        signs = rng.choice([-1.0, 1.0], self.residual_dim)
        actions = self._vertices()
        offered = np.ascontiguousarray(
            np.broadcast_to(actions, (horizon, *actions.shape))
        )
        coefficients = np.tile(
            np.concatenate([invariant, signs / np.sqrt(horizon)]), (horizon, 1)
        )
        return KnownEpisode(
            logs=logs,
            offered=offered,
            coefficients=coefficients,
            noise=rng.standard_normal(horizon),
            windows=self.windows,
        )

    def _vertices(self) -> Array:
        """The offered actions (K, p)."""
        invariant = (1.0,) if self.vertices == "residual" else (1.0, -1.0)
        sides = [invariant] * self.invariant_dim + [(1.0, -1.0)] * self.residual_dim
        return np.array(list(product(*sides)))

    def _log(self, invariant: Array, rng: np.random.Generator) -> LoggedRounds:
        regime = regimes_of(self.logged, self.regimes)
        scales = rng.uniform(0.2, 1.0, (self.regimes, self.dim))[regime]
        offered = scales[:, None] * rng.choice(
            [-1.0, 1.0], (self.logged, self.actions, self.dim)
        )
        residual = rng.choice([-1.0, 1.0], (self.regimes, self.residual_dim))[regime]
        coefficients = np.hstack([np.tile(invariant, (self.logged, 1)), residual])
        actions = rng.integers(self.actions, size=self.logged)
        features = offered[np.arange(self.logged), actions]
        basis = np.eye(self.dim)
        split = Split(basis[:, : self.invariant_dim], basis[:, self.invariant_dim :])
        rewards = np.einsum("tp,tp->t", features, coefficients) + rng.standard_normal(
            self.logged
        )
        return LoggedRounds(
            offered=offered,
            actions=actions,
            rewards=rewards,
            coefficients=coefficients,
            split=split,
            component=split.invariant @ invariant,
            basis=basis,
            propensities=np.full(self.logged, 1.0 / self.actions),
        )
