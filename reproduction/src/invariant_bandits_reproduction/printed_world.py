"""The simulation as the text of the paper prints it, where the authors' code plays something else.

`PaperWorld` follows the authors' code. It deviates from Section 5.1 in four things: it has four blocks
instead of two; time runs from 0 to 1, not from −1 to 0; the first coefficients, but not the online ones, are
scaled to length 1; and policies take the bounds L = M = 1, which the world does not keep.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import block_diag

from invariant_bandits.checks import Array
from invariant_bandits.simulation.episodes import (
    KnownEpisode,
    PaperEpisodes,
    register_environment,
)
from invariant_bandits.simulation.paper import PaperWorld, random_basis


@dataclass(frozen=True)
class PrintedWorld(PaperWorld):
    """A PaperWorld with two blocks, time from −1 to 0 and coefficients that are not scaled.

    The text leaves the covariances open: here eigenvalues are uniform between 0.2 and 2, in ten periods.
    """

    blocks: tuple[int, ...] = (7, 3)
    varying: int | tuple[int, ...] | None = 1
    regimes: int = 10
    unit_start: bool = False

    @property
    def norm_bound(self) -> float:
        """Bound M on the length of the online coefficients, each of which is at most 1.5."""
        return float(1.5 * np.sqrt(self.dim))

    def clock(self, rounds: int) -> Array:
        """Time of every logged round (rounds,), from −1 to 0."""
        return np.arange(rounds) / rounds - 1.0

    def covariance_root(self, basis: Array, rng: np.random.Generator) -> Array:
        """A square root of one random covariance (p, p) with these blocks."""
        roots = []
        for size in self.blocks:
            scales = np.sqrt(rng.uniform(0.2, 2.0, size))
            roots.append(random_basis(size, rng) * scales)
        return basis @ block_diag(*roots)


@register_environment("paper-as-printed")
@dataclass(frozen=True)
class PrintedEpisodes(PaperEpisodes):
    """PaperEpisodes of a PrintedWorld whose policies know the largest length L of the offered features."""

    world: PaperWorld = field(default_factory=PrintedWorld)

    def draw(self, horizon: int, rng: np.random.Generator) -> KnownEpisode:
        """Draw one episode: logged rounds, then `horizon` online rounds."""
        episode = super().draw(horizon, rng)
        longest = np.linalg.norm(episode.offered, axis=2).max()
        return replace(episode, feature_bound=float(longest))


@register_environment("paper-epochs")
@dataclass(frozen=True)
class EpochEpisodes(PrintedEpisodes):
    """PrintedEpisodes whose drifting coefficients are drawn anew after every `epoch` online rounds."""

    epoch: int = 100

    def draw(self, horizon: int, rng: np.random.Generator) -> KnownEpisode:
        """Draw one episode: logged rounds, then `horizon` online rounds."""
        episodes = PrintedEpisodes(
            self.world,
            logged=self.logged,
            windows=self.windows,
            online="abrupt",
            changes=tuple(range(self.epoch, horizon, self.epoch)),
        )
        return episodes.draw(horizon, rng)
