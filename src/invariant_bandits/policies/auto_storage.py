"""The stored form of AutoISD: what its arrays must be, and files of version 0.1 under the names of today."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, number_between, probability
from invariant_bandits.decomposition.arm_layout import ArmLayout
from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.decomposition.stored_priors import (
    ARM_NUMBERS,
    DRIFT_NUMBERS,
    LARGEST_MEAN,
    LARGEST_VARIANCE,
    LEAST_NOISE,
    described_arm_prior,
    described_drift_prior,
    wrong_contexts,
)
from invariant_bandits.description import (
    MOST_ROUNDS,
    Check,
    Description,
    Numbers,
    adds_up_to_one,
    as_checked,
    count,
    counters,
    no_variance_negative,
    prefixed,
    truth_value,
)
from invariant_bandits.files import under
from invariant_bandits.policies.hypotheses import HYPOTHESES
from invariant_bandits.policies.rehearsal import Rehearsal

PRIOR = "prior."
LARGEST_FACTOR = 1e50
ARRAYS = (
    *("owners", "means", "covariances", "process", "weights", "prior_weights", "noise"),
    *("settled", "online"),
)
MOST_MEMBERS = 10_000
SETTINGS: dict[str, Check] = {
    **dict.fromkeys(("exploration", "share"), lambda name, value: number_between(name, value, -1e-300, LARGEST_FACTOR)),
    **dict.fromkeys(("confidence", "alarm_level"), probability),
    "horizon": lambda name, value: None if value is None else count(name, value),
    "rehearsal": lambda name, value: None if value is None else Rehearsal.from_dict(value),
}


def described(settings: Mapping[str, Any], names: Collection[str]) -> Description:
    """What the arrays must be: those of C filters over d coordinates, and those of the prior.

    Files of version 0.1 have owners as "families", weights and prior weights in a "table" (4, C), and the peak of the
    evidence and the counter in a "clock" (2,).
    """
    stored = settings["prior"]
    if not isinstance(stored, Mapping):
        raise InputError(f"prior must be a dictionary, got {type(stored).__name__}")
    inside = [name.removeprefix(PRIOR) for name in names if name.startswith(PRIOR)]
    prior = described_arm_prior(stored) if "layout" in stored else described_drift_prior(stored, inside)
    prior.check_settings(stored)
    belief = Numbers(("C", "d", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE, law=no_variance_negative)
    share = Numbers(("C",), least=0.0, most=1.0, law=adds_up_to_one)
    owner = Numbers(("C",), "int64", 0, len(HYPOTHESES) - 1)
    arrays = {
        "means": Numbers(("C", "d"), least=-LARGEST_MEAN, most=LARGEST_MEAN),
        "covariances": belief,
        "process": Numbers(("C", "d"), least=0.0, most=LARGEST_VARIANCE),
    }
    if "table" in names:
        arrays |= {
            "families": owner,
            "table": Numbers((4, "C"), law=_wrong_table),
            "clock": Numbers((2,), least=0.0, law=_wrong_clock),
        }
    else:
        arrays |= {"owners": owner, "weights": share, "prior_weights": share, "counters": counters(1)}
        arrays |= {"noise": Numbers(("C",), least=LEAST_NOISE, most=LARGEST_VARIANCE)}
        arrays |= {"peak_evidence": Numbers((1,), least=0.0)}
    later = {
        "settled": Numbers(("C",), "int64", 0, 1),
        "online": Numbers((2, "d+1", "d+1"), law=_wrong_online),
        "blend": Numbers(("d+1", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE, law=_wrong_blend),
        "noise_now": Numbers((1,), least=LEAST_NOISE, most=LARGEST_VARIANCE),
        "winsorised": counters(1),
    }
    arrays |= {name: numbers for name, numbers in later.items() if name in names}
    intercept = truth_value("intercept", settings.get("intercept", True))
    arrays |= prefixed(PRIOR, prior.arrays)
    law = partial(_wrong_together, intercept, stored)
    return Description(arrays, SETTINGS, prior.sizes, laws=(law,))


def _wrong_together(intercept: bool, prior: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """What must hold of the arrays together."""
    members, d = arrays["means"].shape
    p = len(arrays[f"{PRIOR}mean"])
    if d != p + intercept or not 0 < members <= MOST_MEMBERS:
        return (
            f"means must be of 1 to {MOST_MEMBERS:,} filters over {p + intercept} coordinates, got {members} over {d}"
        )
    if ("blend" in arrays) != ("noise_now" in arrays):
        return "blend and noise_now belong together"
    if intercept and "online" in arrays and abs(arrays["online"][0, p, p] - arrays["online"][0, d, d]) > 0.5:
        return "online must count its rounds"
    if "layout" in prior:
        return wrong_contexts(prior, len(arrays[f"{PRIOR}context_square"]))
    return ""


def _wrong_table(values: Array) -> str:
    """Weights and prior weights, then what is worked out anew."""
    inside = (values[:2] >= 0.0).all() and (values[:2] <= 1.0).all()
    return (adds_up_to_one(values[0]) or adds_up_to_one(values[1])) if inside else "must begin with weights"


def _wrong_clock(values: Array) -> str:
    whole = values[0] <= MOST_ROUNDS and values[0] == np.floor(values[0])
    return "" if whole else "must begin with the number of rounds"


def _wrong_blend(values: Array) -> str:
    return no_variance_negative(values[1:])


def _wrong_online(values: Array) -> str:
    """Sums of squares of as many rounds as the last entry counts."""
    count = values[0, -1, -1]
    if not 0.0 <= count <= MOST_ROUNDS or count != np.floor(count):
        return "must count its rounds"
    return no_variance_negative(values[:, :-1, :-1])


def renamed(arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Mapping[str, Array]:
    """The arrays under their names of today; files of version 0.1 packed several into a "table" and a "clock"."""
    d = arrays["means"].shape[-1]
    online = np.zeros((2, d + 1, d + 1))
    if "table" not in arrays:
        return {"settled": np.zeros(len(arrays["owners"]), dtype=np.int64), "online": online, **arrays}
    rest = {name: array for name, array in arrays.items() if name not in ("table", "clock", "families")}
    table, clock = arrays["table"], arrays["clock"]
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


def prior_of(numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> DriftPrior | ArmPrior:
    """The prior that `prior_parts` took apart."""
    stored = under(arrays, PRIOR)
    if "layout" not in numbers:
        return DriftPrior(**{**as_checked(DRIFT_NUMBERS, numbers), **stored})
    layout = ArmLayout(**numbers["layout"])
    return ArmPrior(**{**as_checked(ARM_NUMBERS, numbers), **stored, "layout": layout})
