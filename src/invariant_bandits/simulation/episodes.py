"""Episodes: logged rounds, then online rounds of the same environment, with the truth of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.past import Past
from invariant_bandits.registry import Registry
from invariant_bandits.simulation import paper as online_paths
from invariant_bandits.simulation.paper import LoggedRounds, PaperWorld

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


ENVIRONMENTS: Registry[RegisteredEnvironment] = Registry("environment", "invariant_bandits.simulation")


def environment(name: str, *, seeded_as: str | None = None) -> Callable[[Kind], Kind]:
    """Register a class of environments under a name.

    The class is a dataclass with `draw(horizon, rng) -> Episode`.

    Parameters
    ----------
    name : str
        What grids and experiments ask for it by.
    seeded_as : str, optional
        Runs of one seed draw the same episodes as long as this stays the same, wherever the class moves. The
        name if not given.

    >>> from dataclasses import dataclass
    >>> import invariant_bandits as ib
    >>> from invariant_bandits.simulation.episodes import ENVIRONMENTS
    >>> @ib.environment("quiet")
    ... @dataclass(frozen=True)
    ... class QuietEpisodes:
    ...     def draw(self, horizon, rng):
    ...         return ib.PaperEpisodes(world=ib.PaperWorld(varying=None)).draw(horizon, rng)
    >>> ENVIRONMENTS.find("quiet").kind.__name__
    'QuietEpisodes'
    >>> ENVIRONMENTS.remove("quiet")
    """

    def registered(kind: Kind) -> Kind:
        if not is_dataclass(kind) or not callable(getattr(kind, "draw", None)):
            raise InputError(f"environment must be a dataclass with draw(horizon, rng), got {kind.__name__}")
        ENVIRONMENTS.add(RegisteredEnvironment(name, kind, seeded_as or name))
        return kind

    return registered


def described(environment: Any) -> dict[str, Any]:
    """An environment and its settings as plain data, equal for equal environments; seeds come from it."""
    for entry in ENVIRONMENTS:
        if entry.kind is type(environment):
            return {"kind": entry.seeded_as, **asdict(environment)}
    kind = type(environment)
    return {"kind": f"{kind.__module__}.{kind.__qualname__}", **asdict(environment)}


class SimulatedPast(Past):
    """What a policy may know before the first online round, and beside it the truth, for oracles only.

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
        self._known = known

    def in_windows(self, windows: int) -> Past:
        """The same past with its logged rounds in another number of windows."""
        return SimulatedPast(self.truth, **self._known | {"windows": windows})


ONLINE = ("constant", "rotating", "abrupt", "recurring")
BREACH = ("jump", "creep")


@dataclass(frozen=True)
class Episode:
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
    """

    logs: LoggedRounds
    offered: Array
    coefficients: Array
    noise: Array
    windows: int = 8
    expected: Array | None = None
    outcomes: Array | None = None

    @cached_property
    def means(self) -> Array:
        """True expected rewards (T, K)."""
        if self.expected is not None:
            return self.expected
        return np.asarray(np.einsum("tkp,tp->tk", self.offered, self.coefficients))

    @property
    def rewards(self) -> Array:
        """What every action brings when it is played (T, K)."""
        return self.means + self.noise[:, None] if self.outcomes is None else self.outcomes

    @cached_property
    def past(self) -> Past:
        """What a policy may know before the first online round. Noise scale and bounds are the paper's, 1."""
        return SimulatedPast(
            self,
            logs=self.logs,
            windows=self.windows,
            horizon=self.horizon,
            actions=int(self.offered.shape[1]),
            noise_scale=1.0,
            feature_bound=1.0,
            confidence=1.0 / self.horizon if self.horizon > 1 else None,
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


@environment("paper", seeded_as="invariant_bandits.environments.episodes.PaperEpisodes")
@dataclass(frozen=True)
class PaperEpisodes:
    """The paper's generator with an online phase, and variations of it.

    Parameters
    ----------
    world : PaperWorld
        Settings of the generator. Draws the logs.
    logged : int
        Number of logged rounds.
    online : "constant", "rotating", "abrupt" or "recurring"
        Path of the residual coordinates online. "constant": drawn afresh, then fixed, as in the paper. With a
        drift of the world below 1 they move that part of the way only. "rotating": the seventh experiment,
        `simulation.paths.rotating`. "abrupt": as "constant", and redrawn at every change point. "recurring":
        at every change point the next of `states` values that the logs had.
    violation : float
        Length by which the invariant part moves in a random direction, against the assumption.
    fixed_actions : int, optional
        The same standard normal actions in every round, this many. None: new ones from one covariance.
    windows : int
        Into how many equal stretches the logs are cut for moments.
    changes : int or tuple of int
        How many change points are drawn at random, or the rounds (from 0) at which they are.
    states : int
        How many values recur, taken evenly spread over the logs.
    breach : "jump" or "creep"
        When the violation happens. "jump": before the first online round. "creep": linearly, nothing in the
        first round, all of it in the last.
    unit_actions : bool
        Whether every fixed action is scaled to length 1.

    >>> import numpy as np, invariant_bandits as ib
    >>> environment = ib.PaperEpisodes(logged=500, online="abrupt", changes=(10,))
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
        one_of("online", self.online, ONLINE)
        one_of("breach", self.breach, BREACH)
        whole_number("logged", self.logged, 1)
        whole_number("states", self.states, 2)
        online_paths.checked_changes(self.changes)
        if self.unit_actions and self.fixed_actions is None:
            raise InputError(
                "unit_actions needs fixed_actions: the paper's actions have the lengths of their covariance"
            )

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One instance of the environment: logged rounds, then online rounds.

        Parameters
        ----------
        horizon : int
            Number of online rounds T.
        rng : numpy.random.Generator
            What all randomness comes from.

        Returns
        -------
        Episode
            With the truth of both parts.
        """
        whole_number("horizon", horizon, 1)
        logs = self.world.log(self.logged, rng)
        return Episode(
            logs=logs,
            offered=self._offered(logs, horizon, rng),
            coefficients=self._coefficients(logs, horizon, rng),
            noise=self.world.draw_noise(horizon, rng),
            windows=self.windows,
        )

    def _offered(self, logs: LoggedRounds, horizon: int, rng: np.random.Generator) -> Array:
        p = self.world.dim
        if self.fixed_actions is not None:
            actions = rng.standard_normal((self.fixed_actions, p))
            if self.unit_actions:
                actions /= np.linalg.norm(actions, axis=1, keepdims=True)
            return np.ascontiguousarray(np.broadcast_to(actions, (horizon, self.fixed_actions, p)))
        root = self.world.covariance_root(logs.basis, rng)
        return np.asarray(rng.standard_normal((horizon, self.world.actions, p)) @ root.T)

    def _coefficients(self, logs: LoggedRounds, horizon: int, rng: np.random.Generator) -> Array:
        moving = self.world.moving_coordinates()
        staying = [j for j in range(self.world.dim) if j not in moving]
        inner = np.tile(logs.basis.T @ logs.component, (horizon, 1))
        if self.violation:
            direction = rng.standard_normal(len(staying))
            progress = np.ones(horizon) if self.breach == "jump" else np.linspace(0.0, 1.0, horizon)
            inner[:, staying] += progress[:, None] * (self.violation * direction / np.linalg.norm(direction))
        inner[:, moving] = self._residual_path(logs, moving, horizon, rng)
        return np.asarray(inner @ logs.basis.T)

    def _residual_path(
        self, logs: LoggedRounds, moving: list[int], horizon: int, rng: np.random.Generator
    ) -> Array:
        """Residual coordinates of the online rounds (horizon, p_res)."""

        def logged(t: int) -> Array:
            return np.asarray((logs.basis.T @ logs.coefficients[t])[moving])

        if self.online == "rotating":
            return online_paths.rotating(len(moving), horizon)
        if self.online == "recurring":
            states = np.stack(
                [logged((2 * k + 1) * self.logged // (2 * self.states)) for k in range(self.states)]
            )
            return online_paths.recurring(
                states, online_paths.change_points(self.changes, horizon, rng), horizon
            )
        before = logged(0)
        first = before + min(self.world.drift, 1.0) * (rng.uniform(0.5, 1.5, len(moving)) - before)
        if self.online == "constant":
            return online_paths.constant(first, horizon)
        return online_paths.abrupt(
            first, online_paths.change_points(self.changes, horizon, rng), horizon, rng
        )
