"""Evaluations: what the running policy, the baseline and chance earn, from logged propensities;
feature importances.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from starlette.responses import Response

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.service.history.decisions import SettledDecision, settled_decisions
from invariant_bandits.service.learners.base import Learner, finite, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import CONSTANT, OpenLearner
from invariant_bandits.service.operations import Call
from invariant_bandits.service.protocols.personalizer.events import (
    duration,
    moment,
    not_supported,
    personalizer,
    seconds,
)
from invariant_bandits.service.protocols.personalizer.loop import (
    Documents,
    LearningSettings,
    learner_state,
    settings_of,
)
from invariant_bandits.service.replay import first_since
from invariant_bandits.service.responses import RefusedError, check_id, json_response
from invariant_bandits.service.routes.decisions import Id
from invariant_bandits.service.settings import Configuration

if TYPE_CHECKING:
    from invariant_bandits.evaluation.intervals import Estimate

MOST_DECISIONS = 1_000_000
"""So many can be evaluated at once."""
NORMAL = 1.959963984540054
"""Quantile of the normal distribution for intervals of 95 %."""
POLICIES = ("Online", "Baseline", "Random")
"""The policy that decided, the first offered action, and uniform chance."""
INTERVALS = (5, 60, 360, 720, 1_440)
"""Minutes of the intervals that results may be cut into."""
MOST_SCORES = 200
"""Features, the most important ones, whose scores are shown."""
CONTRACT = "InvalidEvaluationContract"
ONE_EVALUATION, ONE_IMPORTANCE = "/evaluations/{id:path}", "/featureImportances/{id:path}"
EVALUATIONS = Documents("evaluation ", "EvaluationNotFound")
IMPORTANCES = Documents("importance ", "ResourceNotFound")
personalizer("DELETE", ONE_EVALUATION, "admin", status=204)(EVALUATIONS.delete)
personalizer("DELETE", ONE_IMPORTANCE, "admin", status=204)(IMPORTANCES.delete)


class LogSpan:
    """Settled decisions of one model, in their order.

    Parameters
    ----------
    decisions : list of SettledDecision

    Attributes
    ----------
    times : array, shape (n,)
        When they were decided, in seconds since 1970.
    feedback : Feedback
        Actions, rewards and propensities; features are not looked at.
    """

    def __init__(self, decisions: list[SettledDecision]) -> None:
        decided = [settled.decided for settled in decisions]
        counts = [len(event.propensities) for event in decided]
        self.times: Array = np.array([event.time for event in decided])
        self.feedback = Feedback.from_arrays(
            np.ones((sum(counts), 1)),
            [event.place for event in decided],
            [settled.reward for settled in decisions],
            counts=counts,
            propensities=np.concatenate([event.propensities for event in decided]),
        )

    @classmethod
    def read(
        cls, store: Any, model: str, rules: Configuration, start: float, end: float, *, most: int
    ) -> LogSpan:
        """Read the settled decisions of a model in a store.

        Parameters
        ----------
        store : Store
        model : str
        rules : Configuration
            Its rules, by which decisions that were not learned in their mode have earned something.
        start, end : float
            When they were made, in seconds since 1970; those at the end do not count.
        most : int
            How many there may be.
        """
        decisions: list[SettledDecision] = []
        last = store.head().seq
        first = first_since(store, start, store.start().seq, last)
        for settled in settled_decisions(store, model, rules, first=first, last=last):
            if settled.decided.time >= end:
                break
            if len(decisions) == most:
                message = f"startTime: more than {most:,} decisions lie in this range"
                raise RefusedError(400, message, name="LogsSizeExceedAllowedLimit")
            if settled.decided.time >= start:
                decisions.append(settled)
        if not decisions:
            message = "startTime: no settled decisions lie in this range"
            raise RefusedError(400, message, name="NoLogsExistInDateRange")
        return cls(decisions)

    def target(self, policy: str) -> Array:
        """Return the probabilities of all offered actions (rows,) under "Baseline" or "Random"."""
        counts = self.feedback.counts
        if policy == "Random":
            return np.repeat(1.0 / counts, counts)
        first = np.zeros(int(counts.sum()))
        first[np.cumsum(counts) - counts] = 1.0
        return first

    def weights(self, policy: str) -> Array:
        """Return importance weights (n,); those of "Online" are 1."""
        if policy == "Online":
            return np.ones(self.feedback.rounds)
        return np.asarray(self.feedback.of_logged(self.target(policy)) / self.feedback.propensities)

    def estimate(self, policy: str) -> Estimate:
        """Return the reward per decision by SNIPS; the mean reward for the policy that decided."""
        from invariant_bandits.evaluation.estimators import logged_value, snips

        if policy == "Online":
            return logged_value(self.feedback)
        return snips(self.feedback, self.target(policy))

    def sums(self, policy: str, minutes: int, start: float) -> tuple[Array, list[float]]:
        """Return sums over each interval that has decisions, and when the intervals begin.

        Columns: decisions, w, w·r, (w·r)², w², w²·r, whether w > 0; with w the importance weights and r
        the rewards.
        """
        w, r = self.weights(policy), self.feedback.rewards
        columns = np.stack([np.ones_like(w), w, w * r, (w * r) ** 2, w**2, w**2 * r, (w > 0.0) * 1.0], axis=1)
        places = np.floor((self.times - start) / (60.0 * minutes))
        begins = np.unique(places, return_index=True)[1]
        times = [start + 60.0 * minutes * place for place in places[begins]]
        return np.add.reduceat(columns, begins, axis=0), times


def _mean_and_half(sums: Array) -> tuple[list[float], list[float]]:
    """Return SNIPS Σwr/Σw per row of sums, and half its interval: 1.96·√Σw²(r − mean)²/Σw."""
    _, weights, gains, squares, weights2, gains2, _ = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        means = gains / weights
        spread = np.maximum(squares - 2.0 * means * gains2 + means**2 * weights2, 0.0)
        return means.tolist(), (NORMAL * np.sqrt(spread) / weights).tolist()


def _new_results(span: LogSpan, policy: str, minutes: int, start: float, window: str) -> dict[str, Any]:
    """Return the mean reward of a policy with an interval, and the same up to (or within) each
    interval of time.
    """
    value = span.estimate(policy)
    sums, times = span.sums(policy, minutes, start)
    means, halves = _mean_and_half(sums if window == "Rolling" else np.cumsum(sums, axis=0))
    points = [
        {"timeStamp": moment(time), **_expected(mean, mean - half, mean + half)}
        for time, mean, half in zip(times, means, halves, strict=True)
    ]
    summary = _expected(value.value, value.low, value.high)
    return {"slotId": "", "summary": summary, "timeseries": {"data": points}}


def _expected(value: float, low: float, high: float) -> dict[str, Any]:
    """Return a value with both ends of its interval, or none if nothing can be concluded."""
    ends = [low, high] if np.isfinite(low) and np.isfinite(high) else []
    return {"expectedReward": finite(value), "confidenceInterval": ends}


def _old_results(span: LogSpan, policy: str, minutes: int, start: float) -> dict[str, Any]:
    """Return numerators and denominators of IPS and SNIPS, in all and within each interval of time."""
    sums, times = span.sums(policy, minutes, start)
    length = duration(60.0 * minutes)
    parts = [_summary(row, moment(time), length) for row, time in zip(sums, times, strict=True)]
    total = _summary(sums.sum(axis=0), moment(start), duration(float(round(span.times[-1] - start))))
    return {"summary": parts, "totalSummary": total}


def _summary(sums: Array, time: str, window: str) -> dict[str, Any]:
    count, weights, gains, squares, _, _, possible = sums.tolist()
    [mean], [half] = _mean_and_half(sums[None, :])
    return {
        "timeStamp": time,
        "ipsEstimatorNumerator": gains,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": weights,
        "aggregateTimeWindow": window,
        "nonZeroProbability": possible / count,
        "sumOfSquares": squares,
        "confidenceInterval": finite(half),
        "averageReward": finite(mean),
    }


# -- evaluations --


class ImportanceRequest(msgspec.Struct, rename="camel"):
    """A span of the log whose features are to be weighed."""

    name: Id
    start_time: datetime
    end_time: datetime


class EvaluationRequest(ImportanceRequest, rename="camel"):
    """A span of the log that is to be evaluated."""

    policies: list[LearningSettings] = []
    enable_policy_optimization: bool = False
    enable_offline_experimentation: bool = False


class PolicyReference(msgspec.Struct, rename="camel"):
    """Learning settings of an evaluation."""

    evaluation_id: Id
    policy_name: Id


@personalizer("POST", "/evaluations", "admin", EvaluationRequest, status=201, invalid=CONTRACT)
@personalizer("PUT", ONE_EVALUATION, "admin", EvaluationRequest, invalid=CONTRACT)
async def make(call: Call, body: EvaluationRequest) -> Response:
    """Evaluate a span of the log now; the result is kept under the id."""
    if body.policies:
        raise not_supported("policies: Vowpal's arguments cannot be evaluated here; an empty list can")
    if body.enable_policy_optimization or body.enable_offline_experimentation:
        raise not_supported(
            "enablePolicyOptimization: learning settings are not searched for here; false can be asked"
        )
    id = check_id(call.path.get("id") or secrets.token_hex(12))
    start, end = seconds(body.start_time), seconds(body.end_time)
    span = await _read(call, start, end)
    about = {"id": id, "name": body.name, "start": start, "end": end, "created": call.service.engine.clock()}
    about["rounds"] = span.feedback.rounds
    about["best"] = max(POLICIES, key=lambda policy: span.estimate(policy).low)
    await EVALUATIONS.save(call, id, about, "evaluated")
    if call.request.method == "PUT":
        return Response(status_code=200)
    return json_response(await _results(call, about), 201, {"location": f"{call.request.url.path}/{id}"})


async def _read(call: Call, start: float, end: float) -> LogSpan:
    rules, store = await call.look_at_model(lambda served: served.configuration), call.service.engine.store
    return await call.in_thread(
        lambda: LogSpan.read(store, call.model, rules, start, end, most=MOST_DECISIONS)
    )


@personalizer("GET", ONE_EVALUATION, "read", invalid=CONTRACT)
async def show(call: Call) -> dict[str, Any]:
    """Show an evaluation with its results."""
    return await _results(call, await EVALUATIONS.get(call, call.path["id"]))


async def _results(call: Call, about: dict[str, Any]) -> dict[str, Any]:
    asked = call.query.get("intervalInMinutes", str(INTERVALS[0]))
    if asked not in map(str, INTERVALS):
        raise InputError(f"intervalInMinutes: must be one of {', '.join(map(str, INTERVALS))}")
    minutes, versioned = int(asked), call.path["endpoint"].versioned
    start = max(about["start"], _time(call, "startTime", about["start"]))
    end = min(about["end"], _time(call, "endTime", about["end"]))
    span, settings = await _read(call, start, end), await call.look_at_model(settings_of)
    window = call.query.get("window", "Expanding")

    def of(policy: str) -> dict[str, Any]:
        shown = settings if policy == "Online" else {"name": policy, "arguments": ""}
        if versioned:
            return {**shown, "policySource": policy, **_old_results(span, policy, minutes, start)}
        return {**shown, "policySource": policy, **_new_results(span, policy, minutes, start, window)}

    results = await call.in_thread(lambda: [of(policy) for policy in POLICIES])
    if versioned:
        return {**_about(call, about), "jobId": about["id"], "policyResults": results}
    times = {"startTime": moment(start), "endTime": moment(end), "intervalInMinutes": minutes}
    return {**_about(call, about), "content": {**times, "value": results}}


def _time(call: Call, name: str, otherwise: float) -> float:
    text = call.query.get(name)
    if text is None:
        return otherwise
    try:
        return seconds(msgspec.convert(text, datetime))
    except msgspec.ValidationError:
        raise InputError(f"startTime, endTime: must be times as in ISO 8601, got {text[:40]!r}") from None


def _about(call: Call, about: dict[str, Any]) -> dict[str, Any]:
    """Return what lists show of an evaluation as well."""
    return {
        "id": about["id"],
        "name": about["name"],
        "startTime": moment(about["start"]),
        "endTime": moment(about["end"]),
        "creationTime": moment(about["created"]),
        "evaluationType": "Manual",
        "status": "completed" if call.path["endpoint"].versioned else "Succeeded",
        "optimalPolicy": about["best"],
    }


@personalizer("GET", "/evaluations", "read")
async def show_all(call: Call) -> Any:
    """List all evaluations, the earliest first."""
    return await EVALUATIONS.list(call, lambda about: _about(call, about))


APPLY = "/configurations/applyFromEvaluation"


@personalizer("POST", APPLY, "admin", PolicyReference, status=204, invalid="InvalidPolicyContract")
async def apply(call: Call, body: PolicyReference) -> None:
    """Go on with the learning settings of an evaluation: with those that run, which are all there are."""
    await EVALUATIONS.get(call, body.evaluation_id)
    name = (await call.look_at_model(settings_of))["name"]
    if body.policy_name not in ("Online", name):
        message = f"policyName: {body.policy_name!r} cannot be applied, only {name!r}, which runs"
        raise RefusedError(400, message, name="LearningSettingsNotFound")


# -- feature importances --


@personalizer("PUT", ONE_IMPORTANCE, "admin", ImportanceRequest, invalid="InvalidRequest")
async def make_importances(call: Call, body: ImportanceRequest) -> Response:
    """Weigh the features of the model as it is now; the result is kept under the id."""
    id = check_id(call.path["id"])
    about: dict[str, Any] = {
        "id": id,
        "name": body.name,
        "startTime": moment(seconds(body.start_time)),
        "endTime": moment(seconds(body.end_time)),
        "creationTime": moment(call.service.engine.clock()),
        "status": "Succeeded",
    }
    learner = await call.in_thread(learner_from_bytes, *await call.look_at_model(learner_state), call.model)
    about["featureScores"] = await call.in_thread(_scores, learner)
    await IMPORTANCES.save(call, id, about, "weighed the features of")
    return Response(status_code=200)


def _scores(learner: Learner) -> list[dict[str, Any]]:
    """Return the sum of the sizes of all coefficients that a feature has a part in, the largest being 100."""
    sizes: dict[str, float] = {}
    for name, coefficient in zip(*_coefficients(learner), strict=True):
        for part in {_feature(factor) for factor in name.replace(" × ", "|").split("|")} - {CONSTANT}:
            sizes[part] = sizes.get(part, 0.0) + abs(coefficient)
    largest = max(sizes.values(), default=0.0) or 1.0
    shown = []
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:MOST_SCORES]:
        namespace, _, feature = name.rpartition(".")
        score = round(100.0 * size / largest, 6)
        shown.append({"namespace": namespace, "featureName": feature, "score": score})
    return shown


def _coefficients(learner: Learner) -> tuple[list[str], list[float]]:
    """Return names of features, and what one unit of each alone adds to the expected reward."""
    if isinstance(learner, FittedLearner):
        names, policy = list(learner.model.names), learner.model.policy
    else:
        assert isinstance(learner, OpenLearner)
        names, policy = list(learner.places), learner.policy
    means = policy.scores(np.vstack([np.eye(policy.dim), np.zeros(policy.dim)])).mean
    return names[: policy.dim], (means[:-1] - means[-1])[: len(names)].tolist()


def _feature(name: str) -> str:
    """Return a feature without its value: 'f:type=news' -> 'action.type'; arms by label are one
    feature, action.id.
    """
    if name.startswith("a:"):
        return "action.id"
    bare = name.removeprefix("f:").partition("=")[0].partition("[")[0]
    return f"action.{bare}" if name.startswith("f:") else bare


@personalizer("GET", ONE_IMPORTANCE, "read")
async def show_importances(call: Call) -> dict[str, Any]:
    """Show feature importances with their scores."""
    return await IMPORTANCES.get(call, call.path["id"])


@personalizer("GET", "/featureImportances", "read")
async def show_all_importances(call: Call) -> Any:
    """List all feature importances, without scores."""
    return await IMPORTANCES.list(
        call, lambda about: {name: value for name, value in about.items() if name != "featureScores"}
    )
