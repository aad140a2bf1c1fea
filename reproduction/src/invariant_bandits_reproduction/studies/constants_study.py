"""Every constant of AutoISD halved and doubled, and the price of caution: mean regret, paired."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.decomposition import drift_prior
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.policies import auto, mixture, mixture_kernels
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.mixture import Baseline
from invariant_bandits.policies.past import Past
from invariant_bandits.simulation.cells import Cell, Tally
from invariant_bandits.simulation.episodes import Environment, PaperEpisodes
from invariant_bandits.simulation.stress_worlds import FixedArms, StressEpisodes
from invariant_bandits_reproduction.claims import (
    Judged,
    mean_of,
)
from invariant_bandits_reproduction.studies.harness import (
    Progress,
    StudyOutcome,
    cell_seed,
    regret_cell,
    table,
)

AS_IS = "as is"
HALF = 0.5
DOUBLE = 2.0
KERNEL_CONSTANTS = {
    name: float(getattr(mixture_kernels, name))
    for name in (
        *(
            "NOISE_PRIOR_ROUNDS",
            "PARKED",
            "REST",
            "DOUBT",
            "NEGLECT",
            "PATIENCE",
            "TEST_PRICE",
            "TEST_ROUNDS",
        ),
    )
}
"""Constants of the compiled loops that the study varies, and their values."""
CHANGES_THE_PRIOR = (drift_prior, "RARELY_PERSISTENT")


@contextmanager
def kernels_with_settings() -> Iterator[None]:
    """Let AutoISD run on compiled loops that read KERNEL_CONSTANTS from the buffer instead of their source.

    They are compiled once for all variants, about half a minute. `Variant` writes the constants.
    """
    name = "mixture_kernels_with_settings"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / f"{name}.py"
        path.write_text(
            _source_with_settings(Path(mixture_kernels.__file__).read_text())
        )
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        stack.enter_context(patch.dict(sys.modules, {name: module}))
        spec.loader.exec_module(module)
        stack.enter_context(patch.object(mixture, "kernels", module))
        stack.enter_context(patch.object(auto, "kernels", module))
        yield


def _source_with_settings(source: str) -> str:
    """The source of the loops in which function bodies read the constants from `filters.numbers`."""
    places = {
        name: mixture_kernels.NUMBERS + index
        for index, name in enumerate(KERNEL_CONSTANTS)
    }
    source = re.sub(
        r"^NUMBERS = \d+$",
        f"NUMBERS = {max(places.values()) + 1}",
        source,
        flags=re.MULTILINE,
    )
    words = re.compile(r"\b(" + "|".join(places) + r")\b")
    lines = [
        words.sub(lambda match: f"filters.numbers[{places[match[1]]}]", line)
        if line[:1] == " "
        else line
        for line in source.splitlines()
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Variant:
    """AutoISD with other constants.

    Parameters
    ----------
    constants : (module, name) -> value
        In place while the policy is made.
    options : name -> value
        Of AutoISD.
    loops : name -> value
        Of KERNEL_CONSTANTS.
    """

    constants: Mapping[tuple[ModuleType, str], Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    loops: Mapping[str, float] = field(default_factory=dict)

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
            policy = AutoISD(prior, horizon=past.horizon, **{**options, **self.options})
        buffer = policy.mixture.buffer
        if auto.kernels is not mixture_kernels:
            position = mixture_kernels.NUMBERS
            values = list((KERNEL_CONSTANTS | dict(self.loops)).values())
            buffer[position : position + len(values)] = values
        return policy


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


def _of_mixture(
    name: str, change: Callable[[Any, float], Any]
) -> Callable[[float], Variant]:
    value = getattr(mixture, name)
    return lambda factor: Variant({(mixture, name): change(value, factor)})


def _times(value: Any, factor: float) -> Any:
    """A number, or all numbers of a tuple, times the factor."""
    return (
        tuple(_times(part, factor) for part in value)
        if isinstance(value, tuple)
        else value * factor
    )


def _weight(place: int, name: str = "HYPOTHESIS_WEIGHTS") -> Callable[[float], Variant]:
    return _of_mixture(
        name, lambda weights, factor: _normalized(weights, place, factor)
    )


def _loop(name: str) -> Callable[[float], Variant]:
    return lambda factor: Variant(loops={name: KERNEL_CONSTANTS[name] * factor})


def _break_sizes(factor: float) -> Variant:
    sizes = {
        (mixture, name): _times(getattr(mixture, name), factor)
        for name in ("BREAK_SIZES", "LARGE_BREAK")
    }
    return Variant(sizes)


def _flat(factor: float) -> Variant:
    sizes = mixture.FEATURE_SIZES._replace(
        widest=mixture.VERY_FLAT * factor, others=(factor,)
    )
    flat = {
        (mixture, name): getattr(mixture, name) * factor
        for name in ("FLAT", "VERY_FLAT")
    }
    return Variant({**flat, (mixture, "FEATURE_SIZES"): sizes})


def _baselines(change: Callable[[Baseline], Baseline]) -> Variant:
    """All ways in which baselines may behave, changed; shares add up to 1 as before."""
    constants: dict[tuple[ModuleType, str], Any] = {}
    for name in ("CORE_BASELINES", "OTHER_BASELINES", "BROKEN_BASELINES"):
        changed = {}
        for moves, kinds in getattr(mixture, name).items():
            kinds = [change(kind) for kind in kinds]
            total = sum(kind.share for kind in kinds)
            changed[moves] = tuple(
                kind._replace(share=kind.share / total) for kind in kinds
            )
        constants[mixture, name] = changed
    return Variant(constants)


def _baseline_rate(factor: float) -> Variant:
    return _baselines(lambda kind: kind._replace(step=kind.step * factor))


def _baseline_doubt(factor: float) -> Variant:
    return _baselines(lambda kind: kind._replace(doubt=kind.doubt * factor))


def _still_baselines(factor: float) -> Variant:
    return _baselines(
        lambda kind: (
            kind
            if kind.step or kind.doubt
            else kind._replace(share=kind.share * factor)
        )
    )


def _size(name: str) -> Callable[[float], Variant]:
    return _of_mixture(
        "FEATURE_SIZES",
        lambda sizes, factor: sizes._replace(**{name: factor * getattr(sizes, name)}),
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
        _weight(0, "WEAK_SIGNAL_WEIGHTS"),
    ),
    Constant(
        "`DRIFTS`, factors c",
        "¼ to 16",
        METHOD + ": a grid of factor 4",
        _of_mixture(
            "DRIFTS",
            lambda drifts, factor: tuple((factor * c, rate) for c, rate in drifts),
        ),
    ),
    Constant(
        "`DRIFTS`, steps per round",
        "0.001 to 0.05",
        METHOD + ": a grid of factor 5 to 10",
        _of_mixture(
            "DRIFTS",
            lambda drifts, factor: tuple((c, factor * rate) for c, rate in drifts),
        ),
    ),
    Constant(
        "`BREAK_SIZES`, `LARGE_BREAK`",
        "0.05, 0.5, 2",
        METHOD + ": a grid",
        _break_sizes,
    ),
    Constant(
        "`FLAT`, `VERY_FLAT`",
        "10, 30",
        CONVENTION + ": far wider than any coefficient",
        _flat,
    ),
    Constant(
        "`USELESS_RATES`",
        "0.001, 0.01",
        METHOD + ": a grid",
        _of_mixture("USELESS_RATES", _times),
    ),
    Constant("`BASELINE_RATE`", "0.02 s²", STUDY, _baseline_rate),
    Constant(
        "`BASELINE_DOUBT`, `BROKEN_BASELINE_DOUBT`",
        "10 s², 0.5 s²",
        CONVENTION,
        _baseline_doubt,
    ),
    Constant(
        "share of still baselines (others: 0.3, 0.1)", "0.6", STUDY, _still_baselines
    ),
    Constant("`LEAST_TRUST`", "0.1", STUDY, _of_mixture("LEAST_TRUST", _times)),
    Constant("`DRIFT_ROUNDS`", "10", STUDY, _of_mixture("DRIFT_ROUNDS", _times)),
    Constant(
        "1 − `SIGNAL_LEVEL`",
        "0.1",
        CONVENTION + ": a test at 10 %",
        _of_mixture("SIGNAL_LEVEL", lambda level, factor: 1.0 - factor * (1.0 - level)),
    ),
    Constant(
        "`RARELY_PERSISTENT`",
        "0.05",
        CONVENTION,
        lambda factor: Variant(
            {CHANGES_THE_PRIOR: factor * drift_prior.RARELY_PERSISTENT}
        ),
    ),
    Constant("`Sizes.continuing` (arms: 0.5)", "0.1", STUDY, _size("continuing")),
    Constant("`Sizes.persistent` (arms: 0.95)", "0.1", STUDY, _size("persistent")),
    Constant(
        "`STUDENT_FREEDOM`", "5", CONVENTION, _of_mixture("STUDENT_FREEDOM", _times)
    ),
    Constant("`NOISE_PRIOR_ROUNDS`", "30", STUDY, _loop("NOISE_PRIOR_ROUNDS")),
    Constant(
        "`share`",
        "10⁻⁵",
        STUDY,
        lambda factor: Variant(options={"share": factor * auto.DEFAULT_SHARE}),
    ),
    Constant(
        "`Sizes.deviations` of a choice (arms: 1)", "0.5", STUDY, _size("deviations")
    ),
    Constant("`DOUBT`", "0.02", STUDY, _loop("DOUBT")),
    Constant("`NEGLECT`", "3", STUDY, _loop("NEGLECT")),
    Constant("`PATIENCE`", "3", CONVENTION, _loop("PATIENCE")),
    Constant("`TEST_PRICE`", "3", STUDY, _loop("TEST_PRICE")),
    Constant(
        "`TEST_ROUNDS`",
        "8",
        METHOD + ": a test at two standard errors",
        _loop("TEST_ROUNDS"),
    ),
    Constant("`PARKED`", "10⁻⁴", METHOD + ": for speed", _loop("PARKED")),
    Constant("`REST`", "8", METHOD + ": for speed", _loop("REST")),
)
"""Every constant of AutoISD with its value, and where the value comes from."""
CAUTIONS: tuple[float | None, ...] = (0.0, 0.01, 0.03, None)
"""Values of the option `caution`; None: no limit."""


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
    "Each cell has the mean regret of AutoISD ± its standard error (worst run in brackets) for one value"
    f" of the option `caution`. Worlds with fixed arms (the same in every round) have {FIXED_TIMES} times"
    " as many repetitions as the other worlds."
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

    The outcome has, beside the regret: caution, world -> caution -> regret (n,).
    """
    whole_number("replications", replications, 2)
    total = sum(world.times for world in (*worlds, *caution_worlds))
    tally = Tally(progress, replications * total)
    regret: dict[str, Mapping[str, Array]] = {}
    price: dict[str, Mapping[float | None, Array]] = {}

    def play(
        world: World, policies: Mapping[str, Any], place: int
    ) -> Mapping[str, Array]:
        cell = Cell(world.name, world.environment, world.horizon, policies)
        count = replications * world.times
        result = cell.play(
            count, cell_seed(seed, place), jobs, tally.begin(world.name, count)
        )
        return {name: result.final(name) for name in policies}

    with kernels_with_settings():
        for place, world in enumerate(worlds):
            regret[world.name] = play(world, policies_of(world, constants), place)
    for place, world in enumerate(caution_worlds):
        policies = {str(caution): _in_world(Variant(), caution) for caution in CAUTIONS}
        paths = play(world, policies, CAUTION_SEEDS + place)
        price[world.name] = {caution: paths[str(caution)] for caution in CAUTIONS}
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
    heads = ["no limit" if caution is None else f"{caution:g}" for caution in CAUTIONS]
    rows = [
        (name, *map(regret_cell, regret.values()))
        for name, regret in outcome.more["caution"].items()
    ]
    return [
        "## The price of caution",
        "",
        CAUTION_WORDS,
        "",
        *table(("caution", *heads), rows),
    ]
