"""What an evaluation says: sections for the report and for the terminal."""

from __future__ import annotations

from invariant_bandits.evaluation import comparison as words_of
from invariant_bandits.evaluation.comparison import Comparison, Line
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.logged import LoggedFeedback
from invariant_bandits.evaluation.propensities import Calibration
from invariant_bandits.reports import page
from invariant_bandits.reports.page import (
    WIDTH,
    Cell,
    Mark,
    Section,
    as_page,
    filled,
    lines_of,
    number,
    table_lines,
)

TITLE = "Would it have helped?"
UNKNOWN = Mark("cannot be known", "unsure")
ESTIMATORS = (
    "exact: played, every reward is known. DR: doubly robust, believe it first. SNIPS, IPS: weighted by"
    " propensities. replay: rounds in which the policy agrees with the log. direct: by a reward model alone."
    " Effective rounds: how many rounds of the policy's own the weighted rounds are worth."
)
CALIBRATION = (
    "Are the propensities right? Choices that they promise against choices that were seen, a line per check;"
    " z is the difference in standard errors."
)


def report(result: Comparison, read: LoggedFeedback) -> str:
    """The HTML page, self-contained."""
    return as_page(TITLE, headline(result), sections(result, read))


def text(result: Comparison, read: LoggedFeedback, width: int = WIDTH) -> str:
    """For a terminal of this width: the comparison's own words, then what is known of the log beyond it."""
    extra = [] if result.calibration is None else [_calibration(result.calibration, read.feature_map.names)]
    notes = _sentences([*read.notes, *(f"left out: {dropped}" for dropped in read.dropped)])
    extra += [Section("How the log was read", notes)] if notes else []
    estimates = _estimates(result)
    table = ["", *table_lines(estimates.headings, estimates.rows, width)] if result.lines else []
    words = [*words_of.verdicts(result), "", *words_of.notes(result)]
    lines = [*(filled(line, width) for line in words_of.opening(result)), *table, ""]
    return "\n".join(
        [*lines, *(filled(line, width) for line in words), *lines_of([*extra, _quality(read)], width)]
    )


def headline(result: Comparison) -> str:
    """The verdict on the first policy, and what it is compared with."""
    first = result.policies[0]
    return (
        f"{first} against what the log did: {result.verdict(first)}. Fitted on the first"
        f" {result.fitted_rounds:,} rounds, evaluated once on the next {result.logged.rounds:,}, which earned"
        f" {result.logged} per round."
    )


def sections(result: Comparison, read: LoggedFeedback) -> list[Section]:
    """Verdicts with a picture, all estimates, the propensities, and what the numbers rest on."""
    parts = [_verdicts(result)]
    if result.lines:
        parts.append(_estimates(result))
    if result.calibration is not None:
        parts.append(_calibration(result.calibration, read.feature_map.names))
    notes = [*result.notes, *read.notes, *(f"left out: {dropped}" for dropped in read.dropped)]
    notes += [f"{name} method: {words}" for name, words in result.assumptions().items()]
    return [*parts, Section("What the numbers rest on", _sentences(notes)), _quality(read)]


def _sentences(notes: list[str]) -> list[str]:
    return [f"{note[0].upper()}{note[1:]}." for note in notes]


def _quality(read: LoggedFeedback) -> Section:
    return Section("Data quality", read.quality.describe().splitlines())


def _verdicts(result: Comparison) -> Section:
    rows: list[list[Cell]] = []
    for name in result.policies:
        line, share = result.line(name), result.agreement[name]
        words = result.verdict(name)
        kind = "unsure" if line is None else _kind(line.against_log)
        agrees = "" if share is None else f"{100.0 * share:.0f} %"
        rows.append([name, number(agrees), "" if line is None else line.estimator, Mark(words, kind)])
    headings = ("policy", "agrees with the log", "by", "would it have helped?")
    return Section("Verdicts", [], headings, rows, _chart(result))


def _kind(difference: Estimate) -> str:
    if not difference.concludes or difference.low <= 0.0 <= difference.high:
        return "unsure"
    return "good" if difference.low > 0.0 else "bad"


def _chart(result: Comparison) -> str:
    from invariant_bandits import plotting

    lines = [line for name in result.policies if (line := result.line(name)) is not None]
    drawn = {
        f"{line.policy} ({line.estimator})": line.against_log for line in lines if line.against_log.concludes
    }
    if not drawn:
        return ""
    figure = plotting.difference_chart(
        {name: (gain.value, gain.low, gain.high) for name, gain in drawn.items()}
    )
    words = "; ".join(
        f"{name}: {gain.value:+.3g} [{gain.low:+.3g}, {gain.high:+.3g}]" for name, gain in drawn.items()
    )
    caption = "Paired differences to the log in the same rounds; intervals from blocks of time."
    return page.picture(page.svg_of(figure), "differences", f"Gain per round over the log. {words}", caption)


def _estimates(result: Comparison) -> Section:
    reference = result.reference
    headings = ["policy", "by", "value per round", "against the log"]
    headings += [f"against {reference}"] if reference is not None else []
    rows = [_row(line, reference) for line in result.lines]
    return Section("All estimates", [ESTIMATORS], [*headings, "effective rounds"], rows)


def _row(line: Line, reference: str | None) -> list[Cell]:
    cells: list[Cell] = [line.policy, line.estimator, _cell(line.value), _cell(line.against_log)]
    if reference is not None:
        cells.append(number("") if line.policy == reference else _cell(line.against_reference))
    return [*cells, number(f"{line.value.effective_sample:,.0f}")]


def _cell(estimate: Estimate) -> Cell:
    return (
        number(f"{estimate.value:+.3g} [{estimate.low:+.3g}, {estimate.high:+.3g}]")
        if estimate.concludes
        else UNKNOWN
    )


def _calibration(calibration: Calibration, names: tuple[str, ...]) -> Section:
    calibration = calibration.named(names)
    rows: list[list[Cell]] = [
        [
            check.name,
            number(f"{check.expected:.3f}"),
            number(f"{check.observed:.3f}"),
            number(f"{check.z:.1f}"),
        ]
        for check in calibration.checks
    ]
    words = calibration.words[0].upper() + calibration.words[1:]
    sentence = (
        f"They are flagged as wrong: {words.removeprefix('WRONG: ')}." if calibration.flagged else f"{words}."
    )
    return Section("Propensities", [CALIBRATION, sentence], ("check", "promised", "seen", "z"), rows)
