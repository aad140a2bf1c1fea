"""What a fitted model may be expected to earn more than the log did, as far as the log can tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.evaluation.comparison import compare
from invariant_bandits.evaluation.contenders import AUTO, COLD, FROZEN, ISD, WARM, Maker, default_policies
from invariant_bandits.evaluation.logged import read_feedback
from invariant_bandits.logs.features import FeatureOptions
from invariant_bandits.logs.schema import Schema

LATEST = 20_000
KINDS = {"auto-isd": AUTO, "isd-linucb": ISD, "isd-lints": ISD, "linucb": WARM, "lints": WARM, "linucb-cold": COLD}
"""Which of the compared policies stands for a fitted one."""
NO_OFFERED = "the log has the chosen actions only, so what others would have earned cannot be known"
NO_PROPENSITIES = (
    "the log has no propensities, so what other actions would have earned cannot be known without an assumption;"
    " `evaluate` offers several: --propensities uniform, --propensities estimated, --direct"
)


def expected_value(
    source: Any, schema: Schema, policy: str, *, features: FeatureOptions | None = None, latest: int = LATEST
) -> dict[str, Any]:
    """Plain values: what a policy of this kind would have earned in the later half of the last rounds of the log.

    It is fitted on the earlier half. `known` says whether there is an answer; if not, `reason` says why.
    """
    if not schema.has_offered:
        return {"known": False, "reason": NO_OFFERED}
    if schema.propensity is None and schema.rewards is None and not schema.full_information:
        return {"known": False, "reason": NO_PROPENSITIES}
    makers = default_policies()
    chosen: Mapping[str, Maker] = {name: makers[name] for name in dict.fromkeys((KINDS[policy], FROZEN))}
    try:
        read = read_feedback(source, schema, features=features, latest=latest)
        result = compare(read.feedback, chosen, windows=read.windows)
    except InputError as error:
        return {"known": False, "reason": str(error)}
    lines = []
    for name in chosen:
        line = result.line(name)
        if line is not None:
            gain = line.against_log
            lines.append(
                {
                    "policy": name,
                    "estimator": line.estimator,
                    "gain": float(gain.value) if gain.concludes else None,
                    "low": float(gain.low) if gain.concludes else None,
                    "high": float(gain.high) if gain.concludes else None,
                    "verdict": result.verdict(name),
                }
            )
    return {
        "known": True,
        "fitted_rounds": result.fitted_rounds,
        "played_rounds": result.logged.rounds,
        "logged": str(result.logged),
        "lines": lines,
    }
