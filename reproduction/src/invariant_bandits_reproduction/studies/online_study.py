"""The online phase over many fresh repetitions: regret of every policy, what it must show, and where it does
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from invariant_bandits.checks import Array, whole_number, whole_seed
from invariant_bandits.policies.memory import (
    FOREVER,
    Discount,
    Memory,
    Restart,
    SlidingWindow,
)
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.reports import plots
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import Environment, PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction.claims import (
    Claim,
    Judged,
    Measurement,
    judge_all,
    mean_of,
)
from invariant_bandits_reproduction.contenders import (
    GREEDY,
    ISD_ESTIMATED,
    ISD_ORACLE,
    LINUCB,
    LINUCB_TUNED,
    LINUCB_WARM,
    SELF_NORMALISED,
    named,
)
from invariant_bandits_reproduction.regret_claims import (
    mean_at_most,
    worst_at_most,
    worst_below,
)
from invariant_bandits_reproduction.studies.harness import (
    CellPlayer,
    Progress,
    StudyOutcome,
    picture_lines,
    regret_cell,
    table,
    with_lowest_bold,
)

AUTO, AUTO_FREE = "AutoISD", "AutoISD, caution None"
CONTENDERS = (
    LINUCB,
    LINUCB_TUNED,
    GREEDY,
    LINUCB_WARM,
    ISD_ORACLE,
    ISD_ESTIMATED,
    AUTO,
    AUTO_FREE,
)


def row(
    name: str,
    environment: Environment,
    *,
    horizon: int = 500,
    memory: Memory = FOREVER,
    drifts: bool = True,
) -> Cell:
    """A row of the study.

    memory: what ISD-linUCB remembers of the residual part there; drifts: whether anything does, so that
    oracle subspaces exist.
    """
    played = {
        **named(LINUCB, LINUCB_TUNED, GREEDY, LINUCB_WARM),
        ISD_ORACLE: PolicySpec(
            "isd-linucb", {"split": "oracle", "memory": memory, **SELF_NORMALISED}
        ),
        ISD_ESTIMATED: PolicySpec("isd-linucb", {"memory": memory, **SELF_NORMALISED}),
        AUTO: PolicySpec("auto-isd"),
    }
    if not drifts:
        del played[ISD_ORACLE]
    if getattr(environment, "fixed_actions", None):
        played[AUTO_FREE] = PolicySpec("auto-isd", {"caution": None})
    return Cell(name, environment, horizon, played)


PAPER = PaperEpisodes()
FAST_ROTATION = PaperEpisodes(
    PaperWorld(blocks=(8, 2), varying=1, regimes=5), logged=2000, online="rotating"
)
"""The authors' seventh experiment."""

PAPER_ROWS = tuple(
    row(f"T0 = {logged}, paper's drift", replace(PAPER, logged=logged))
    for logged in (1000, 3500, 8000)
)
NO_DRIFT = row(
    "T0 = 1000, no drift at all",
    PaperEpisodes(PaperWorld(varying=None), logged=1000),
    drifts=False,
)
"""The paper's rows, and a world without drift."""
WEAK_DRIFT = row("T0 = 8000, weak drift (0.2)", PaperEpisodes(PaperWorld(drift=0.2)))
"""A fifth of the paper's drift."""
GREEDY_LOGS = row("T0 = 8000, greedy logs", PaperEpisodes(PaperWorld(logging="greedy")))
WELL_CONDITIONED = row(
    "T0 = 1000, well-conditioned",
    PaperEpisodes(PaperWorld(conditioning="well"), logged=1000),
)
"""Blocks whose covariances are well-conditioned."""
SMALL_JUMP = row(
    "T0 = 8000, invariant part jumps by 0.5", replace(PAPER, violation=0.5)
)
"""A violation of half a unit."""
LARGE_JUMP = row("T0 = 8000, invariant part jumps by 2", replace(PAPER, violation=2.0))
"""A violation of more than twice the length of the invariant part."""
SEVENTH = row(
    "T0 = 2000, fast rotation (seventh)", FAST_ROTATION, memory=SlidingWindow(25)
)
"""The authors' seventh experiment, with their window."""
FIXED_ACTIONS = row(
    "T0 = 8000, 20 fixed actions, T = 1000",
    replace(PAPER, fixed_actions=20),
    horizon=1000,
)
"""The same actions in every round."""
FEW_FEATURES = tuple(
    row(
        f"T0 = 2000, p = {p}, two directions drift, T = 100",
        PaperEpisodes(
            PaperWorld(blocks=(p - 2, 2), varying=1, regimes=5), logged=2000, windows=5
        ),
        horizon=100,
    )
    for p in (3, 4, 5)
)
"""The paper's Figure 3 with few features."""
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
    *FEW_FEATURES,
)

MEMORIES: Mapping[str, tuple[Memory, ...]] = {
    "SW-linUCB": tuple(SlidingWindow(window) for window in (10, 25, 50, 100, 200)),
    "D-linUCB": tuple(
        Discount(discount) for discount in (0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
    ),
    "Restart-linUCB": tuple(Restart(every) for every in (10, 25, 50, 100, 200)),
}
EXPLORATIONS = (0.1, 0.3, 1.0)
"""Of the tuning grid: the published radius, and less."""
PUBLISHED_MEMORIES: tuple[Memory, ...] = (
    SlidingWindow(25),
    Discount(0.85),
    Discount(0.97),
    Restart(50),
)
"""Memories of the pairs that the page compares, unlifted and lifted."""


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
        return " ".join(
            f"{name} {value:g}" for name, value in asdict(self.memory).items()
        )

    @property
    def contender(self) -> PolicySpec:
        """What plays."""
        options: dict[str, Any] = {
            "memory": self.memory,
            "exploration": self.exploration,
        }
        return (
            PolicySpec("isd-linucb", {"split": "oracle", **SELF_NORMALISED, **options})
            if self.lifted
            else PolicySpec("linucb", options)
        )


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
    kind_of = {
        memory: kind for kind, memories in MEMORIES.items() for memory in memories
    }
    return [
        (
            Forgetful(kind_of[memory], False, memory),
            Forgetful(kind_of[memory], True, memory),
        )
        for memory in PUBLISHED_MEMORIES
    ]


def estimated_goals() -> list[Claim]:
    """ISD-linUCB from the logs keeps up with its oracle and is never as bad as LinUCB at its worst."""
    goals: list[Claim] = []
    for cell in PAPER_ROWS:
        words = f"{ISD_ESTIMATED} ≤ 1.15 × oracle subspaces"
        goals.append(mean_at_most(words, cell.name, ISD_ESTIMATED, (ISD_ORACLE,), 1.15))
        words = f"{ISD_ESTIMATED}: worst run below LinUCB's"
        goals.append(
            worst_at_most(words, cell.name, ISD_ESTIMATED, LINUCB, strictly=True)
        )
    return goals


def auto_goals(policy: str) -> list[Claim]:
    """What AutoISD promises: better than the oracle where the paper's assumptions hold, safe where they do
    not.
    """
    goals: list[Claim] = [
        mean_at_most(
            f"{policy} ≤ ISD-linUCB with oracle subspaces",
            cell.name,
            policy,
            (ISD_ORACLE,),
        )
        for cell in PAPER_ROWS
    ]
    goals.append(
        mean_at_most(
            f"{policy} ≤ 0.75 × LinUCB", LARGE_JUMP.name, policy, (LINUCB,), 0.75
        )
    )
    goals.append(forgetting_goal(policy))
    goals += [
        mean_at_most(f"{policy} ≤ {rival}", cell.name, policy, (rival,))
        for cell in FEW_FEATURES
        for rival in (ISD_ESTIMATED, LINUCB_TUNED)
    ]
    goals += [
        mean_at_most(f"{policy} ≤ LinUCB", cell.name, policy, (LINUCB,))
        for cell in ROWS
    ]
    goals += [
        worst_at_most(f"{policy}: worst run ≤ LinUCB's", cell.name, policy, LINUCB)
        for cell in ROWS
    ]
    goals.append(
        worst_below(f"{policy}: worst run below 150", FIXED_ACTIONS.name, policy, 150.0)
    )
    return goals


def forgetting_goal(policy: str) -> Claim:
    """AutoISD keeps up with every policy that forgets, tuned on other seeds, the lifted ones knowing the true
    split.
    """
    forgetful = tuple(
        tuned_name(memory, lifted) for memory in MEMORIES for lifted in (False, True)
    )
    words = f"{policy} ≤ 1.1 × the best tuned policy that forgets"
    return mean_at_most(words, SEVENTH.name, policy, forgetful, 1.1)


def lift_goals() -> list[Claim]:
    """The invariant part halves the regret of every policy that forgets, at the published memories."""
    return [
        mean_at_most(
            f"ISD lift ≤ 0.5 × {plain.kind}, {plain.memory_words}",
            SEVENTH.name,
            lifted.words,
            (plain.words,),
            0.5,
        )
        for plain, lifted in published_pairs()
    ]


GOALS: Sequence[Claim] = (
    *estimated_goals(),
    *auto_goals(AUTO),
    *lift_goals(),
)


def verdicts(outcome: StudyOutcome) -> Judged:
    """Every goal with its verdict."""
    return judge_all(GOALS, outcome.values)


CHARTED = (LINUCB, LINUCB_TUNED, ISD_ORACLE, ISD_ESTIMATED, AUTO)
CHOSEN = (
    "| choice of AutoISD's settings | |\n"
    "|---|---|\n"
    "| where | on other seeds, in environments of the [stress study](stress.md), in some of these rows"
    " and on the first halves of the [real data](real.md) |\n"
    "| how many | over five versions about 380 configurations, with 20 to 200 repetitions each |\n"
    "| earlier versions | ran through this study five times on other seeds |\n"
    "| this page | the single run of this version, with a seed that was not used for these choices |\n"
    "\n"
    "Worst runs vary much between seeds. With 20 fixed actions the recommended `caution` (the option that"
    " limits tests of other actions) is None."
)
TUNING_REPLICATIONS = 20
"""Repetitions per member of the tuning grid."""
TUNING = 1000  # its place among the seeds of the rows
OTHER_ROWS = 2000  # where rows of one's own begin
Tuned = Mapping[tuple[str, bool], tuple[Forgetful, Measurement]]


def run(
    rows: Sequence[Cell] = ROWS,
    *,
    replications: int = 200,
    seed: int = 20270115,
    jobs: int = 2,
    tuning_replications: int = TUNING_REPLICATIONS,
    progress: Progress | None = None,
) -> StudyOutcome:
    """All repetitions of all rows, none discarded; the same for any number of `jobs`.

    Tuning plays the seventh experiment on repetitions of its own. The outcome has, beside the regret: tuned,
    (kind of memory, lifted) -> what was best on the tuning repetitions, and its regret there;
    tuning_replications.
    """
    whole_number("replications", replications, 2)
    whole_seed(seed)
    whole_number("tuning_replications", tuning_replications, 2)
    total = replications * len(rows) + tuning_replications * (SEVENTH in rows)
    player = CellPlayer(seed, jobs, progress, total)
    tuned: Tuned = {}
    if SEVENTH in rows:
        grid = tuning_grid()
        players = {member.words: member.contender for member in grid}
        cell = replace(SEVENTH, policies=players)
        words = "tuning for the seventh"
        there = player.regrets(cell, TUNING, tuning_replications, words)
        tuned = best_of(grid, there)
    regret = {}
    for cell in rows:
        index = ROWS.index(cell) if cell in ROWS else OTHER_ROWS + rows.index(cell)
        if cell == SEVENTH:
            cell = replace(cell, policies={**cell.policies, **forgetful(tuned)})
        regret[cell.name] = player.regrets(cell, index, replications)
    more = {"tuned": tuned, "tuning_replications": tuning_replications}
    return StudyOutcome(regret, replications, seed, more)


def best_of(grid: Sequence[Forgetful], regret: Mapping[str, Array]) -> Tuned:
    """The memory and exploration of each kind, lifted and not, with the lowest mean regret."""
    best = {}
    for kind in MEMORIES:
        for lifted in (False, True):
            members = [
                member
                for member in grid
                if (member.kind, member.lifted) == (kind, lifted)
            ]
            winner = min(members, key=lambda member: regret[member.words].mean())
            best[kind, lifted] = (winner, mean_of(regret[winner.words]))
    return best


def forgetful(tuned: Tuned) -> dict[str, PolicySpec]:
    """What the seventh experiment plays beside the contenders: tuned policies that forget, and published
    pairs.
    """
    players = {
        tuned_name(*kind): member.contender for kind, (member, _) in tuned.items()
    }
    return players | {
        member.words: member.contender for pair in published_pairs() for member in pair
    }


def draw(outcome: StudyOutcome, theme_name: str) -> Figure:
    """Mean and worst run of five policies in every row."""
    chart = {
        row: {
            name: (float(of[name].mean()), float(of[name].max()))
            for name in CHARTED
            if name in of
        }
        for row, of in outcome.values.items()
    }
    return plots.regret_chart(chart, theme_name=theme_name)


def report(outcome: StudyOutcome, *, pictures: str | None = None) -> str:
    """The study as a Markdown page; `pictures`: where it finds online-light.png and online-dark.png."""
    lines = [
        "# The online phase, measured",
        "",
        "How much reward do policies lose in simulations of the paper that introduced ISD-linUCB, and in"
        " variants of these simulations?",
        "",
        "| | how it was measured |",
        "|---|---|",
        f"| repetitions | {outcome.replications} fresh repetitions per row with seed {outcome.seed}, none"
        " discarded |",
        "| pairs | within a row all policies play the same logs, features and noise, so differences are"
        " paired |",
        "| numbers | cumulative dynamic regret: mean ± standard error (worst run) |",
        "| environment | the paper's generator with p = 10 features, K = 5 actions and T = 500 online"
        " rounds unless the row names others |",
        "| logs | T0 logged rounds in 8 windows (periods), in rows with fewer features in 5 |",
        "| linear policies | ridge 0.1, noise scale 1, norm and feature bound 1, delta 1/T |",
        "| AutoISD | gets the logs and the horizon T |",
        "",
        CHOSEN,
        "",
        *picture_lines(
            *(
                pictures,
                "online",
                "Mean regret of five policies in every row, and worst runs",
            ),
            "Each row is a simulation, each dot the mean regret of a policy, and each whisker ends at the"
            " worst run. The axis is logarithmic, and further left is better.",
        ),
        *_goal_lines(outcome),
        *_row_lines(outcome),
        *_memory_lines(outcome),
        *_loss_lines(outcome),
    ]
    return "\n".join(lines)


def _goal_lines(outcome: StudyOutcome) -> list[str]:
    judged = verdicts(outcome)
    missed = [
        f"- {goal.statement}; {goal.name}: {verdict.numbers}"
        for goal, verdict in judged
        if not verdict.reached
    ]
    lines = [
        "## What must be true",
        "",
        f"{len(judged) - len(missed)} of {len(judged)} goals reached."
        f"{' The list has the goals that policies missed:' if missed else ''}",
        "",
        *missed,
        *([""] if missed else []),
        "The column *difference* has the paired difference between a policy's regret and the bound of the"
        " goal, with the standard error. A verdict on a goal is in brackets if the measured value is"
        " within two standard errors of the bound.",
        "",
    ]
    rows = []
    for goal, verdict in judged:
        difference = "" if verdict.margin is None else verdict.margin.with_error()
        measured = (verdict.numbers, difference, verdict.careful_mark)
        rows.append((goal.statement, goal.name, *measured))
    return [*lines, *table(("goal", "row", "measured", "difference", ""), rows)]


def _row_lines(outcome: StudyOutcome) -> list[str]:
    lines = [
        "## Every row",
        "",
        "The lowest mean regret of a row is bold, among the policies that do not know the simulation's"
        " truth. In the row *fast rotation*, where the drifting coefficients change quickly, the policy"
        " ISD-linUCB remembers only 25 rounds.",
        "",
    ]
    rows = [
        (name, *with_lowest_bold(regret, CONTENDERS, aside=ISD_ORACLE))
        for name, regret in outcome.values.items()
    ]
    return [*lines, *table(("logs → online", *CONTENDERS), rows)]


def _memory_lines(outcome: StudyOutcome) -> list[str]:
    if not outcome.more["tuned"]:
        return []
    regret = outcome.values[SEVENTH.name]
    lines = [
        "## Forgetting, in the seventh experiment",
        "",
        "A *tuned* policy has the memory and exploration that had the lowest mean regret over"
        f" {outcome.more['tuning_replications']} other repetitions. In the seventh experiment ISD-linUCB"
        " knows the true split into stable and drifting directions.",
        "",
        "| policy | tuned to | there | here |",
        "|---|---|---|---|",
    ]
    for kind, (member, there) in outcome.more["tuned"].items():
        to = f"{member.memory_words}, exploration {member.exploration:g}"
        lines.append(
            f"| {member.name} | {to} | {there.with_error()} | {regret_cell(regret[tuned_name(*kind)])} |"
        )
    lines += [
        "",
        "| memory, exploration | unlifted | lifted | ratio of means |",
        "|---|---|---|---|",
    ]
    pairs = [
        (
            f"{plain.kind}, {plain.memory_words}, {plain.exploration:g}",
            plain.words,
            lifted.words,
        )
        for plain, lifted in published_pairs()
    ]
    pairs += [
        (f"{kind}, each as tuned", tuned_name(kind, False), tuned_name(kind, True))
        for kind in MEMORIES
    ]
    for words, plain, lifted in pairs:
        ratio = regret[lifted].mean() / regret[plain].mean()
        lines.append(
            f"| {words} | {regret_cell(regret[plain])} | {regret_cell(regret[lifted])} | {ratio:.2f} |"
        )
    return [*lines, ""]


def losses(
    outcome: StudyOutcome, policy: str = AUTO
) -> Iterator[tuple[str, str, Measurement]]:
    """(row, rival, rival − policy over pairs) where a policy that knows no truth has a lower mean."""
    informed = {ISD_ORACLE, *(tuned_name(kind, True) for kind in MEMORIES)}
    informed |= {lifted.words for _, lifted in published_pairs()}
    aside = informed | {AUTO}
    for row, regret in outcome.values.items():
        for rival, values in regret.items():
            difference = mean_of(values - regret[policy])
            if rival not in aside and difference.value < 0.0:
                yield row, rival, difference


def _loss_lines(outcome: StudyOutcome) -> list[str]:
    lines = ["## Where AutoISD does not win", ""]
    lost = list(losses(outcome))
    if lost:
        lines += [
            f"The table has the policies with a lower mean regret than {AUTO}:",
            "",
            *table(
                ("row", "policy", "difference"),
                ((row, rival, apart.with_error()) for row, rival, apart in lost),
            )[:-1],
        ]
    else:
        lines.append(
            "In no row has a policy without knowledge of the truth a lower mean."
        )
    above = [
        f"| {row} | {regret[AUTO].max():.0f} | {regret[LINUCB].max():.0f} |"
        for row, regret in outcome.values.items()
        if regret[AUTO].max() > regret[LINUCB].max()
    ]
    if above:
        lines += [
            "",
            f"The table has the rows in which the worst run of {AUTO} has more regret than the worst run of"
            " LinUCB:",
            "",
            f"| row | worst run of {AUTO} | worst run of LinUCB |",
            "|---|---|---|",
            *above,
        ]
    else:
        lines += [
            "",
            f"In no row is the worst run of {AUTO} worse than the worst run of LinUCB.",
        ]
    return [*lines, ""]
