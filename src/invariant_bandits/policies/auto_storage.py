"""The stored form of AutoISD: files of version 0.1 under the names of today, and whether arrays fit together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_layout import ArmLayout
from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.files import under
from invariant_bandits.policies.hypotheses import HYPOTHESES

PRIOR = "prior."
ARRAYS = (
    *("owners", "means", "covariances", "process", "weights", "prior_weights", "noise"),
    *("settled", "online"),
)
LATER_PRIOR: dict[str, Array] = {
    "last_means": np.zeros((0, 0)),
    "last_covariances": np.zeros((0, 0, 0)),
    "last_steps": np.zeros((0, 0)),
    "drift_limit": np.zeros(0),
    "informing": np.zeros(0),
    "feature_mean": np.zeros(0),
    "feature_precision": np.zeros((0, 0)),
}
"""Arrays of the prior that earlier files do not have."""
LATER_SCALARS: dict[str, Any] = {"signal_variance": 0.0, "windows": 0, "drift_misfit": 0.0}
"""Its numbers that they do not have."""


def renamed(arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Mapping[str, Array]:
    """The arrays under their names of today; files of version 0.1 packed several into a "table" and a "clock"."""
    d = arrays["means"].shape[-1]
    online = np.zeros((2, d + 1, d + 1))
    if "table" not in arrays:
        return {"settled": np.zeros(len(arrays["owners"]), dtype=np.int64), "online": online, **arrays}
    rest = {name: array for name, array in arrays.items() if name not in ("table", "clock", "families")}
    table, clock = arrays["table"], arrays["clock"]
    if table.ndim != 2 or len(table) != 4 or clock.shape != (2,):
        raise InputError(f"table and clock must have shapes (4, members) and (2,), got {table.shape}, {clock.shape}")
    return rest | {
        "owners": arrays["families"],
        "settled": np.zeros(table.shape[1], dtype=np.int64),
        "online": online,
        "weights": table[0],
        "prior_weights": table[1],
        "noise": np.full(table.shape[1], float(settings["prior"]["noise_variance"])),
        "peak_evidence": clock[1:],
        "counters": clock[:1].astype(np.int64),
    }


def prior_parts(prior: DriftPrior | ArmPrior) -> tuple[dict[str, Any], dict[str, Array]]:
    """What a file keeps of a prior: its numbers, and its arrays under "prior."."""
    derived = [one.name for one in fields(prior) if not one.init]
    every = {name: value for name, value in asdict(prior).items() if name not in derived}
    arrays = {f"{PRIOR}{name}": value for name, value in every.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in every.items() if f"{PRIOR}{name}" not in arrays}, arrays


def prior_of(numbers: Mapping[str, Any], arrays: Mapping[str, Array], intercept: bool) -> DriftPrior | ArmPrior:
    """The prior that `prior_parts` took apart, its arrays and those of the filters checked."""
    if "layout" in numbers:
        return _arm_prior_of(numbers, under(arrays, PRIOR), arrays, intercept)
    numbers = {**LATER_SCALARS, **numbers}
    stored = {**LATER_PRIOR, **under(arrays, PRIOR)}
    if {one.name for one in fields(DriftPrior)} != numbers.keys() | stored.keys():
        raise InputError("the prior is not whole")
    _check_shapes(arrays, _shapes_of(stored), len(stored["mean"]) + intercept)
    return DriftPrior(**{**numbers, **stored})


def _arm_prior_of(
    numbers: Mapping[str, Any], stored: Mapping[str, Array], arrays: Mapping[str, Array], intercept: bool
) -> ArmPrior:
    layout = ArmLayout(**{name: int(value) for name, value in numbers["layout"].items()})
    if {one.name for one in fields(ArmPrior) if one.init} != numbers.keys() | stored.keys():
        raise InputError("the prior is not whole")
    A, p, own = layout.arms, layout.dim, layout.own
    c, width = stored["described"].shape[-1], stored["context_square"].shape[-1]
    squares = ("mean_covariance", "drift", "pooled_covariance", "last_covariance")
    others: dict[str, tuple[int, ...]] = dict.fromkeys(squares, (p, p))
    others |= dict.fromkeys(("common", "spread", "typical_drift"), (own,))
    others |= {"relation": (A, A), "described": (A, c), "described_mean": (c,), "described_scale": (c,)}
    others |= {"plays": (A,), "context_square": (width, width)}
    _check_shapes(arrays, {f"{PRIOR}{name}": others.get(name, (p,)) for name in stored}, p + intercept)
    return ArmPrior(**{**numbers, **stored, "layout": layout})


def _shapes_of(prior: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """What the arrays of a DriftPrior must look like."""
    p = len(prior["mean"])
    squares = ("basis", "mean_covariance", "pooled_covariance")
    shapes: dict[str, tuple[int, ...]] = {
        f"prior.{name}": (p, p) if name in squares else (p,) for name in prior if name not in LATER_PRIOR
    }
    ways = len(prior["last_means"])
    if ways:
        shapes |= {"prior.last_means": (ways, p), "prior.last_steps": (ways, p), "prior.last_covariances": (ways, p, p)}
    shapes |= {f"prior.{name}": (p,) for name in ("drift_limit", "informing") if len(prior[name])}
    if len(prior["feature_mean"]):
        shapes |= {"prior.feature_mean": (p,), "prior.feature_precision": (p, p)}
    return shapes


def _check_shapes(arrays: Mapping[str, Array], prior: Mapping[str, tuple[int, ...]], d: int) -> None:
    """Raise unless the stored arrays fit together: compiled loops would not notice."""
    members, shapes = len(arrays["owners"]), dict(prior)
    shapes["online"] = (2, d + 1, d + 1)
    if "blend" in arrays:
        shapes |= {"blend": (d + 1, d), "noise_now": (1,)}
    shapes |= {"means": (members, d), "process": (members, d), "covariances": (members, d, d), "peak_evidence": (1,)}
    shapes |= dict.fromkeys(("weights", "prior_weights", "noise"), (members,))
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise InputError(f"{name} must be float64 of shape {shape}, got {arrays[name].dtype} {arrays[name].shape}")
    if arrays["settled"].dtype != np.int64 or arrays["settled"].shape != (members,):
        raise InputError(f"settled must be {members} whole numbers")
    if arrays["owners"].dtype != np.int64 or not np.isin(arrays["owners"], np.arange(len(HYPOTHESES))).all():
        raise InputError(f"owners must be whole numbers below {len(HYPOTHESES)}")
    if arrays["counters"].shape != (1,) or arrays["counters"].dtype != np.int64:
        raise InputError("counters must be one whole number")
