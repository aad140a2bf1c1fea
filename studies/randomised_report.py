"""The price of randomised decisions: its page, and what must be true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from invariant_bandits.experiments.claims import Bound, Measurement, Verdict, mean_of, share_of, word_for
from studies.randomised import DEFAULTS, LINES, ROUNDS, SETTINGS, Measured, Setting

COVERED = Bound(0.93, 0.97)
JUDGED = ("DR, value", "SNIPS, value")
ALONE = SETTINGS[0]
GAIN = 0.1
"""A gain per round that a user may want to see, in standard deviations of the noise."""
FEWEST_CONCLUDING = 50
WORLD_IN_WORDS = (
    'Worlds: `StressEpisodes(drift="walk")` with coefficients times 0.3: ten features, five actions, noise of standard'
    " deviation 1; three of ten coefficients walk by steps of 0.003 per round, through 4,000 rounds of uniform logs and"
    " on; expected rewards of actions spread by about 0.7. AutoISD starts from these logs as it comes, is randomised,"
    " and plays; features, choices, rewards and propensities are its log. From that log a challenger is evaluated: the"
    " greedy regression on the first logs, which never learns again. Its true value is known, because features are"
    " Gaussian and rewards linear."
)
LOOKS = (
    "How often was looked: twice before, on seeds 7 (24 logs, coefficients times 1, where differences between actions"
    " are larger than the noise) and 8 (40 logs); after the first, coefficients were made smaller and DR was given the"
    " first logs for its reward model; no default was changed after either."
)
THIN = 0.2
"""Share of refused logs above which those that conclude are a selection."""


def verdicts(results: Mapping[Setting, Measured]) -> list[tuple[str, Verdict]]:
    """Coverage of the default settings, judged by the measured share itself."""
    judged = []
    for setting in (one for one in DEFAULTS if one in results):
        for line in JUDGED:
            found = coverage(results[setting], line)
            if found is not None:
                word = word_for(COVERED.meets(found.value))
                judged.append((f"{setting.name}, {line}", Verdict(word, found, numbers=found.with_interval())))
    return judged


def coverage(measured: Measured, line: str) -> Measurement | None:
    """Share of the concluding intervals that hold the truth; None where there are too few."""
    place = LINES.index(line)
    concludes = measured.concludes[:, place]
    if concludes.sum() < FEWEST_CONCLUDING:
        return None
    return share_of(int(measured.covers[concludes, place].sum()), int(concludes.sum()))


def half_width(measured: Measured, line: str) -> float:
    """Median over the logs; a refusal is infinitely wide."""
    place = LINES.index(line)
    wide = np.where(measured.concludes[:, place], measured.high[:, place] - measured.low[:, place], np.inf)
    return float(np.median(wide)) / 2.0


def price(results: Mapping[Setting, Measured], setting: Setting) -> Measurement:
    """Regret per round beyond that of AutoISD alone in the same worlds."""
    alone = results[ALONE].regret
    return mean_of(results[setting].regret[: len(alone)] - alone)


def charted(results: Mapping[Setting, Measured]) -> dict[str, list[tuple[str, float, float]]]:
    """Kind -> (label, price, half width of the value by DR) of the settings that conclude, for the picture."""
    rows: dict[str, list[tuple[str, float, float]]] = {}
    for setting, measured in results.items():
        wide, cost = half_width(measured, "DR, value"), price(results, setting).value
        if setting != ALONE and np.isfinite(wide):
            rows.setdefault(setting.kind, []).append((f"{setting.amount:g}", max(cost, 1e-4), wide))
    return rows


def report(results: Mapping[Setting, Measured], *, seed: int, rounds: int = ROUNDS, pictures: str | None = None) -> str:
    """The study as a Markdown page; `pictures`: where it finds randomised-light.png and randomised-dark.png."""
    counts = [len(measured.regret) for measured in results.values()]
    lines = [
        "# The price of randomised decisions, measured",
        "",
        f"{max(counts)} logs of {rounds:,} rounds with the default settings, {min(counts)} with the others, seed"
        f" {seed}; none discarded, all settings in the same worlds. " + WORLD_IN_WORDS,
        "",
        LOOKS,
        "",
        *_picture_lines(pictures),
        *_goal_lines(results),
        *_table_lines(results),
        *_advice_lines(results),
    ]
    return "\n".join(lines)


def _picture_lines(pictures: str | None) -> list[str]:
    if pictures is None:
        return []
    words = "Regret that randomising adds, against the half width of a later evaluation"
    return [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{pictures}/randomised-dark.png">',
        f'  <img alt="{words}" src="{pictures}/randomised-light.png">',
        "</picture>",
        "",
        "*What is paid (to the right) for what is known later (below): below and to the left is better.*",
        "",
    ]


def _goal_lines(results: Mapping[Setting, Measured]) -> list[str]:
    lines = ["## What must be true", "", f"Coverage of the challenger's true value, nominal 95 % [{COVERED}]:", ""]
    lines += ["| | measured (95 % interval) | |", "|---|---|---|"]
    lines += [f"| {name} | {verdict.numbers} | {verdict.mark} |" for name, verdict in verdicts(results)]
    return [*lines, ""]


def _table_lines(results: Mapping[Setting, Measured]) -> list[str]:
    lines = [
        "## Price and worth",
        "",
        "Regret per round, and how much of it randomising adds (paired with AutoISD alone). Half widths: medians over"
        " the logs of 95 % intervals of the challenger's value, by doubly robust and self-normalised estimates, and of"
        " its difference to the log; refused: logs from which DR concludes nothing. Rounds: how many it takes"
        f" until the half width of the difference by DR is {GAIN:g}, if it falls with the square root.",
        "",
        "| | regret | added | DR ± | SNIPS ± | difference, DR ± | refused | coverage DR, SNIPS | rounds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return [*lines, *(_row(results, setting) for setting in results), ""]


def _row(results: Mapping[Setting, Measured], setting: Setting) -> str:
    measured = results[setting]
    added = "" if setting == ALONE else price(results, setting).with_error(4, "+")
    widths = [half_width(measured, line) for line in ("DR, value", "SNIPS, value", "DR, difference")]
    found = [coverage(measured, line) for line in JUDGED]
    shares = ", ".join("–" if one is None else f"{one.value:.3f}" for one in found)
    refused = 1.0 - float(measured.concludes[:, 0].mean())
    cells = [
        mean_of(measured.regret).with_error(4),
        added,
        *("none" if np.isinf(wide) else f"{wide:.3f}" for wide in widths),
        f"{refused:.0%}",
        shares,
        "–" if np.isinf(widths[2]) else f"{round(ROUNDS * (widths[2] / GAIN) ** 2, -2):,.0f}",
    ]
    return f"| {setting.name} | {' | '.join(cells)} |"


def _advice_lines(results: Mapping[Setting, Measured]) -> Sequence[str]:
    thin = [one for one in results.values() if 1.0 - float(one.concludes[:, 0].mean()) > THIN]
    lowest = [found.value for one in thin for line in JUDGED if (found := coverage(one, line)) is not None]
    warning = (
        f" Where more than {THIN:.0%} of the logs are refused, chance is too thin for so many rounds, and the intervals"
        f" of the others, a lucky selection, hold the truth less often than promised (down to {min(lowest):.3f} here):"
        " take more chance, or more rounds."
        if lowest
        else ""
    )
    return [
        "## How to choose",
        "",
        "A log can tell about what it tries. Where a challenger differs from the policy that logs, its value rests on"
        " the few rounds in which chance played the challenger's action, each weighing K/floor: four times the floor"
        " halves the intervals, at four times the price. Inverse-gap weighting spends its chance on actions that look"
        " nearly as good, where trying costs little. Without any chance (floor 0) nothing can be known, however long"
        f" the log is.{warning}",
        "",
    ]
