"""Every constant of AutoISD halved and doubled, and the price of caution: mean regret, paired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.decomposition import log_end
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.fit_constants import PRIOR
from invariant_bandits.policies import constants as stages
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import Environment, PaperEpisodes
from invariant_bandits.simulation.stress_worlds import FixedArms, StressEpisodes
from invariant_bandits_reproduction.claims import (
    Judged,
    mean_of,
)
from invariant_bandits_reproduction.studies.harness import (
    CellPlayer,
    Progress,
    StudyOutcome,
    regret_cell,
    table,
)
from invariant_bandits_reproduction.studies.stress_study import Linear

AS_IS = "as is"
HALF = 0.5
DOUBLE = 2.0
CHANGES_THE_PRIOR = (log_end, "PRIOR")


@dataclass(frozen=True)
class Variant:
    """AutoISD with other constants.

    Parameters
    ----------
    constants : (module, name) -> value
        In place while the policy is made.
    options : name -> value
        Of AutoISD.
    """

    constants: Mapping[tuple[ModuleType, str], Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, past: Past, **options: Any) -> AutoISD:
        """A fresh policy."""
        with ExitStack() as stack:
            for (module, name), value in self.constants.items():
                stack.enter_context(patch.object(module, name, value))
            prior = past.drift_prior
            if CHANGES_THE_PRIOR in self.constants:
                fit = past.decomposition
                prior = DriftPrior.from_moments(
                    past.moments, fit.basis_, drifting=fit.drifting_directions
                )
            return AutoISD(prior, horizon=past.horizon, **{**options, **self.options})


@dataclass(frozen=True)
class Constant:
    """A constant of AutoISD.

    Attributes
    ----------
    name, value, source : str
        As the page shows them; source: where the value comes from.
    scaled : callable
        Factor -> Variant in which the constant is this many times as large.
    """

    name: str
    value: str
    source: str
    scaled: Callable[[float], Variant]


def _normalized(
    weights: Sequence[float], place: int, factor: float
) -> tuple[float, ...]:
    scaled = np.array(weights)
    scaled[place] *= factor
    return tuple((scaled / scaled.sum()).tolist())


def _stage(name: str, **values: Any) -> Variant:
    """AutoISD with other values in one of the dataclasses of `constants`."""
    return Variant({(stages, name): replace(getattr(stages, name), **values)})


def _times(value: Any, factor: float) -> Any:
    """A number, or all numbers of a tuple, times the factor."""
    return (
        tuple(_times(part, factor) for part in value)
        if isinstance(value, tuple)
        else value * factor
    )


def _scaled(stage: str, *names: str) -> Callable[[float], Variant]:
    """Constants of a stage times the factor."""
    known = getattr(stages, stage)
    return lambda factor: _stage(
        stage, **{name: _times(getattr(known, name), factor) for name in names}
    )


def _weight(place: int, name: str = "weights") -> Callable[[float], Variant]:
    weights = getattr(stages.FEATURES, name)
    return lambda factor: _stage(
        "FEATURES", **{name: _normalized(weights, place, factor)}
    )


def _drift_factors(factor: float) -> Variant:
    drifts = stages.FEATURES.drifts
    return _stage(
        "FEATURES",
        drifts=tuple((factor * c, rate) for c, rate in drifts),
    )


def _drift_steps(factor: float) -> Variant:
    drifts = stages.FEATURES.drifts
    return _stage("FEATURES", drifts=tuple((c, factor * rate) for c, rate in drifts))


def _signal_level(factor: float) -> Variant:
    level = stages.TRUST.signal_level
    return _stage("TRUST", signal_level=1.0 - factor * (1.0 - level))


def _still_baselines(factor: float) -> Variant:
    still = stages.BASELINES.still
    moving = stages.BASELINES.moving
    return _stage(
        "BASELINES",
        still=_normalized(still, 0, factor),
        moving=_normalized(moving, 1, factor),
    )


METHOD = "method"
STUDY = "study"
CONVENTION = "convention"
CONSTANTS = (
    Constant("weight of “nothing changed”", "0.1", STUDY, _weight(0)),
    Constant("weight of “drift as in the logs”", "0.6", STUDY, _weight(1)),
    Constant("weight of “invariance broken”", "0.2", STUDY, _weight(2)),
    Constant("weight of “logs useless”", "0.1", STUDY, _weight(3)),
    Constant(
        "weight of “nothing changed” at η = 0.1",
        "0.8",
        STUDY,
        _weight(0, "weak_signal_weights"),
    ),
    Constant(
        "`Members.drifts`, factors c",
        "¼ to 16",
        METHOD + ": a grid of factor 4",
        _drift_factors,
    ),
    Constant(
        "`Members.drifts`, steps per round",
        "0.001 to 0.05",
        METHOD + ": a grid of factor 5 to 10",
        _drift_steps,
    ),
    Constant(
        "`Members.break_sizes`",
        "0.05, 0.5, 2",
        METHOD + ": a grid",
        _scaled("FEATURES", "break_sizes"),
    ),
    Constant(
        "`Members.walking`, `Members.widest`",
        "10, 30",
        CONVENTION + ": far wider than any coefficient",
        _scaled("FEATURES", "widest", "narrower", "walking", "useless_baseline"),
    ),
    Constant(
        "`Members.useless_rates`",
        "0.001, 0.01",
        METHOD + ": a grid",
        _scaled("FEATURES", "useless_rates"),
    ),
    Constant("`Baselines.step`", "0.02 s²", STUDY, _scaled("BASELINES", "step")),
    Constant(
        "`Baselines.doubt`, `Baselines.broken_doubt`",
        "10 s², 0.5 s²",
        CONVENTION,
        _scaled("BASELINES", "doubt", "broken_doubt"),
    ),
    Constant(
        "share of still baselines (others: 0.3, 0.1)", "0.6", STUDY, _still_baselines
    ),
    Constant("`Trust.least`", "0.1", STUDY, _scaled("TRUST", "least")),
    Constant("`Trust.drift_rounds`", "10", STUDY, _scaled("TRUST", "drift_rounds")),
    Constant(
        "1 − `Trust.signal_level`",
        "0.1",
        CONVENTION + ": a test at 10 %",
        _signal_level,
    ),
    Constant(
        "`PriorFit.rarely_persistent`",
        "0.05",
        CONVENTION,
        lambda factor: Variant(
            {
                CHANGES_THE_PRIOR: replace(
                    PRIOR, rarely_persistent=factor * PRIOR.rarely_persistent
                )
            }
        ),
    ),
    Constant(
        "`Members.continuing` (arms: 0.5)",
        "0.1",
        STUDY,
        _scaled("FEATURES", "continuing"),
    ),
    Constant(
        "`Members.persistent` (arms: 0.95)",
        "0.1",
        STUDY,
        _scaled("FEATURES", "persistent"),
    ),
    Constant(
        "`Learning.student_freedom`",
        "5",
        CONVENTION,
        _scaled("LEARNING", "student_freedom"),
    ),
    Constant(
        "`Learning.noise_prior_rounds`",
        "30",
        STUDY,
        _scaled("LEARNING", "noise_prior_rounds"),
    ),
    Constant(
        "`Learning.share`",
        "10⁻⁵",
        STUDY,
        lambda factor: Variant(options={"share": factor * stages.LEARNING.share}),
    ),
    Constant(
        "`Members.deviations` of a choice (arms: 1)",
        "0.5",
        STUDY,
        _scaled("FEATURES", "deviations"),
    ),
    Constant("`Tests.doubt`", "0.02", STUDY, _scaled("TESTS", "doubt")),
    Constant("`Tests.neglect`", "3", STUDY, _scaled("TESTS", "neglect")),
    Constant("`Tests.patience`", "3", CONVENTION, _scaled("TESTS", "patience")),
    Constant("`Tests.price`", "3", STUDY, _scaled("TESTS", "price")),
    Constant(
        "`Tests.rounds`",
        "8",
        METHOD + ": a test at two standard errors",
        _scaled("TESTS", "rounds"),
    ),
    Constant(
        "`Learning.parked`",
        "10⁻⁴",
        METHOD + ": for speed",
        _scaled("LEARNING", "parked"),
    ),
    Constant(
        "`Learning.rest`", "8", METHOD + ": for speed", _scaled("LEARNING", "rest")
    ),
)
"""Every constant of AutoISD with its value, and where the value comes from."""
SAFEGUARDS: Mapping[str, Any] = {
    "caution 0": PolicySpec("auto-isd", {"caution": 0.0}),
    "0.01": PolicySpec("auto-isd", {"caution": 0.01}),
    "0.03": PolicySpec("auto-isd", {"caution": 0.03}),
    "no limit": PolicySpec("auto-isd", {"caution": None}),
    "guarded, caution 0": PolicySpec("guarded", {"caution": 0.0}),
    "guarded, no limit": PolicySpec("guarded", {"caution": None}),
    "guarded, no limit, alpha 2": PolicySpec("guarded", {"caution": None, "alpha": 2}),
    "LinUCB": Linear(),
}
"""Ways to be safe where the logs mislead: values of the option `caution`, and the guard at alpha 1 and 2."""


@dataclass(frozen=True)
class World:
    """Where constants are varied.

    times: how many times as many repetitions it gets. A few runs that settle on a wrong arm decide the mean
    regret of fixed arms.
    """

    name: str
    environment: Environment
    horizon: int
    caution: float | None = 0.0
    times: int = 1


FIXED_TIMES = 4
"""Repetitions of worlds with fixed arms, as a multiple of those of the others."""
WORLDS = (
    World("paper, T0 = 1,000", PaperEpisodes(logged=1000), 500),
    World("paper, T0 = 8,000", PaperEpisodes(logged=8000), 500),
    World("invariance broken", StressEpisodes(broken=1.0), 1000),
    World("a walk goes on", StressEpisodes(drift="walk", residual_dim=10), 1000),
    World("5 arms, none changed", FixedArms(5, changed=0.0), 2000, caution=None),
    World(
        "5 arms, all changed",
        FixedArms(5, changed=1.0),
        2000,
        caution=None,
        times=FIXED_TIMES,
    ),
)
"""Worlds in which constants are halved and doubled."""
CAUTION_WORLDS = (
    World("paper, T0 = 8,000", PaperEpisodes(logged=8000), 500),
    World("5 arms, none changed", FixedArms(5, changed=0.0), 2000, times=FIXED_TIMES),
    World("5 arms, half changed", FixedArms(5, changed=0.5), 2000, times=FIXED_TIMES),
    World("5 arms, all changed", FixedArms(5, changed=1.0), 2000, times=FIXED_TIMES),
)
"""Worlds in which the price of caution is measured."""
CAUTION_WORDS = (
    "Each cell has the mean regret ± its standard error (worst run in brackets): of AutoISD for one value"
    " of the option `caution`, of AutoISD guarded by LinUCB, and of LinUCB with a constant feature. Worlds"
    f" with fixed arms (the same in every round) have {FIXED_TIMES} times as many repetitions as the other"
    " worlds."
)
CAUTION_SEEDS = 1000  # where the places of their seeds begin


def policies_of(
    world: World, constants: Sequence[Constant] = CONSTANTS
) -> dict[str, Callable[[Past], AutoISD]]:
    """Who plays: AutoISD as it is, and with each constant halved and doubled."""
    variants = {AS_IS: Variant()}
    for constant in constants:
        variants |= {
            variant_name(constant, factor): constant.scaled(factor)
            for factor in (HALF, DOUBLE)
        }
    return {
        name: _in_world(variant, world.caution) for name, variant in variants.items()
    }


def variant_name(constant: Constant, factor: float) -> str:
    """The name under which a variant plays."""
    return f"{constant.name} × {factor:g}"


def _in_world(variant: Variant, caution: float | None) -> Callable[[Past], AutoISD]:
    return lambda past: variant(past, caution=caution)


def run(
    worlds: Sequence[World] = WORLDS,
    caution_worlds: Sequence[World] = CAUTION_WORLDS,
    constants: Sequence[Constant] = CONSTANTS,
    *,
    replications: int = 40,
    seed: int = 20270114,
    jobs: int = 1,
    progress: Progress | None = None,
) -> StudyOutcome:
    """All repetitions of all worlds, none discarded; all variants play the same rounds.

    The outcome has, beside the regret: caution, world -> safeguard -> regret (n,).
    """
    whole_number("replications", replications, 2)
    total = sum(world.times for world in (*worlds, *caution_worlds))
    player = CellPlayer(seed, jobs, progress, replications * total)
    regret: dict[str, Mapping[str, Array]] = {}
    price: dict[str, Mapping[str, Array]] = {}

    def play(
        world: World, policies: Mapping[str, Any], index: int
    ) -> Mapping[str, Array]:
        cell = Cell(world.name, world.environment, world.horizon, policies)
        return player.regrets(cell, index, replications * world.times)

    for index, world in enumerate(worlds):
        regret[world.name] = play(world, policies_of(world, constants), index)
    for index, world in enumerate(caution_worlds):
        price[world.name] = play(world, SAFEGUARDS, CAUTION_SEEDS + index)
    return StudyOutcome(
        regret, replications, seed, {"caution": price, "constants": tuple(constants)}
    )


def verdicts(outcome: StudyOutcome) -> Judged:
    """None: this study measures, it promises nothing."""
    return []


def report(outcome: StudyOutcome) -> str:
    """The study as a Markdown page."""
    lines = [
        "# The constants of AutoISD, halved and doubled",
        "",
        "How does the regret of the policy AutoISD change if one of its built-in constants is halved or"
        " doubled?",
        "",
        "| | how it was measured |",
        "|---|---|",
        f"| repetitions | each simulated world is played {outcome.replications} times, and {FIXED_TIMES}"
        f" times as often if rewards of its arms change after the logs (seed {outcome.seed}); no run is"
        " discarded |",
        "| pairs | all variants play the same logs, features and noise |",
        "| a cell | the change of mean regret ± its paired standard error; 0: no choice differs |",
        "| bold | a change of more than three standard errors and more than 5 % of the regret; about one"
        " cell in 400 exceeds three standard errors by chance |",
        "| – | no world has a bold change |",
        "| fixed arms | a few runs that settle on a wrong arm dominate the mean, so these rows have more"
        " repetitions (except the unchanged arms where constants are varied) |",
        "| this page | a single run, by which no constant was chosen |",
        "| change after this run | AutoISD's trust uses the signal among all offered actions, not only"
        " among the logged actions; for logs with uniformly random choices, as here, the two differ only"
        " by sampling error |",
        "",
        *short_lines(outcome),
        *_constant_lines(outcome),
        *_caution_lines(outcome),
    ]
    return "\n".join(lines)


def change_cell(regret: Mapping[str, Array], name: str) -> str:
    """The change of mean regret ± its paired standard error; bold if it matters."""
    apart = regret[name] - regret[AS_IS]
    if not apart.any():
        return "0"
    change = mean_of(apart)
    words = change.with_error(1, "+")
    matters = abs(change.value) > max(
        3.0 * change.error, 0.05 * float(regret[AS_IS].mean())
    )
    return f"**{words}**" if matters else words


def short_lines(outcome: StudyOutcome) -> list[str]:
    """One line per constant: the largest change of regret that matters, in percent, and its world."""
    rows = [
        (
            constant.name,
            constant.value,
            constant.source,
            _largest_change(outcome, variant_name(constant, HALF)),
            _largest_change(outcome, variant_name(constant, DOUBLE)),
        )
        for constant in outcome.more["constants"]
    ]
    headings = ("constant", "value", "from", "halved", "doubled")
    return ["## In short", "", *table(headings, rows)]


def _largest_change(outcome: StudyOutcome, name: str) -> str:
    changes = {}
    for world, regret in outcome.values.items():
        if change_cell(regret, name).startswith("**"):
            as_is = float(regret[AS_IS].mean())
            changes[world] = 100.0 * (float(regret[name].mean()) - as_is) / as_is
    if not changes:
        return "–"
    world = max(changes, key=lambda world: abs(changes[world]))
    return f"{changes[world]:+.0f} % ({world})".replace("-", "−")


def _constant_lines(outcome: StudyOutcome) -> list[str]:
    as_is = [mean_of(regret[AS_IS]).with_error() for regret in outcome.values.values()]
    rows = [("mean regret as is", "", "", "", *as_is)]
    for constant in outcome.more["constants"]:
        head = (constant.name, constant.value, constant.source)
        for factor, sign in ((HALF, "½"), (DOUBLE, "2")):
            name = variant_name(constant, factor)
            cells = [change_cell(regret, name) for regret in outcome.values.values()]
            rows.append((*head, sign, *cells))
            head = ("", "", "")
    headings = ("constant", "value", "from", "×", *outcome.values)
    return ["## Constants", "", *table(headings, rows)]


def _caution_lines(outcome: StudyOutcome) -> list[str]:
    rows = [
        (name, *map(regret_cell, regret.values()))
        for name, regret in outcome.more["caution"].items()
    ]
    return [
        "## The price of caution and of the guard",
        "",
        CAUTION_WORDS,
        "",
        *table(("world", *SAFEGUARDS), rows),
    ]
