"""What pages say, as plain values: tables of pages show them, `--json` prints them.

docs/how-to/logs.md lists the keys, which stay.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, escape_json, in_sentence
from invariant_bandits.decomposition.effects import effect_paths, effect_rows
from invariant_bandits.decomposition.estimator import (
    InvariantSubspaceDecomposition,
    block_spread,
    block_verdict,
    detectable_in_block,
    main_features,
    uninformed_features,
)
from invariant_bandits.decomposition.split import Split
from invariant_bandits.evaluation.comparison import Comparison
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.logged import LoggedPolicyValue
from invariant_bandits.logs.logged_feedback import LoggedFeedback
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.model.model import Model
from invariant_bandits.model.update import Update, drifting
from invariant_bandits.moments.windowed import WindowedMoments

RECENT_PLAYS = 100
"""Plays that the recent mean reward of an arm rests on at least, if there were as many."""


def of_model(model: Model, update: Update | None = None) -> dict[str, Any]:
    """Return what `fit` and `inspect` say about a model and, after an update, what changed."""
    if model.arms is None:
        structure = {
            "blocks": blocks(model.decomposition),
            "features": features(model.decomposition),
        }
    else:
        structure = {"arms": [asdict(arm) for arm in model.arms.arms]}
    drifts, dimensions = drifting(model)
    return {
        "policy": model.policy_name,
        "version": model.version,
        "rounds": model.moments.rounds,
        "stable_dim": dimensions - drifts,
        "drifting_dim": drifts,
        **structure,
        "effects": effects(model),
        "windows": windows(model.moments),
        "value": None if model.value is None else dict(model.value),
        **_of_log(model, model.quality),
        "warnings": warnings(model),
        **({} if update is None else {"update": _of_update(update)}),
    }


def _of_log(read: Model | LoggedFeedback, quality: QualityReport) -> dict[str, Any]:
    """What was read, from which columns, and what was left out of it."""
    return {
        "quality": quality.to_dict() | {"imputed": quality.imputed},
        "schema": read.schema.to_dict(),
        "columns": [
            dict(zip(("role", "column", "why"), row, strict=True))
            for row in read.schema.rows()
        ],
        "left_out": [
            {"feature": feature.name, "why": str(feature)} for feature in read.dropped
        ],
    }


def _of_update(update: Update) -> dict[str, Any]:
    mean_before, mean_now, z = update.reward_shift
    return {
        "new_rounds": update.new.rounds,
        "new_windows": update.model.moments.windows - update.before.moments.windows,
        "alarm": update.alarm,
        "stable_p_value": update.stable_p_value,
        "new_drift": [effect.title for effect in update.new_drift],
        "drifting_dim_before": drifting(update.before)[0],
        "mean_reward_before": mean_before,
        "mean_reward_now": mean_now,
        "mean_reward_z": z,
        "moves": moves(update),
        "quality": update.quality.to_dict() | {"imputed": update.quality.imputed},
    }


def moves(update: Update) -> list[dict[str, Any]]:
    """Return every coefficient before and in the new rounds, and whether it moved."""
    return [asdict(move) | {"moved": move.moved} for move in update.moves]


def blocks(fit: InvariantSubspaceDecomposition) -> list[dict[str, Any]]:
    """Return every block of directions that are judged together, drifting ones first.

    number: from 1, in the order of the basis, the same in every table and figure; drift: standard deviation
    of a coefficient between windows beyond sampling error; drift_in_reward: what that changes in the reward
    of an action one standard deviation away; error: standard error of a coefficient within one window;
    detectable: drift that would have been detected in about four of five such logs.
    """
    covariance = fit.window_covariances_.mean(axis=0)
    rows = []
    for index, columns in enumerate(fit.blocks_):
        drift, error = block_spread(fit, index)
        along = fit.basis_[:, columns]
        log_p = float(fit.log_p_values_[index])
        # Mean variance of the features along the block.
        scale = float(np.sqrt(np.trace(along.T @ covariance @ along) / len(columns)))
        rows.append(
            {
                "number": index + 1,
                "drifts": bool(fit.varies_[index]),
                "verdict": block_verdict(fit, index),
                "detectable": detectable_in_block(fit, index),
                "dim": len(columns),
                "log_p_value": log_p,
                "p_value": math.exp(log_p),
                "drift": drift,
                "drift_in_reward": drift * scale,
                "error": error,
                "main_features": main_features(fit, index),
            }
        )
    return sorted(rows, key=lambda row: not row["drifts"])


def features(fit: InvariantSubspaceDecomposition) -> list[dict[str, Any]]:
    """Return the stable share and the coefficient of every feature, the least stable feature first.

    Coefficients with their errors are those in all windows and in the last one, None if that window does not
    inform them.
    """
    mean, covariance = fit.paths_.weighted_mean()
    error = np.sqrt(np.diagonal(covariance))
    last_error = np.sqrt(np.diagonal(fit.coefficient_covariances_[-1]))
    names = fit.names(len(mean))
    uninformed = uninformed_features(fit.paths_)[-1]
    rows = []
    for j in np.argsort(fit.feature_stability_, kind="stable"):
        known = not uninformed[j]
        row = {
            "name": names[j],
            "stable_share": float(fit.feature_stability_[j]),
            "coefficient": float(mean[j]),
            "error": float(error[j]),
            "last_coefficient": float(fit.coefficients_[-1, j]) if known else None,
            "last_error": float(last_error[j]) if known else None,
        }
        rows.append(row)
    return rows


def windows(moments: WindowedMoments) -> list[dict[str, Any]]:
    """Return when every window begins, if that is known, and its rounds and rewards, in the order of time."""
    deviation = np.sqrt(moments.reward_square / np.maximum(moments.counts - 1, 1))
    return [
        {
            "number": i + 1,
            "begins": None if moments.edges is None else moments.edges[i],
            "rounds": int(moments.counts[i]),
            "mean_reward": float(moments.reward_mean[i]),
            "sd_reward": float(deviation[i]),
        }
        for i in range(moments.windows)
    ]


def effects(model: Model) -> list[dict[str, Any]]:
    """Return every effect with its verdict and its path over the windows, in units of the reward.

    Drifting ones are first, then they are in the order of their p-values.
    """
    paths = effect_paths(model)
    edges = model.moments.edges
    rows = effect_rows(paths, edges)
    for path, row in zip(paths, rows, strict=True):
        curve = np.column_stack([path.values, path.low, path.high]).tolist()
        row["of"] = row["effect"]
        row["words"] = path.in_words(edges)
        row["windows"] = [
            dict(zip(("value", "low", "high"), point, strict=True)) for point in curve
        ]
    return rows


def arm_rewards(model: Model) -> tuple[Array, Array, Array]:
    """Return the mean reward (A, m) of every arm in every window, its standard error, and its plays.

    Means and errors are NaN where an arm was not played.
    """
    groups, sums = model.feature_map.groups(), model.moments.chosen
    # Arms that came later are not in the moments.
    levels = np.arange(0, model.moments.dim - groups.shared, groups.own)
    whole = sums.products()
    plays = np.diagonal(whole, axis1=1, axis2=2)[:, levels].T
    played = np.where(plays > 0.5, plays, np.nan)
    return (
        whole[:, levels, -1].T / played,
        np.sqrt(sums.covariance()[:, -1, -1] / played),
        plays,
    )


def recent_rewards(mean: Array, error: Array, plays: Array) -> tuple[Array, Array]:
    """Return the mean reward (A,) of every arm over its latest windows, and its standard error.

    As many windows from the last one back as hold enough plays: one with a few says little.
    """
    ahead = np.cumsum(plays[:, ::-1], axis=1)[:, ::-1] - plays  # in the windows after
    weight = np.where(np.isfinite(mean) & (ahead < RECENT_PLAYS), plays, 0.0)
    total = np.where(weight.sum(axis=1) > 0.0, weight.sum(axis=1), np.nan)
    recent = (weight * np.nan_to_num(mean)).sum(axis=1) / total
    # Errors of windows are independent: weighted, their squares add up.
    squares = (weight * np.nan_to_num(error)) ** 2
    return recent, np.sqrt(squares @ np.ones(weight.shape[1])) / total


def warnings(model: Model) -> list[str]:
    """Return what to be careful about, or a sentence that nothing speaks against the fit."""
    cautions = [*filter(None, [model.shared_slopes]), *model.notes]
    quality = model.quality
    of_split: list[str] = []
    if model.arms is None:
        cautions = [*model.decomposition.findings_, *cautions]
        of_split = _split_cautions(model.decomposition.split_)
    if quality.left_out:
        share = quality.left_out / max(quality.left_out + quality.rounds, 1)
        cautions.append(
            f"{quality.left_out:,} rounds ({100 * share:.2g} %) were left out, see data quality"
        )
    if quality.imputed:
        cautions.append(f"missing values were filled in: {_filled_in(model)}")
    cautions += of_split
    cautions += [f"left out: {words}" for words in model.dropped]
    return sentences(cautions) or ["Nothing speaks against this fit."]


def _split_cautions(split: Split) -> list[str]:
    """What to be careful about if nothing drifts, or everything."""
    if split.residual_dim == 0:
        return [
            "no drift was found: either there is none, or the log is too short to show it"
        ]
    if split.invariant_dim == 0:
        return [
            "nothing is stable: what was learned long ago does not help, only recent rounds do"
        ]
    return []


def sentences(notes: list[str]) -> list[str]:
    """Return the notes with a capital and a full stop."""
    return [in_sentence(note) for note in notes]


def _filled_in(model: Model) -> str:
    """How often which column was missing, and by what it was replaced."""
    columns = {column.name: column for column in model.feature_map.columns}
    words = []
    for name, count in sorted(model.quality.imputed.items(), key=lambda pair: -pair[1]):
        share = f"{100 * count / max(model.quality.rows, 1):.2g} %"
        fillers = (columns[name].filler or ()) if name in columns else ()
        by = f", by {fillers[0]:.4g}" if len(fillers) == 1 else ""
        words.append(f"{name} in {count:,} rows ({share}{by})")
    return "; ".join(words)


def of_comparison(result: Comparison, read: LoggedFeedback) -> dict[str, Any]:
    """Return what `evaluate` says."""
    checked = result.calibration
    return {
        "fitted_rounds": result.fitted_rounds,
        "played_rounds": result.logged.rounds,
        "logged": _estimate(result.logged),
        "reference": result.reference,
        "best_simple": next(iter(result.simple), None),
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
        "propensities": None
        if checked is None
        else {"flagged": checked.flagged, "p_value": checked.p_value},
        **_of_log(read, read.quality),
        "notes": [*result.notes, *read.notes],
    }


def of_logged_policy(result: LoggedPolicyValue) -> dict[str, Any]:
    """Return what `evaluate --policy-log` says."""
    return {
        "earned": _estimate(result.earned),
        "estimates": {
            name: _estimate(estimate) | {"holds_earned": result.covers(name)}
            for name, estimate in result.estimates.items()
        },
        "notes": list(result.notes),
    }


def _verdict(result: Comparison, name: str) -> dict[str, Any]:
    verdict: dict[str, Any] = {
        "policy": name,
        "settings": dict(result.settings.get(name, {})),
        "answer": "unknown",
        "estimator": None,
        "gain": None,
        "agreement": result.agreement[name],
        "words": result.verdict(name),
    }
    line = result.line(name)
    if line is not None:
        verdict["answer"] = line.against_log.answer
        verdict["estimator"] = line.estimator
        verdict["gain"] = _estimate(line.against_log)
    return verdict


def _estimate(estimate: Estimate) -> dict[str, Any]:
    """The numbers of an estimate that concludes, or only the reasons why it does not."""
    numbers = dict.fromkeys(("value", "low", "high"))
    if estimate.concludes:
        numbers = {name: getattr(estimate, name) for name in numbers}
    return {
        **numbers,
        "effective_rounds": estimate.effective_sample,
        "reasons": list(estimate.reasons),
    }


def as_json(values: dict[str, Any]) -> str:
    """Return one line of strict JSON.

    Times are in ISO 8601, non-finite numbers are null, control characters are escaped.
    """
    return escape_json(json.dumps(_plain(values), allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]"))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else str(value)
