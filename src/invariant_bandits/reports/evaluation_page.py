"""What an evaluation says: sections for the page and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from invariant_bandits.evaluation.comparison import Comparison
from invariant_bandits.evaluation.logged import LoggedFeedback
from invariant_bandits.evaluation.propensities import Calibration
from invariant_bandits.reports import page, values
from invariant_bandits.reports.page import (
    WIDTH,
    Cell,
    Columns,
    Mark,
    Section,
    as_page,
    as_text,
    number,
)

TEXTS = page.TEXTS["evaluation"]
TITLE = "Would it have helped?"
INTERVAL = "{value:+.3g} [{low:+.3g}, {high:+.3g}]"
UNKNOWN = Mark("cannot be known", "unsure")


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
        yield _calibration(result.calibration.named(read.feature_map.names))
    notes = [*said["notes"], *(f"left out: {dropped}" for dropped in read.dropped)]
    notes += [f"{name} method: {words}" for name, words in result.assumptions().items()]
    yield Section("What the numbers rest on", values.sentences(notes))
    yield Section("Data quality", read.quality.describe().splitlines())


def _verdicts(
    verdicts: list[dict[str, Any]], result: Comparison, pictures: bool
) -> Section:
    kinds = {"yes": "good", "no": "bad"}
    columns: Columns = {
        "policy": lambda of: result.with_settings(of["policy"]),
        "agrees with the log": lambda of: number(
            "" if of["agreement"] is None else f"{100.0 * of['agreement']:.0f} %"
        ),
        "by": lambda of: of["estimator"] or "",
        "would it have helped?": lambda of: Mark(
            of["words"], kinds.get(of["answer"], "unsure")
        ),
    }
    picture = ""
    if pictures and any(verdict["answer"] != "unknown" for verdict in verdicts):
        drawing = page.svg_of(result.plot().figure)
        picture = page.picture(
            drawing, "differences", "Gain per round over the log", TEXTS["differences"]
        )
    return Section.of_records("Verdicts", [], columns, verdicts, picture)


def _estimates(estimates: list[dict[str, Any]], reference: str | None) -> Section:
    def cell(estimate: dict[str, Any]) -> Cell:
        return (
            UNKNOWN
            if estimate["value"] is None
            else number(INTERVAL.format(**estimate))
        )

    columns: Columns = {
        "policy": "{policy}",
        "by": "{estimator}",
        "value per round": lambda line: cell(line["value"]),
        "against the log": lambda line: cell(line["against_log"]),
    }
    if reference is not None:
        columns[f"against {reference}"] = lambda line: (
            number("")
            if line["policy"] == reference
            else cell(line["against_reference"])
        )
    columns["effective rounds"] = lambda line: number(
        f"{line['value']['effective_rounds']:,.0f}"
    )
    return Section.of_records(
        "All estimates", [TEXTS["estimators"]], columns, estimates
    )


def _calibration(calibration: Calibration) -> Section:
    words = [TEXTS["calibration"], f"The verdict: {calibration.words}."]
    records = [vars(check) | {"z": check.z} for check in calibration.checks]
    return Section.of_records(
        "Propensities", words, page.TEXTS["columns"]["checks"], records
    )
