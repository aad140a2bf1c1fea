"""What the study of intervals found, by world and estimator, and its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from invariant_bandits.experiments.claims import Bound, Measurement, Verdict, share_of, word_for
from studies.intervals import ESTIMATORS, LINES, VALUE, Ends, Outcome, Results, Setting

PROMISED = ("DR", "SNIPS", "replay")
ENOUGH = Bound(low=0.92)
FEWEST_CONCLUDING = 50
IN_DETAIL = ("clicks 1 %", "revenue, 99 % zeros", "AR(0.95) noise")
WHY_MISSED = (
    "Blocks see dependence only that is short against them. Noise that remembers 0.95 of the round before has a"
    " correlation time of 39 rounds, a block of 4,000 rounds has 133: by calculation the standard error over blocks"
    " taken as independent is 8 % too small, which makes 93 % of 95 %; what quarters of blocks show of it is added."
)
CHOSEN = (
    "How the worlds were chosen: on seed 7 (100 logs of 4,000 rounds) logging was first milder (ε = 0.2, half as sharp"
    " a softmax), where the rule of before missed less; it was made sharper."
)
LOOKS = (
    "How often was looked: this is the second look, with a changed rule. At the first (seed 20261201, 400 logs per"
    " cell) blocks counted as independent; AR(0.95) noise was missed at 4,000 rounds (DR 0.902, SNIPS 0.905, replay"
    " 0.905), and the lowest coverage elsewhere was 0.937. Then the standard error over blocks was made to include what"
    " neighbouring blocks share; how was chosen among some twenty variants, on other seeds (up to 2,000 logs per cell"
    " of this study's worlds, and 12,000 series of noise alone). This page is one run of the chosen rule on a seed that"
    " none of this has seen."
)
WORLDS_IN_WORDS = (
    "Four actions with three standard normal features; rewards depend on the first. *Gaussian*: 1 + score/2 + noise of"
    " variance 1; *t2.5*, *AR(0.95)*: the same with such noise; *drifting baseline*: a wave of amplitude 1.5 is added;"
    " *lognormal*: exp(score/2 + 1.5·normal); *clicks*: 0 or 1, at a rate logistic in the score; *revenue*: clicks of"
    " 1 % times lognormal amounts of mean 1. The target plays the best action by a score of its own and learns nothing;"
    " logs are uniform, softmax with a floor of 0.05 per action, or ε-greedy with ε = 0.1 (0.025 per action)."
)


@dataclass(frozen=True)
class Summary:
    """Figures of one world and estimator over all logging policies, lengths and quantities.

    lowest, lowest_before: coverage of concluding intervals where it is lowest, among cells with FEWEST_CONCLUDING of
    them, None if there is none; where: that cell; narrowest, widest: smallest and largest median over cells of the
    ratio of widths, now to before; refused, refused_before: shares of all logs; wrong, wrong_before: largest share of
    verdicts on the wrong side of zero among concluding differences.
    """

    lowest: Measurement | None
    where: str
    lowest_before: Measurement | None
    narrowest: float
    widest: float
    refused: float
    refused_before: float
    wrong: float
    wrong_before: float


def summary(results: Results, world: str, estimator: str) -> Summary:
    """What one estimator did in one world."""
    now, before, ratios, refused, wrong = list[tuple[float, int, str]](), list[tuple[float, int, str]](), [], [], []
    for cell, outcome, line in _columns(results, world, estimator):
        where = f"{LINES[line][1]}, {cell.logging}, {cell.rounds:,} rounds"
        for ends, found in ((outcome.now, now), (outcome.before, before)):
            if ends.concludes[:, line].sum() >= FEWEST_CONCLUDING:
                kept = ends.concludes[:, line]
                found.append((float(ends.covers[kept, line].mean()), int(kept.sum()), where))
        refused.append([1.0 - ends.concludes[:, line].mean() for ends in (outcome.now, outcome.before)])
        wrong.append([_wrong_share(ends, line) for ends in (outcome.now, outcome.before)])
        ratios.append(_width_ratio(outcome, line))
    lowest, lowest_before = (min(found, default=None) for found in (now, before))
    known = [ratio for ratio in ratios if not np.isnan(ratio)]
    return Summary(
        lowest=_share(lowest),
        where="" if lowest is None else lowest[2],
        lowest_before=_share(lowest_before),
        narrowest=min(known, default=np.nan),
        widest=max(known, default=np.nan),
        refused=float(np.mean(refused, axis=0)[0]),
        refused_before=float(np.mean(refused, axis=0)[1]),
        wrong=float(np.max(wrong, axis=0)[0]),
        wrong_before=float(np.max(wrong, axis=0)[1]),
    )


def _columns(results: Results, world: str, estimator: str) -> Iterator[tuple[Setting, Outcome, int]]:
    for cell, outcome in results.items():
        if cell.world == world:
            yield from ((cell, outcome, i) for i, line in enumerate(LINES) if line[0] == estimator)


def _share(found: tuple[float, int, str] | None) -> Measurement | None:
    return None if found is None else share_of(round(found[0] * found[1]), found[1])


def _wrong_share(ends: Ends, line: int) -> float:
    kept = ends.concludes[:, line]
    if LINES[line][1] == VALUE or kept.sum() < FEWEST_CONCLUDING:
        return 0.0
    return float(ends.wrong[kept, line].mean())


def _width_ratio(outcome: Outcome, line: int) -> float:
    """Median over logs in which both rules conclude; NaN if these are too few."""
    both = outcome.now.concludes[:, line] & outcome.before.concludes[:, line]
    if both.sum() < FEWEST_CONCLUDING:
        return float("nan")
    widths = [(ends.high - ends.low)[both, line] for ends in (outcome.now, outcome.before)]
    return float(np.median(widths[0]) / np.median(widths[1]))


def verdicts(results: Results) -> Iterator[tuple[str, str, Verdict]]:
    """World, estimator, and whether its lowest coverage is what it must be."""
    for world in dict.fromkeys(cell.world for cell in results):
        for estimator in PROMISED:
            found = summary(results, world, estimator)
            if found.lowest is not None:
                yield (
                    world,
                    estimator,
                    Verdict(word_for(ENOUGH.meets(found.lowest.value)), found.lowest, numbers=found.where),
                )


def report(results: Results, *, replications: int, seed: int) -> str:
    """The study as a Markdown page."""
    lines = [
        "# Intervals of off-policy estimates, measured",
        "",
        f"{replications} logs per cell with seed {seed}; intervals at nominal 95 %. {WORLDS_IN_WORDS}",
        "",
        CHOSEN,
        "",
        LOOKS,
        "",
        "*Before* is the rule that was replaced: a studentised bootstrap of 30 blocks of time, or Student's t over them"
        " where that was wider. An interval concludes if it is finite and nothing was refused; coverage is that of"
        f" concluding intervals, in cells with at least {FEWEST_CONCLUDING} of them.",
        "",
        "## What must be true",
        "",
        f"Lowest coverage over three logging policies, two lengths, values and differences to the log [{ENOUGH}]:",
        "",
        f"| | {' | '.join(PROMISED)} |",
        "|---|" + "---|" * len(PROMISED),
        *_promised_lines(results),
        "",
        _missed(results),
        "",
        "## All estimators",
        "",
        "Lowest coverage now, and before; ratio of median widths, now to before, from the narrowest cell to the widest;"
        " refusals as a share of all logs (before: with infinite ends); wrong verdicts: the largest share, over cells,"
        " of differences to the log whose interval lies on the wrong side of zero. Width ratios near 0 are cells in"
        " which the bootstrap's ends were nearly infinite, because many of its resamples held no reward.",
        "",
        "| world | by | coverage now | before | width ratio | refused, before | wrong, before | lowest now in |",
        "|---|---|---|---|---|---|---|---|",
        *(_summary_line(results, world, name) for world in _worlds(results) for name in ESTIMATORS),
        "",
        "## Rare rewards and long dependence, cell by cell",
        "",
        "Coverage now / before, and the ratio of median widths:",
        "",
        f"| world | log | rounds | of | {' | '.join(PROMISED)} |",
        "|---|---|---|---|" + "---|" * len(PROMISED),
        *_detailed_lines(results),
        "",
    ]
    return "\n".join(lines)


def _worlds(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.world for cell in results))


def _promised_lines(results: Results) -> Iterator[str]:
    judged = {(world, name): verdict for world, name, verdict in verdicts(results)}
    for world in _worlds(results):
        cells = [judged.get((world, name)) for name in PROMISED]
        shown = ["–" if one is None else f"{one.measured.with_interval()} {one.mark}" for one in cells]
        yield f"| {world} | {' | '.join(shown)} |"


def _missed(results: Results) -> str:
    """Where the promise is not kept, in words."""
    missed = [
        f"{world} by {name}, {verdict.measured.value:.3f} ({verdict.numbers})"
        for world, name, verdict in verdicts(results)
        if not verdict.reached
    ]
    return f"Missed: {'; '.join(missed)}. {WHY_MISSED}" if missed else "None is missed."


def _summary_line(results: Results, world: str, estimator: str) -> str:
    found = summary(results, world, estimator)
    now, before = ("–" if one is None else f"{one.value:.3f}" for one in (found.lowest, found.lowest_before))
    ratio = f"{found.narrowest:.2f}–{found.widest:.2f}"
    refused = f"{found.refused:.3f}, {found.refused_before:.3f}"
    wrong = "" if estimator == "the log" else f"{found.wrong:.3f}, {found.wrong_before:.3f}"
    return f"| {world} | {estimator} | {now} | {before} | {ratio} | {refused} | {wrong} | {found.where} |"


def _detailed_lines(results: Results) -> Iterator[str]:
    for cell, outcome in results.items():
        for quantity in dict.fromkeys(line[1] for line in LINES) if cell.world in IN_DETAIL else ():
            shown = [_detailed_figures(outcome, LINES.index((name, quantity))) for name in PROMISED]
            yield f"| {cell.world} | {cell.logging} | {cell.rounds:,} | {quantity} | {' | '.join(shown)} |"


def _detailed_figures(outcome: Outcome, line: int) -> str:
    shares = []
    for ends in (outcome.now, outcome.before):
        kept = ends.concludes[:, line]
        few = kept.sum() < FEWEST_CONCLUDING
        shares.append("–" if few else f"{ends.covers[kept, line].mean():.3f}")
    ratio = _width_ratio(outcome, line)
    return f"{shares[0]} / {shares[1]}{'' if np.isnan(ratio) else f', × {ratio:.2f}'}"
