"""What a fitted model may be expected to earn more than the log did, as far as the log can tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.evaluation.comparison import Comparison, compare
from invariant_bandits.evaluation.logged import read_feedback
from invariant_bandits.logs.features import FeatureOptions, fewest_rounds
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.model.fit import PolicyStart
from invariant_bandits.model.model import Model
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.registry import find_policy

LATEST = 20_000
NO_OFFERED = "the log has the chosen actions only, so what others would have earned cannot be known"
NO_PROPENSITIES = (
    "the log has no propensities, so what other actions would have earned cannot be known without an"
    " assumption; `evaluate` offers several: --propensities uniform, --propensities estimated, --direct"
)


def expected_value(
    model: Model,
    source: Any,
    *,
    exploration: float | None = None,
    confidence: float = 0.01,
    features: FeatureOptions | None = None,
    latest: int = LATEST,
) -> dict[str, Any]:
    """What the model's policy would have earned in the later half of the last rounds of its log, as plain
    values.

    It is fitted on the earlier half as the model was on all of it: same options, same windows. A regression
    that never learns again is evaluated beside it.

    Parameters
    ----------
    model : Model
        As `fit_logs` returned it.
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Its log.
    exploration : float, optional
        As `fit_logs` was given it.
    confidence : float
        As `fit_logs` was given it.
    features : FeatureOptions, optional
        As `fit_logs` was given them.
    latest : int
        How many of the last rounds to look at.

    Returns
    -------
    dict
        `known` says whether there is an answer. If not, `reason` says why.
    """
    schema = model.schema
    if not schema.has_offered:
        return {"known": False, "reason": NO_OFFERED}
    if schema.propensity is None and schema.rewards is None and not schema.full_information:
        return {"known": False, "reason": NO_PROPENSITIES}
    entry = find_policy(model.policy_name)
    start = PolicyStart(model.policy_name, exploration, confidence)
    chosen: dict[str, Any] = {entry.label: start.contender()}
    chosen |= {find_policy("frozen").label: "frozen"} if entry.name != "frozen" else {}
    try:
        read = read_feedback(
            source, schema, features=features, windows=model.moments.windows, latest=latest, keep_going=True
        )
        whole = entry.keeps_baseline or model.arms is not None
        feedback = read.feedback if whole else _centred(read.feedback)
        result = compare(feedback, chosen, windows=read.windows, edges=_edges(model.moments, feedback))
    except InputError as error:
        return {"known": False, "reason": str(error)}
    return {
        "known": True,
        "fitted_rounds": result.fitted_rounds,
        "played_rounds": result.logged.rounds,
        "logged": str(result.logged),
        "lines": [line for name in chosen if (line := _plain_line(result, name)) is not None],
    }


def _plain_line(result: Comparison, name: str) -> dict[str, Any] | None:
    line, known = result.line(name), dict[str, float | None](gain=None, low=None, high=None)
    if line is None and name not in result.failures:
        return None
    if line is not None and line.against_log.concludes:
        gain = line.against_log
        known = {"gain": float(gain.value), "low": float(gain.low), "high": float(gain.high)}
    estimator = "" if line is None else line.estimator
    return {"policy": name, "estimator": estimator, **known, "verdict": result.verdict(name)}


def _centred(feedback: Feedback) -> Feedback:
    """Features minus the mean of those chosen in the earlier half, for models without an intercept."""
    earlier, _ = feedback.split(0.5)
    mean = earlier.features.mean(axis=0)
    return feedback.mapped(lambda rows: rows - mean)


def _edges(moments: WindowedMoments, feedback: Feedback) -> Array | None:
    """Edges in time of windows of the earlier half, each long enough to be estimated. None if the model's
    windows are equal shares of the log: not by time, or ending with it and holding equally many rounds.

    The model's own edges as far as they lie within; the half begins and ends where its rounds do.
    """
    edges, times = moments.edges, feedback.split(0.5)[0].times
    if edges is None or feedback.times is None or times is None:
        return None
    if edges[-1] == feedback.times[-1] and np.ptp(moments.counts) <= 2:
        return None
    chosen, least = [times[0]], fewest_rounds(feedback.dim)
    for edge in edges[(edges > times[0]) & (edges <= times[-1])]:
        inside = (times < edge).sum() - (times < chosen[-1]).sum()
        if inside >= least and (times >= edge).sum() >= least:
            chosen.append(edge)
    return np.array([*chosen, times[-1]]) if len(chosen) > 1 else None
