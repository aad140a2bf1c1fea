"""What the online study plays: its rows, the policies of each row, and the memories tuned for the seventh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from invariant_bandits.experiments.cells import (
    GREEDY,
    ISD_ESTIMATED,
    ISD_ORACLE,
    LINUCB,
    LINUCB_TUNED,
    LINUCB_WARM,
    NAMED,
)
from invariant_bandits.policies.memory import FOREVER, Discount, Memory, Restart, SlidingWindow
from invariant_bandits.policies.registry import Contender
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.loop import Environment
from invariant_bandits.simulation.paper import PaperWorld


@dataclass(frozen=True)
class Row:
    """One environment and horizon.

    memory: what ISD-linUCB remembers of the residual part there; drifts: whether anything does, so that oracle
    subspaces exist.
    """

    name: str
    environment: Environment
    horizon: int = 500
    memory: Memory = FOREVER
    drifts: bool = True


PAPER = PaperEpisodes()
FAST_ROTATION = PaperEpisodes(PaperWorld(blocks=(8, 2), varying=1, regimes=5), logged=2000, online="rotating")

PAPER_ROWS = tuple(Row(f"T0 = {logged}, paper's drift", replace(PAPER, logged=logged)) for logged in (1000, 3500, 8000))
NO_DRIFT = Row("T0 = 1000, no drift at all", PaperEpisodes(PaperWorld(varying=None), logged=1000), drifts=False)
WEAK_DRIFT = Row("T0 = 8000, weak drift (0.2)", PaperEpisodes(PaperWorld(drift=0.2)))
GREEDY_LOGS = Row("T0 = 8000, greedy logs", PaperEpisodes(PaperWorld(logging="greedy")))
WELL_CONDITIONED = Row("T0 = 1000, well-conditioned", PaperEpisodes(PaperWorld(conditioning="well"), logged=1000))
SMALL_JUMP = Row("T0 = 8000, invariant part jumps by 0.5", replace(PAPER, violation=0.5))
LARGE_JUMP = Row("T0 = 8000, invariant part jumps by 2", replace(PAPER, violation=2.0))
SEVENTH = Row("T0 = 2000, fast rotation (seventh)", FAST_ROTATION, memory=SlidingWindow(25))
FIXED_ACTIONS = Row("T0 = 8000, 20 fixed actions, T = 1000", replace(PAPER, fixed_actions=20), horizon=1000)
ROWS = (
    *PAPER_ROWS,
    NO_DRIFT,
    WEAK_DRIFT,
    GREEDY_LOGS,
    WELL_CONDITIONED,
    SMALL_JUMP,
    LARGE_JUMP,
    SEVENTH,
    FIXED_ACTIONS,
)

AUTO_FULL = "AutoISD, exploration 1"
AUTO_QUARTER = "AutoISD, exploration 0.25"
AUTO_DEFAULT = "AutoISD, default"
CONTENDERS = (
    LINUCB,
    LINUCB_TUNED,
    GREEDY,
    LINUCB_WARM,
    ISD_ORACLE,
    ISD_ESTIMATED,
    AUTO_FULL,
    AUTO_DEFAULT,
    AUTO_QUARTER,
)
AUTO_TUNED = "AutoISD, tuned"
AUTO_EXPLORATIONS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)

MEMORIES: Mapping[str, tuple[Memory, ...]] = {
    "SW-linUCB": tuple(SlidingWindow(window) for window in (10, 25, 50, 100, 200)),
    "D-linUCB": tuple(Discount(discount) for discount in (0.8, 0.85, 0.9, 0.95, 0.97, 0.99)),
    "Restart-linUCB": tuple(Restart(every) for every in (10, 25, 50, 100, 200)),
}
EXPLORATIONS = (0.1, 0.3, 1.0)
PUBLISHED_MEMORIES: tuple[Memory, ...] = (SlidingWindow(25), Discount(0.85), Discount(0.97), Restart(50))


@dataclass(frozen=True)
class Forgetful:
    """A policy that forgets, as published or lifted by the true split; `kind`: one of MEMORIES."""

    kind: str
    lifted: bool
    memory: Memory
    exploration: float = 1.0

    @property
    def name(self) -> str:
        """Its kind, and whether it is lifted."""
        return _kind_name(self.kind, self.lifted)

    @property
    def words(self) -> str:
        """Name with memory and exploration."""
        return f"{self.name}, {self.memory_words}, exploration {self.exploration:g}"

    @property
    def memory_words(self) -> str:
        """For instance "window 25"."""
        return " ".join(f"{name} {value:g}" for name, value in asdict(self.memory).items())

    @property
    def contender(self) -> Contender:
        """What plays."""
        options: dict[str, Any] = {"memory": self.memory, "exploration": self.exploration}
        return Contender("isd-linucb", {"split": "oracle", **options}) if self.lifted else Contender("linucb", options)


def _kind_name(kind: str, lifted: bool) -> str:
    return f"ISD + {kind}" if lifted else kind


def tuned_name(kind: str, lifted: bool) -> str:
    """What the memory and exploration that tuning found for a kind are called."""
    return f"{_kind_name(kind, lifted)}, tuned"


def tuning_grid() -> list[Forgetful]:
    """Every kind, lifted and not, with every memory and exploration it may be tuned to."""
    return [
        Forgetful(kind, lifted, memory, exploration)
        for kind, memories in MEMORIES.items()
        for lifted in (False, True)
        for memory in memories
        for exploration in EXPLORATIONS
    ]


def published_pairs() -> list[tuple[Forgetful, Forgetful]]:
    """(unlifted, lifted) at the published memories and exploration 1."""
    kind_of = {memory: kind for kind, memories in MEMORIES.items() for memory in memories}
    return [
        (Forgetful(kind_of[memory], False, memory), Forgetful(kind_of[memory], True, memory))
        for memory in PUBLISHED_MEMORIES
    ]


def contenders(row: Row) -> dict[str, Contender]:
    """The policies that play a row; oracle subspaces exist where something drifts."""
    played = {
        **{name: NAMED[name] for name in (LINUCB, LINUCB_TUNED, GREEDY, LINUCB_WARM)},
        ISD_ORACLE: Contender("isd-linucb", {"split": "oracle", "memory": row.memory}),
        ISD_ESTIMATED: Contender("isd-linucb", {"memory": row.memory}),
        AUTO_FULL: Contender("auto-isd", {"exploration": 1.0}),
        AUTO_DEFAULT: Contender("auto-isd"),
        AUTO_QUARTER: Contender("auto-isd", {"exploration": 0.25}),
    }
    if not row.drifts:
        del played[ISD_ORACLE]
    return played
