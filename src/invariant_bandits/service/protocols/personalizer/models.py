"""The model as octets, when it was made and changed, and from when to when there are logs."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits import storage
from invariant_bandits.model.model import Model
from invariant_bandits.service import work
from invariant_bandits.service.application import service_of
from invariant_bandits.service.batches import Batch
from invariant_bandits.service.events import decoded
from invariant_bandits.service.http import answer, read_body
from invariant_bandits.service.learners.base import Learner, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.protocols.personalizer.doors import loop_of
from invariant_bandits.service.protocols.personalizer.errors import ProtocolError, not_here
from invariant_bandits.service.protocols.personalizer.times import moment
from invariant_bandits.service.state import State
from invariant_bandits.storage import FileError

KIND = "served model"


async def export(request: Request) -> Response:
    """The active version as it is now."""
    service, model = service_of(request, "admin"), loop_of(request)
    kind, content = await service.engine.submit(work.inspect(lambda state: state_of(state, model)))
    return Response(await service.aside(as_octets, kind, content), media_type="application/octet-stream")


def state_of(state: State, model: str) -> tuple[str, bytes]:
    """Kind and content of the active version's learner."""
    learner = state.model(model).learner
    return learner.kind, learner.to_bytes()


async def replace(request: Request) -> Response:
    """Go on with a model that was exported before, here or from another loop, or that was fitted to logs."""
    service, model = service_of(request, "admin"), loop_of(request)
    content = await read_body(request, service.limits.for_upload())
    try:
        learner = await service.aside(from_octets, content, service.engine.store.seed)
    except FileError as error:
        raise ProtocolError(400, "InvalidModelImportFormat", f"body: {error}", "body") from None

    def replaced(state: State, batch: Batch) -> str:
        state.model(model)
        version: str = work.add_version(model, learner, "given", note="imported", by=request.state.who)(state, batch)
        return version

    version = await service.engine.submit(replaced, alone=True)
    service.audit(request.state.who, f"imported version {version} of {model}")
    return Response(status_code=204)


async def reset(request: Request) -> Response:
    """Forget what was learned from events; the version before can be returned to."""
    service, model = service_of(request, "admin"), loop_of(request)

    def made(state: State, batch: Batch) -> str:
        learner = _as_it_began(state, model)
        version: str = work.add_version(model, learner, "empty", note="reset", by=request.state.who)(state, batch)
        return version

    version = await service.engine.submit(made, alone=True)
    service.audit(request.state.who, f"reset {model} to version {version}")
    return Response(status_code=204)


def _as_it_began(state: State, model: str) -> Learner:
    """An empty model with the arms and columns that it has; one that was fitted is as it was then."""
    served = state.model(model)
    learner = served.learner
    if isinstance(learner, OpenLearner):
        return OpenLearner(learner.arms, learner.columns, limit=learner.limit, seed=learner.seed)
    added = served.versions[served.version]
    return learner_from_bytes(added.learner, state.contents.content(added.content), f"version {added.version}")


def as_octets(kind: str, content: bytes) -> bytes:
    """A file that holds the state of a learner of a kind, with its checksum."""
    return storage.encode(KIND, {"state": np.frombuffer(content, dtype=np.uint8)}, {"learner": kind})


def from_octets(content: bytes, seed: int) -> Learner:
    """The learner in such a file, or in one that `fit` has written; FileError if it is neither."""
    name = "the imported file"
    try:
        arrays, about = storage.decode(content, KIND, name)
    except FileError as error:
        try:
            return FittedLearner(Model.from_bytes(content, name), seed)
        except FileError:
            raise error from None
    if set(arrays) != {"state"} or arrays["state"].dtype != np.uint8:
        raise FileError(f"{name} does not hold a whole model")
    return learner_from_bytes(str(about.get("learner")), arrays["state"].tobytes(), name)


async def properties(request: Request) -> Response:
    """When the active version was made, and when the last event came that it has taken in."""
    service, model = service_of(request, "read"), loop_of(request)
    made, events = await service.engine.submit(work.inspect(lambda state: (_added(state, model), state.seq)))
    _, last = await service.aside(times, service.engine.store, events)
    return answer({"creationTime": moment(made), "lastModifiedTime": moment(max(made, last))})


def _added(state: State, model: str) -> float:
    served = state.model(model)
    return served.versions[served.version].time


async def log_properties(request: Request) -> Response:
    """From when to when there are logs."""
    service, model = service_of(request, "read"), loop_of(request)
    _, events = await service.engine.submit(work.inspect(lambda state: (_added(state, model), state.seq)))
    first, last = await service.aside(times, service.engine.store, events)
    return answer({"dateRange": {"from": moment(first), "to": moment(last)}})


async def delete_logs(request: Request) -> Response:
    """Logs are not deleted by a request."""
    service_of(request, "admin")
    raise not_here("logs are the state's own record and are cut by `invariant-bandits store compact`, not by a request")


def times(store: Any, events: int) -> tuple[float, float]:
    """Of the first event that is kept, and of the last of so many."""
    first, last = next(iter(store.rows())), next(iter(store.rows(events - 1)))
    return decoded(first.event).time, decoded(last.event).time
