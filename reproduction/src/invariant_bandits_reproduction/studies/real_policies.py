"""The policies of the real-data study, each with the settings it may be tuned to.

Rewards reach them with mean 0 and standard deviation 1 over the logs, hence noise scale 1; features are in
standard deviations too.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log
from typing import Any

from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.baselines import Uniform
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.memory import Discount, Memory, SlidingWindow
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits_reproduction.contenders import SELF_NORMALISED

AUTO_DEFAULT = "AutoISD, default"
AUTO_TUNED = "AutoISD, tuned"
ISD = "ISD-linUCB, estimated"
COLD = "LinUCB, cold"
COLD_TUNED = "LinUCB, cold, tuned"
WARM = "LinUCB, warm on all logs"
SLIDING = "sliding window"
DISCOUNT = "discount"
FROZEN = "frozen"
UNIFORM = "uniform"

# What tuning on the first half may choose from.
AUTO_CAUTIONS = (0.0, 0.003, 0.01, 0.03)
AUTO_WINDOWS = (4, 8, 16)
DEFAULT_WINDOWS = 8
EXPLORATIONS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
WINDOWS = (250, 500, 1000, 2000, 4000)
DISCOUNTS = (0.99, 0.996, 0.998, 0.999, 0.9995)
FORGOTTEN = 1e-6
"""Weight below which a logged round counts as forgotten by a discount."""


Tunable = Mapping[str, Mapping[str, Any]]
"""Policy -> its settings in words -> what plays; those with one setting are not tuned."""


def past_of(earlier: Feedback, horizon: int) -> Past:
    """What a practitioner has: the rounds so far with all offered features, one logged action each, its
    reward.
    """
    return Past(
        logs=earlier,
        windows=DEFAULT_WINDOWS,
        horizon=horizon,
        noise_scale=1.0,
        feature_bound=1.0,
        delta=0.01,
    )


def tunable() -> Tunable:
    """Everything that every policy may be tuned to."""
    return {
        AUTO_DEFAULT: {f"{DEFAULT_WINDOWS} windows, caution 0": PolicySpec("auto-isd")},
        AUTO_TUNED: {
            auto_words(caution, windows): PolicySpec(
                "auto-isd", {"caution": caution, "windows": windows}
            )
            for windows in AUTO_WINDOWS
            for caution in AUTO_CAUTIONS
        },
        ISD: {
            f"{DEFAULT_WINDOWS} windows, exploration {exploration:g}": PolicySpec(
                "isd-linucb",
                {"exploration": exploration, "noise_scale": None, **SELF_NORMALISED},
            )
            for exploration in EXPLORATIONS
        },
        COLD: {_explores(1.0): PolicySpec("linucb")},
        COLD_TUNED: {
            _explores(e): PolicySpec("linucb", {"exploration": e}) for e in EXPLORATIONS
        },
        WARM: {
            _explores(e): PolicySpec("linucb-warm", {"exploration": e})
            for e in EXPLORATIONS
        },
        SLIDING: {
            f"window {window}, {_explores(exploration)}": forgetful(
                exploration, SlidingWindow(window), window
            )
            for window in WINDOWS
            for exploration in EXPLORATIONS
        },
        DISCOUNT: {
            f"discount {discount}, {_explores(exploration)}": forgetful(
                exploration, Discount(discount), _remembered(discount)
            )
            for discount in DISCOUNTS
            for exploration in EXPLORATIONS
        },
        FROZEN: {"ridge regression on all logs": PolicySpec("frozen")},
        UNIFORM: {
            "every action alike": lambda past: Uniform(past.dim, seed=past.logs.rounds)
        },
    }


def auto_words(caution: float, windows: int) -> str:
    """Settings of AutoISD in words."""
    return f"{windows} windows, caution {caution:g}"


def _explores(exploration: float) -> str:
    return f"exploration {exploration:g}"


def forgetful(exploration: float, memory: Memory, logs: int) -> Any:
    """LinUCB with a memory that has seen as many of the latest logs as it can remember."""

    def make(past: Past) -> Any:
        # The published radii need a bound on ‖φ‖; standardised features have a mean square of p.
        bound = float(past.dim) ** 0.5
        return LinUCB.from_past(
            past, warm=logs, exploration=exploration, memory=memory, feature_bound=bound
        )

    return make


def _remembered(discount: float) -> int:
    """After so many rounds a round weighs less than one in a million."""
    return ceil(log(FORGOTTEN) / log(discount))
