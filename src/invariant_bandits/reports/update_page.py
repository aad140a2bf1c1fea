"""What an update of a model says: what changed since, before everything that the model itself says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from invariant_bandits.model.update import ALARM_LEVEL, Move, Update, drifting
from invariant_bandits.reports import model_page, values
from invariant_bandits.reports.page import WIDTH, Cell, Mark, Section, as_page, as_text, number

NOTABLE = 4.0
"""Standard errors from which on a single coefficient is said to have moved: one in 16,000 does so by chance.
"""
EXPLAINED = (
    "Coefficient of each feature in the windows before and in the new rounds, ± one standard error; z: the"
    " difference in standard errors."
)


def text(update: Update, width: int = WIDTH) -> str:
    """For a terminal of this width: what changed, then what the model says now."""
    model = update.model
    sections = [section(update), *model_page.sections(model)]
    return as_text(model_page.title(model), model_page.headline(model), sections, width)


def report(update: Update) -> str:
    """The page of the model, what changed before everything else."""
    model = update.model
    sections = [section(update), *model_page.sections(model, pictures=True)]
    return as_page(model_page.title(model), model_page.headline(model), sections)


def section(update: Update) -> Section:
    """What changed since."""
    rows: list[list[Cell]] = [
        [
            move.name,
            number(f"{move.before:+.3g} ± {move.before_error:.2g}"),
            number(f"{move.now:+.3g} ± {move.now_error:.2g}"),
            number(f"{move.z:+.1f}"),
            Mark("moved", "bad") if abs(move.z) > NOTABLE else "",
        ]
        for move in update.moves
    ]
    return Section(
        "What changed since", sentences(update), ("feature", "before", "new rounds", "z", ""), rows
    )


def sentences(update: Update) -> list[str]:
    """In words: how much was added, whether what was stable moved, what drifts now, where rewards went."""
    before, after = update.before, update.model
    more = after.moments.windows - before.moments.windows
    lines = [
        f"{update.new.rounds:,} new rounds, {_windows(more)};"
        f" {update.quality.left_out:,} rounds of the new log were left out.",
        _alarm(update),
        _drift(update),
    ]
    mean_before, mean_now, z = update.reward_shift
    lines.append(
        f"Mean reward: {mean_before:.4g} before, {mean_now:.4g} in the new rounds ({z:+.1f} standard errors)."
    )
    strange = [reason for reason in update.quality.problems if reason.startswith("unknown category")]
    if strange:
        lines.append(f"The new log has values that the model does not know: {', '.join(strange)}.")
    gone = set(before.names) - set(after.names)
    if gone:
        lines.append(f"No longer estimated: {', '.join(sorted(gone))}.")
    return [*lines, EXPLAINED]


def _windows(more: int) -> str:
    if more <= 0:
        return "added to the last window"
    return "1 window more" if more == 1 else f"{more} windows more"


def _alarm(update: Update) -> str:
    p_value = update.stable_p_value
    if p_value is None:
        return "Whether what was stable has moved cannot be known from the new rounds."
    if update.alarm:
        return f"ALARM: what was stable before has moved (p = {p_value:.2g}, level {ALARM_LEVEL:g})."
    return f"Nothing says that what was stable before has moved (p = {p_value:.2g})."


def _drift(update: Update) -> str:
    (drifting_before, _), (drifting_now, every) = drifting(update.before), drifting(update.model)
    what = "dimensions" if update.model.arms is None else "effects"
    before = "as" if drifting_before == drifting_now else drifting_before
    return f"Drifting {what}: {drifting_now} of {every}, {before} before."


def as_values(update: Update) -> dict[str, Any]:
    """What `update` says: the model, and under `update` what changed."""
    mean_before, mean_now, z = update.reward_shift
    changed = {
        "new_rounds": update.new.rounds,
        "new_windows": update.model.moments.windows - update.before.moments.windows,
        "alarm": update.alarm,
        "stable_p_value": update.stable_p_value,
        "drifting_dim_before": drifting(update.before)[0],
        "mean_reward_before": mean_before,
        "mean_reward_now": mean_now,
        "mean_reward_z": z,
        "moves": [_move(move) for move in update.moves],
        "quality": values.of_quality(update.quality),
    }
    return values.of_model(update.model) | {"update": changed}


def _move(move: Move) -> dict[str, Any]:
    return asdict(move) | {"z": move.z, "moved": abs(move.z) > NOTABLE}
