"""What a comparison says in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invariant_bandits.evaluation.intervals import Estimate

if TYPE_CHECKING:
    from invariant_bandits.evaluation.comparison import Comparison


def verdict(difference: Estimate, assuming: str | None = None) -> str:
    """Would it have helped? In plain words.

    Parameters
    ----------
    difference : Estimate
        Paired difference to the log.
    assuming : str, optional
        The estimator that gave it, if it assumes more than the log.
    """
    if not difference.concludes:
        return f"cannot be known, because {'; '.join(difference.reasons)}"
    interval = f"[{difference.low:+.3g}, {difference.high:+.3g}] per round"
    if difference.low > 0.0:
        words = f"yes, by {difference.value:.3g} {interval}"
    elif difference.high < 0.0:
        words = f"no, it would have lost {-difference.value:.3g} {interval}"
    else:
        words = f"no difference can be seen: {difference.value:+.3g} {interval}"
    return words if assuming is None else f"if the {assuming} method's assumption holds: {words}"


def report(comparison: Comparison) -> str:
    """Tables, one verdict per policy, and what the numbers rest on."""
    lines = opening(comparison)
    if comparison.lines:
        against = f"against {comparison.reference}" if comparison.reference else ""
        heads = f"{'value per round':<28} {'against the log':<28} {against:<28}"
        wide = max(20, *(len(name) for name in comparison.policies))
        lines += ["", f"{'policy':<{wide}} {'by':<7} {heads} {'eff. rounds':>11}"]
        for one in comparison.lines:
            rival = "" if comparison.reference in (None, one.policy) else _cell(one.against_reference)
            cells = f"{_cell(one.value):<28} {_cell(one.against_log):<28} {rival:<28}"
            lines.append(f"{one.policy:<{wide}} {one.estimator:<7} {cells} {one.value.effective_sample:>11,.0f}")
    return "\n".join([*lines, "", *verdicts(comparison), "", *notes(comparison)])


def opening(comparison: Comparison) -> list[str]:
    """The verdict on the first policy, and what it rests on."""
    logged, first = comparison.logged, comparison.policies[0]
    return [
        f"{first} against what the log did: {comparison.verdict(first)}.",
        f"Fitted on the first {comparison.fitted_rounds:,} rounds, evaluated on the next {logged.rounds:,}.",
        f"The log itself earned {logged} per round.",
    ]


def verdicts(comparison: Comparison) -> list[str]:
    """A line per policy, and one on the propensities."""
    lines = ["Would it have helped?"]
    for name in comparison.policies:
        share = comparison.agreement[name]
        agrees = "" if share is None else f" (it agrees with the log in {100.0 * share:.0f} % of the rounds)"
        lines.append(f"  {name}: {comparison.verdict(name)}{agrees}")
    if comparison.calibration is not None:
        lines += ["", f"Propensities: {comparison.calibration.words}."]
    return lines


def notes(comparison: Comparison) -> list[str]:
    """A line per note and per assumption."""
    found = list(comparison.notes) + [f"{name}: {words}" for name, words in comparison.assumptions().items()]
    return [f"Note: {note}." for note in found]


def _cell(one: Estimate) -> str:
    return f"{one.value:+.3g} [{one.low:+.3g}, {one.high:+.3g}]" if one.concludes else "cannot be known"
