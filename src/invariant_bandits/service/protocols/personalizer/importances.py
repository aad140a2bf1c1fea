"""Feature importances: how much the model's coefficients make of each feature."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.service import work
from invariant_bandits.service.application import service_of
from invariant_bandits.service.http import answer, check_id, read
from invariant_bandits.service.learners.base import Learner, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.naming import CONSTANT
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.protocols.personalizer.doors import loop_of
from invariant_bandits.service.protocols.personalizer.errors import invalid_as
from invariant_bandits.service.protocols.personalizer.keeping import found, kept_under, listed, removed
from invariant_bandits.service.protocols.personalizer.models import state_of
from invariant_bandits.service.protocols.personalizer.shapes import ImportanceRequest
from invariant_bandits.service.protocols.personalizer.times import moment, seconds

KEPT = "importance "
MOST_TOLD = 200


@invalid_as("InvalidRequest")
async def make(request: Request) -> Response:
    """Weigh the features of the model as it is now; the result is kept under the id."""
    service, model = service_of(request, "admin"), loop_of(request)
    asked = await read(request, ImportanceRequest, service.limits)
    id = check_id(request.path_params["id"])
    told: dict[str, Any] = {
        "id": id,
        "name": asked.name,
        "startTime": moment(seconds(asked.start_time)),
        "endTime": moment(seconds(asked.end_time)),
        "creationTime": moment(service.engine.clock()),
        "status": "Succeeded",
    }
    kind, content = await service.engine.submit(work.inspect(lambda state: state_of(state, model)))
    learner = await service.aside(learner_from_bytes, kind, content, model)
    told["featureScores"] = await service.aside(scores, learner)
    await service.engine.submit(kept_under(model, KEPT + id, told, request.state.who), alone=True)
    service.audit(request.state.who, f"weighed the features of {model}")
    return Response(status_code=200)


def scores(learner: Learner) -> list[dict[str, Any]]:
    """Sum of the sizes of all coefficients that a feature has a part in, the largest being 100."""
    sizes: dict[str, float] = {}
    for name, coefficient in zip(*_coefficients(learner), strict=True):
        for part in {_feature(one) for one in name.replace(" × ", "|").split("|")} - {CONSTANT}:
            sizes[part] = sizes.get(part, 0.0) + abs(coefficient)
    largest = max(sizes.values(), default=0.0) or 1.0
    order = sorted(sizes.items(), key=lambda one: (-one[1], one[0]))[:MOST_TOLD]
    return [_told(name, 100.0 * size / largest) for name, size in order]


def _coefficients(learner: Learner) -> tuple[list[str], list[float]]:
    """Names of features, and what one unit of each alone adds to the expected reward."""
    if isinstance(learner, OpenLearner):
        names, policy = list(learner.places), learner.policy
    elif isinstance(learner, FittedLearner):
        names, policy = list(learner.model.names), learner.model.policy
    else:
        return [], []
    units = np.vstack([np.eye(policy.dim), np.zeros(policy.dim)])
    means = policy.scores(units).mean
    return names[: policy.dim], (means[:-1] - means[-1])[: len(names)].tolist()


def _feature(name: str) -> str:
    """A feature without its value: 'f:type=news' -> 'action.type'; arms by label are one feature of the action."""
    if name.startswith("a:"):
        return "action.id"
    bare = name.removeprefix("f:").partition("=")[0].partition("[")[0]
    return f"action.{bare}" if name.startswith("f:") else bare


def _told(name: str, score: float) -> dict[str, Any]:
    namespace, _, feature = name.rpartition(".")
    return {"namespace": namespace, "featureName": feature, "score": round(score, 6)}


async def show(request: Request) -> Response:
    """Feature importances with their scores."""
    service, model = service_of(request, "read"), loop_of(request)
    return answer(await found(service, model, KEPT, request.path_params["id"], "ResourceNotFound"))


async def show_all(request: Request) -> Response:
    """All of them, without scores."""
    service, model = service_of(request, "read"), loop_of(request)
    return await listed(
        service, model, KEPT, request, lambda told: {name: told[name] for name in told if name != "featureScores"}
    )


async def delete(request: Request) -> Response:
    """Forget them."""
    service, model = service_of(request, "admin"), loop_of(request)
    await removed(service, model, KEPT, request, "ResourceNotFound")
    return Response(status_code=204)
