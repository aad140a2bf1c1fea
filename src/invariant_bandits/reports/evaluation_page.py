"""What an evaluation says: sections for the page and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from invariant_bandits.evaluation.comparison import Comparison
from invariant_bandits.evaluation.propensities import Calibration
from invariant_bandits.logs.logged_feedback import LoggedFeedback
from invariant_bandits.reports import page, values
from invariant_bandits.reports.page import (
    WIDTH,
    Cell,
    Mark,
    Section,
    as_page,
    as_text,
    number,
)

TITLE = "Would it have helped?"


def report(result: Comparison, read: LoggedFeedback) -> str:
    """Return the HTML page, self-contained."""
    return as_page(TITLE, headline(result), sections(result, read, pictures=True))


def text(result: Comparison, read: LoggedFeedback, width: int = WIDTH) -> str:
    """Return the same for a terminal of this width."""
    return as_text(TITLE, headline(result), sections(result, read), width)


def headline(result: Comparison) -> str:
    """Return who is ahead, the first policy or the best simple one, and the verdict on the first."""
    return " ".join(result.headline())


def sections(
    result: Comparison, read: LoggedFeedback, *, pictures: bool = False
) -> Iterator[Section]:
    """Yield verdicts with a picture, all estimates, the propensities, and what the numbers rest on."""
    said = values.of_comparison(result, read)
    yield _verdicts(said["verdicts"], result, pictures)
    if said["estimates"]:
        yield _estimates(said["estimates"], said["reference"])
    if result.calibration is not None:
        yield _calibration(result.calibration)
    notes = [*said["notes"], *(f"left out: {dropped}" for dropped in read.dropped)]
    notes += [f"{name} method: {words}" for name, words in result.assumptions().items()]
    yield Section("What the numbers rest on", values.sentences(notes))
    yield Section("Data quality", read.quality.describe().splitlines())


def _verdicts(
    verdicts: list[dict[str, Any]], result: Comparison, pictures: bool
) -> Section:
    kinds = {"yes": "good", "no": "bad"}
    rows: list[list[Cell]] = []
    for verdict in verdicts:
        agreement = verdict["agreement"]
        rows.append(
            [
                result.with_settings(verdict["policy"]),
                number("" if agreement is None else f"{100.0 * agreement:.0f} %"),
                verdict["estimator"] or "",
                Mark(verdict["words"], kinds.get(verdict["answer"], "unsure")),
            ]
        )
    picture = ""
    if pictures and any(verdict["answer"] != "unknown" for verdict in verdicts):
        picture = page.picture(
            page.svg_of(result.plot().figure),
            "differences",
            "Gain per round over the log",
            "Paired differences to the log in the same rounds; intervals from blocks of time.",
        )
    headings = ("policy", "agrees with the log", "by", "would it have helped?")
    return Section(
        title="Verdicts", words=[], headings=headings, rows=rows, picture=picture
    )


def _interval(estimate: dict[str, Any]) -> Cell:
    """The cell of an estimate with its interval."""
    if estimate["value"] is None:
        return Mark("cannot be known", "unsure")
    return number(
        f"{estimate['value']:+.3g} [{estimate['low']:+.3g}, {estimate['high']:+.3g}]"
    )


def _estimates(estimates: list[dict[str, Any]], reference: str | None) -> Section:
    headings = ["policy", "by", "value per round", "against the log"]
    if reference is not None:
        headings.append(f"against {reference}")
    rows: list[list[Cell]] = []
    for line in estimates:
        row = [line["policy"], line["estimator"]]
        row += [_interval(line["value"]), _interval(line["against_log"])]
        if reference == line["policy"]:
            row.append(number(""))
        elif reference is not None:
            row.append(_interval(line["against_reference"]))
        rows.append([*row, number(f"{line['value']['effective_rounds']:,.0f}")])
    words = (
        "exact: played, every reward is known. DR: doubly robust, believe it first. SNIPS, IPS: weighted by"
        " propensities. replay: rounds in which the policy agrees with the log. direct: by a reward model"
        " alone. Effective rounds: how many rounds of the policy's own the weighted rounds are worth."
    )
    return Section(
        title="All estimates",
        words=[words],
        headings=[*headings, "effective rounds"],
        rows=rows,
    )


def _calibration(calibration: Calibration) -> Section:
    words = [
        "Are the propensities right? Choices that they promise against choices that were seen, a line per"
        " check; z is the difference in standard errors.",
        f"The verdict: {calibration.words}.",
    ]
    rows: list[list[Cell]] = [
        [
            check.name,
            number(f"{check.expected:.3f}"),
            number(f"{check.observed:.3f}"),
            number(f"{check.z:.1f}"),
        ]
        for check in calibration.checks
    ]
    return Section(
        title="Propensities",
        words=words,
        headings=("check", "promised", "seen", "z"),
        rows=rows,
    )
