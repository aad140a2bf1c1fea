"""Episodes: logged rounds, then online rounds of the same world, with the truth of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from invariant_bandits.checks import Array, one_of, whole_number
from invariant_bandits.environments.paper import LoggedRounds, PaperWorld
from invariant_bandits.moments import WindowedMoments

ONLINE = ("constant", "rotating")
ROTATION_CLOCK = 2000


@dataclass(frozen=True)
class Episode:
    """Logs, and T online rounds: offered features (T, K, p), true coefficients (T, p), noise (T,).

    The noise of a round is the same whichever action is played, so that policies are compared on paired rounds.
    """

    logs: LoggedRounds
    offered: Array
    coefficients: Array
    noise: Array
    windows: int = 8

    @cached_property
    def means(self) -> Array:
        """True expected rewards (T, K)."""
        return np.asarray(np.einsum("tkp,tp->tk", self.offered, self.coefficients))

    @cached_property
    def moments(self) -> WindowedMoments:
        """Windowed moments of the logs, offered actions included."""
        logs = self.logs
        return WindowedMoments.from_arrays(logs.features, logs.rewards, windows=self.windows, offered=logs.offered)

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.offered.shape[2])

    @property
    def horizon(self) -> int:
        """Number of online rounds T."""
        return len(self.offered)


@dataclass(frozen=True)
class PaperEpisodes:
    """The paper's generator with an online phase.

    world, logged: the logs; online: "constant" (the paper: residual coordinates drawn afresh, then fixed; with a drift
    below 1 they move that part of the way only) or "rotating"
    (they start at (1, …, 1)/√p_res and each round t move by −0.5(t/2000)sin²(50jt/2000 + j), then are renormalised);
    violation: length of a jump of the invariant part, in a random direction, when the online phase begins;
    fixed_actions: the same standard normal actions in every round, this many (None: new ones from one covariance).
    """

    world: PaperWorld = field(default_factory=PaperWorld)
    logged: int = 8000
    online: str = "constant"
    violation: float = 0.0
    fixed_actions: int | None = None
    windows: int = 8

    def __post_init__(self) -> None:
        one_of("online", self.online, ONLINE)
        whole_number("logged", self.logged, 1)

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One world, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        logs = self.world.log(self.logged, rng)
        return Episode(
            logs=logs,
            offered=self._offered(logs, horizon, rng),
            coefficients=self._coefficients(logs, horizon, rng),
            noise=self.world.noise_scale * rng.standard_normal(horizon),
            windows=self.windows,
        )

    def _offered(self, logs: LoggedRounds, horizon: int, rng: np.random.Generator) -> Array:
        p = self.world.dim
        if self.fixed_actions is not None:
            actions = rng.standard_normal((self.fixed_actions, p))
            return np.ascontiguousarray(np.broadcast_to(actions, (horizon, self.fixed_actions, p)))
        root = self.world.covariance_root(logs.basis, rng)
        return np.asarray(rng.standard_normal((horizon, self.world.actions, p)) @ root.T)

    def _coefficients(self, logs: LoggedRounds, horizon: int, rng: np.random.Generator) -> Array:
        moving = self.world.moving_coordinates()
        staying = [j for j in range(self.world.dim) if j not in moving]
        inner = np.tile(logs.basis.T @ logs.component, (horizon, 1))
        if self.violation:
            jump = rng.standard_normal(len(staying))
            inner[:, staying] += self.violation * jump / np.linalg.norm(jump)
        if self.online == "constant":
            before = (logs.basis.T @ logs.coefficients[0])[moving]
            inner[:, moving] = before + min(self.world.drift, 1.0) * (rng.uniform(0.5, 1.5, len(moving)) - before)
        else:
            inner[:, moving] = _rotation(len(moving), horizon)
        return np.asarray(inner @ logs.basis.T)


def _rotation(dim: int, horizon: int) -> Array:
    """The fast rotation of the residual coordinates (horizon, dim), each row of length 1."""
    j = np.arange(1, dim + 1)
    path = np.empty((horizon, dim))
    path[0] = 1.0 / np.sqrt(dim)
    for t in range(1, horizon):
        clock = t / ROTATION_CLOCK
        step = path[t - 1] - 0.5 * clock * np.sin(50.0 * j * clock + j) ** 2
        path[t] = step / np.linalg.norm(step)
    return path
