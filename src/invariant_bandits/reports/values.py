"""What pages say, as plain values for programs: one dictionary per answer, keys that stay (docs/logs.md lists them)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from invariant_bandits.checks import escape_json
from invariant_bandits.evaluation.comparison import Comparison
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.logged import LoggedFeedback, LoggedPolicyValue
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.model.fit import arm_prior
from invariant_bandits.model.model import Model
from invariant_bandits.model.update import ALARM_LEVEL, Move, Update, drifting
from invariant_bandits.reports import findings, model_page
from invariant_bandits.reports import model_page as arm_page
from invariant_bandits.reports.page import WIDTH, Cell, Mark, Section, as_page, as_text, number


def of_model(model: Model) -> dict[str, Any]:
    """What `fit` and `inspect` say about a model."""
    return {
        "policy": model.policy_name,
        "version": model.version,
        "rounds": model.moments.rounds,
        **(_of_features(model) if model.arms is None else _of_arms(model, model.arms)),
        "windows": [asdict(one) for one in findings.windows(model.moments)],
        "value": None if model.value is None else dict(model.value),
        "quality": of_quality(model.quality),
        "schema": model.schema.to_dict(),
        "left_out": [{"feature": one.name, "why": str(one)} for one in model.dropped],
        "warnings": model_page.warnings(model),
    }


def _of_features(model: Model) -> dict[str, Any]:
    split = model.decomposition.split_
    blocks = [asdict(one) | {"p_value": math.exp(one.log_p_value)} for one in findings.blocks(model.decomposition)]
    return {
        "stable_dim": split.invariant_dim,
        "drifting_dim": split.residual_dim,
        "blocks": blocks,
        "features": [asdict(one) for one in findings.features(model.decomposition)],
    }


def _of_arms(model: Model, arms: ArmTable) -> dict[str, Any]:
    found = [asdict(one) for one in arm_page.effects(model, arm_prior(model))]
    return {
        "stable_dim": sum(not one["drifts"] for one in found),
        "drifting_dim": sum(one["drifts"] for one in found),
        "arms": of_arms(arms),
        "effects": found,
    }


def of_arms(arms: ArmTable) -> list[dict[str, Any]]:
    """The arms of a model: label, first and last use, plays, and whether it can still be chosen."""
    return [asdict(one) for one in arms.arms]


def of_comparison(result: Comparison, read: LoggedFeedback) -> dict[str, Any]:
    """What `evaluate` says."""
    checked = result.calibration
    return {
        "fitted_rounds": result.fitted_rounds,
        "played_rounds": result.logged.rounds,
        "logged": _estimate(result.logged),
        "reference": result.reference,
        "verdicts": [_verdict(result, name) for name in result.policies],
        "estimates": [
            {
                "policy": line.policy,
                "estimator": line.estimator,
                "value": _estimate(line.value),
                "against_log": _estimate(line.against_log),
                "against_reference": _estimate(line.against_reference),
            }
            for line in result.lines
        ],
        "propensities": None if checked is None else {"flagged": checked.flagged, "p_value": checked.p_value},
        "quality": of_quality(read.quality),
        "schema": read.schema.to_dict(),
        "left_out": [{"feature": one.name, "why": str(one)} for one in read.dropped],
        "notes": [*result.notes, *read.notes],
    }


def of_logged_policy(result: LoggedPolicyValue) -> dict[str, Any]:
    """What `evaluate --policy-log` says."""
    return {
        "earned": _estimate(result.earned),
        "estimates": {
            name: _estimate(one) | {"holds_earned": result.covers(name)} for name, one in result.estimates.items()
        },
        "notes": list(result.notes),
    }


def concludes(result: Comparison) -> bool:
    """Whether anything at all can be known about some policy."""
    return any(line.against_log.concludes for line in result.lines)


def _verdict(result: Comparison, name: str) -> dict[str, Any]:
    line = result.line(name)
    return {
        "policy": name,
        "answer": _answer(None if line is None else line.against_log),
        "estimator": None if line is None else line.estimator,
        "gain": None if line is None else _estimate(line.against_log),
        "agreement": result.agreement[name],
        "words": result.verdict(name),
    }


def _answer(gain: Estimate | None) -> str:
    """One word: would it have helped?"""
    if gain is None or not gain.concludes:
        return "unknown"
    if gain.low > 0.0:
        return "yes"
    return "no" if gain.high < 0.0 else "no difference"


def _estimate(one: Estimate) -> dict[str, Any]:
    """The numbers of an estimate that concludes; otherwise nothing but the reasons why it does not."""
    known = one.concludes
    return {
        "value": one.value if known else None,
        "low": one.low if known else None,
        "high": one.high if known else None,
        "effective_rounds": one.effective_sample,
        "reasons": list(one.reasons),
    }


def of_quality(quality: QualityReport) -> dict[str, Any]:
    """What was found while reading, with the values that were filled in by column."""
    return quality.to_dict() | {"imputed": quality.imputed}


def as_json(values: dict[str, Any]) -> str:
    """One line of strict JSON: times in ISO 8601, what is not finite null, what steers terminals written out."""
    return escape_json(json.dumps(_plain(values), allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]"))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


NOTABLE = 4.0
"""Standard errors from which on a single coefficient is said to have moved: one in 16,000 does so by chance."""
EXPLAINED = (
    "Coefficient of each feature in the windows before and in the new rounds, ± one standard error; z: the difference"
    " in standard errors."
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
    return Section("What changed since", sentences(update), ("feature", "before", "new rounds", "z", ""), rows)


def sentences(update: Update) -> list[str]:
    """In words: how much was added, whether what was stable moved, what drifts now, where rewards went."""
    before, after = update.before, update.model
    more = after.moments.windows - before.moments.windows
    found = [
        f"{update.new.rounds:,} new rounds, {_windows(more)};"
        f" {update.quality.left_out:,} rounds of the new log were left out.",
        _alarm(update),
        _drift(update),
    ]
    was, now, z = update.reward_shift
    found.append(f"Mean reward: {was:.4g} before, {now:.4g} in the new rounds ({z:+.1f} standard errors).")
    strange = [reason for reason in update.quality.problems if reason.startswith("unknown category")]
    if strange:
        found.append(f"The new log has values that the model does not know: {', '.join(strange)}.")
    gone = set(before.names) - set(after.names)
    if gone:
        found.append(f"No longer estimated: {', '.join(sorted(gone))}.")
    return [*found, EXPLAINED]


def _windows(more: int) -> str:
    if more <= 0:
        return "added to the last window"
    return "1 window more" if more == 1 else f"{more} windows more"


def _alarm(update: Update) -> str:
    p_value = update.stable_p_value
    if p_value is None:
        return "Whether what was stable has moved cannot be told from the new rounds."
    if update.alarm:
        return f"ALARM: what was stable before has moved (p = {p_value:.2g}, level {ALARM_LEVEL:g})."
    return f"Nothing says that what was stable before has moved (p = {p_value:.2g})."


def _drift(update: Update) -> str:
    (was, _), (now, every) = drifting(update.before), drifting(update.model)
    what = "dimensions" if update.model.arms is None else "effects"
    return f"Drifting {what}: {now} of {every}, {'as' if was == now else was} before."


def as_values(update: Update) -> dict[str, Any]:
    """What `update` says: the model, and under `update` what changed."""
    was, now, z = update.reward_shift
    changed = {
        "new_rounds": update.new.rounds,
        "new_windows": update.model.moments.windows - update.before.moments.windows,
        "alarm": update.alarm,
        "stable_p_value": update.stable_p_value,
        "drifting_dim_before": drifting(update.before)[0],
        "mean_reward_before": was,
        "mean_reward_now": now,
        "mean_reward_z": z,
        "moves": [_move(move) for move in update.moves],
        "quality": of_quality(update.quality),
    }
    return of_model(update.model) | {"update": changed}


def _move(move: Move) -> dict[str, Any]:
    return asdict(move) | {"z": move.z, "moved": abs(move.z) > NOTABLE}
