"""What pages say, as plain values for programs: one dictionary per answer, keys that stay (docs/logs.md lists
them).
"""

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
from invariant_bandits.reports import findings, model_page


def of_model(model: Model) -> dict[str, Any]:
    """What `fit` and `inspect` say about a model."""
    return {
        "policy": model.policy_name,
        "version": model.version,
        "rounds": model.moments.rounds,
        **(_of_features(model) if model.arms is None else _of_arms(model, model.arms)),
        "windows": [asdict(entry) for entry in findings.windows(model.moments)],
        "value": None if model.value is None else dict(model.value),
        "quality": of_quality(model.quality),
        "schema": model.schema.to_dict(),
        "left_out": [{"feature": entry.name, "why": str(entry)} for entry in model.dropped],
        "warnings": model_page.warnings(model),
    }


def _of_features(model: Model) -> dict[str, Any]:
    split = model.decomposition.split_
    blocks = [
        asdict(entry) | {"p_value": math.exp(entry.log_p_value)}
        for entry in findings.blocks(model.decomposition)
    ]
    return {
        "stable_dim": split.invariant_dim,
        "drifting_dim": split.residual_dim,
        "blocks": blocks,
        "features": [asdict(entry) for entry in findings.features(model.decomposition)],
    }


def _of_arms(model: Model, arms: ArmTable) -> dict[str, Any]:
    effects = [asdict(effect) for effect in model_page.effects(model, arm_prior(model))]
    return {
        "stable_dim": sum(not effect["drifts"] for effect in effects),
        "drifting_dim": sum(effect["drifts"] for effect in effects),
        "arms": of_arms(arms),
        "effects": effects,
    }


def of_arms(arms: ArmTable) -> list[dict[str, Any]]:
    """The arms of a model: label, first and last use, plays, and whether it can still be chosen."""
    return [asdict(arm) for arm in arms.arms]


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
        "left_out": [{"feature": feature.name, "why": str(feature)} for feature in read.dropped],
        "notes": [*result.notes, *read.notes],
    }


def of_logged_policy(result: LoggedPolicyValue) -> dict[str, Any]:
    """What `evaluate --policy-log` says."""
    return {
        "earned": _estimate(result.earned),
        "estimates": {
            name: _estimate(estimate) | {"holds_earned": result.covers(name)}
            for name, estimate in result.estimates.items()
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


def _estimate(estimate: Estimate) -> dict[str, Any]:
    """The numbers of an estimate that concludes; otherwise nothing but the reasons why it does not."""
    known = estimate.concludes
    return {
        "value": estimate.value if known else None,
        "low": estimate.low if known else None,
        "high": estimate.high if known else None,
        "effective_rounds": estimate.effective_sample,
        "reasons": list(estimate.reasons),
    }


def of_quality(quality: QualityReport) -> dict[str, Any]:
    """What was found while reading, with the values that were filled in by column."""
    return quality.to_dict() | {"imputed": quality.imputed}


def as_json(values: dict[str, Any]) -> str:
    """One line of strict JSON: times in ISO 8601, non-finite numbers null, control characters escaped."""
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
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
