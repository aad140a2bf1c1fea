"""What stored priors must be: the numbers and arrays of DriftPrior and of ArmPrior, with their shapes and ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Any

from invariant_bandits.checks import InputError, number_between, one_of, whole_number
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.description import (
    Check,
    Description,
    Numbers,
    count,
    covariance,
    finite_number,
    orthonormal,
    truth_value,
    variance,
)

LARGEST_MEAN, LARGEST_VARIANCE, LEAST_NOISE = 1e100, 1e200, 1e-200


def _means(*shape: str, **rest: Any) -> Numbers:
    return Numbers(shape, least=-LARGEST_MEAN, most=LARGEST_MEAN, **rest)


def _covariances(*shape: str, **rest: Any) -> Numbers:
    return Numbers(shape, least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE, law=covariance, **rest)


def _variances(*shape: str, **rest: Any) -> Numbers:
    return Numbers(shape, least=0.0, most=LARGEST_VARIANCE, **rest)


def _noise(name: str, value: Any) -> float:
    return number_between(name, value, LEAST_NOISE, LARGEST_VARIANCE)


DRIFT_ARRAYS: dict[str, Numbers] = {
    "basis": Numbers(("p", "p"), law=orthonormal),
    **dict.fromkeys(("mean", "pooled"), _means("p")),
    **dict.fromkeys(("mean_covariance", "pooled_covariance"), _covariances("p", "p")),
    **dict.fromkeys(("drift", "unit"), _variances("p")),
    "last_means": _means("h", "p", or_empty=True),
    "last_covariances": _covariances("h", "p", "p", or_empty=True),
    "last_steps": _variances("h", "p", or_empty=True),
    **dict.fromkeys(("drift_limit", "informing"), _variances("p", or_empty=True)),
    "feature_mean": _means("p", or_empty=True),
    "feature_precision": _covariances("p", "p", or_empty=True),
}
DRIFT_NUMBERS: dict[str, Check] = {
    "noise_variance": _noise,
    **dict.fromkeys(("baseline", "drift_misfit"), finite_number),
    **dict.fromkeys(("baseline_variance", "baseline_error", "signal_variance"), variance),
    "baseline_moves": truth_value,
    "windows": count,
}
ARM_ARRAYS: dict[str, Numbers] = {
    **dict.fromkeys(("mean", "pooled", "last_mean", "estimates"), _means("p")),
    **dict.fromkeys(("mean_covariance", "pooled_covariance", "last_covariance"), _covariances("p", "p")),
    "drift": Numbers(("p", "p"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE),
    **dict.fromkeys(("common", "spread", "typical_drift"), _variances("o")),
    **dict.fromkeys(("unit", "errors", "drift_sizes"), _variances("p")),
    "relation": _covariances("A", "A"),
    "described": _means("A", "c"),
    "described_mean": _means("c"),
    "described_scale": Numbers(("c",), least=1e-100, most=LARGEST_MEAN),
    "p_values": Numbers(("p",), least=0.0, most=1.0, or_nan=True),
    "plays": Numbers(("A",), least=0.0, most=float(2**62)),
    "context_square": _covariances("w", "w"),
}
ARM_NUMBERS: dict[str, Check] = {
    "layout": lambda name, value: None,  # its sizes are those of the arrays
    "link": partial(one_of, allowed=("identity", "logit")),
    "likeness": lambda name, value: number_between(name, value, -1e-9, 1.0),
    **dict.fromkeys(("noise_variance", "level_unit"), _noise),
    "baseline_moves": truth_value,
    "windows": count,
}


def described_drift_prior(numbers: Mapping[str, Any], names: Collection[str]) -> Description:
    """What a stored DriftPrior must be; earlier files lack what has a default."""
    needed = {one.name for one in fields(DriftPrior) if one.default is MISSING and one.default_factory is MISSING}
    arrays = {name: one for name, one in DRIFT_ARRAYS.items() if name in needed or name in names}
    if not numbers.keys() <= DRIFT_NUMBERS.keys() or not needed <= numbers.keys() | arrays.keys():
        raise InputError("the prior is not whole")
    return Description(arrays, DRIFT_NUMBERS)


def described_arm_prior(numbers: Mapping[str, Any]) -> Description:
    """What a stored ArmPrior must be."""
    layout = numbers["layout"]
    if numbers.keys() != ARM_NUMBERS.keys() or layout.keys() != {"arms", "own", "shared"}:
        raise InputError("the prior is not whole")
    arms, own = whole_number("layout.arms", layout["arms"], 1), whole_number("layout.own", layout["own"], 1)
    shared = whole_number("layout.shared", layout["shared"], 0)
    return Description(ARM_ARRAYS, ARM_NUMBERS, {"A": arms, "o": own, "p": arms * own + shared})


def wrong_contexts(numbers: Mapping[str, Any], width: int) -> str:
    """Why an ArmPrior with these numbers cannot have contexts of this width; empty if it can."""
    layout = numbers["layout"]
    fits = layout["own"] <= width and (not layout["shared"] or width - 1 <= layout["shared"])
    return "" if fits else f"contexts of {width} numbers do not fit the layout of the arms"
