"""Models: what they believe, their arms, versions and rules; uploads by administrators."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits.model.model import Model
from invariant_bandits.service import commands
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.background.schedule import Learning
from invariant_bandits.service.dashboard import exploration_of, versions_of
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.responses import RefusedError, answer, check_values, read, read_body
from invariant_bandits.service.routes.shapes import ArmRequest, ModelRequest
from invariant_bandits.service.settings import Configuration
from invariant_bandits.service.state import State
from invariant_bandits.storage import FileError

MOST_LISTED = 20


def _name(request: Request) -> str:
    """Which model is meant: in the path, in the query, or the default one."""
    return str(request.path_params.get("model") or request.query_params.get("model") or "default")


async def show(request: Request) -> Response:
    """What a model is, believes and has seen, as of now, with a hash over its whole state."""
    service, name = service_of(request, "read"), _name(request)

    def look(state: State) -> dict[str, Any]:
        served = state.model(name)
        return {
            "model": name,
            "version": served.version,
            "state_hash": served.state_hash(),
            "rounds": served.learner.rounds,
            "counts": msgspec.to_builtins(served.counts),
            "waiting": len(served.waiting),
            "set_aside": [{"event": seq, "why": why} for seq, why in sorted(state.aside.items())[-MOST_LISTED:]],
            "configuration": served.configuration,
            "exploration": exploration_of(served),
            **served.learner.about(),
        }

    return answer(await service.engine.submit(commands.inspect(look)))


async def list_models(request: Request) -> Response:
    """Names of all models and their active versions."""
    service = service_of(request, "read")
    found = await service.engine.submit(
        commands.inspect(lambda state: {n: one.version for n, one in state.models.items()})
    )
    return answer({"models": [{"model": name, "version": version} for name, version in found.items()]})


async def make(request: Request) -> Response:
    """A new empty model, or (with any other content type than JSON) one from an uploaded model file."""
    service = service_of(request, "admin")
    if _is_json(request):
        asked = await read(request, ModelRequest, service.limits)
        learner = OpenLearner(dict.fromkeys(asked.arms, True), asked.columns, seed=service.engine.store.seed)
        task = commands.add_version(asked.name, learner, "empty", by=request.state.who, first=True)
        version = await service.engine.submit(task, alone=True)
        service.audit(request.state.who, f"made the empty model {asked.name}")
        return answer({"model": asked.name, "version": version}, 201)
    name = _name(request)
    version = await _uploaded(request, service, name, first=True, active=True)
    return answer({"model": name, "version": version}, 201)


async def add_version(request: Request) -> Response:
    """A new version from an uploaded model file; it decides with activate=true, or once it is activated."""
    service, name = service_of(request, "admin"), _name(request)
    active = _flag(request, "activate")
    version = await _uploaded(request, service, name, first=False, active=active)
    return answer({"model": name, "version": version, "active": active}, 201)


def _flag(request: Request, name: str) -> bool:
    """A query parameter that is true or false; false if it is not given."""
    given = request.query_params.get(name, "false")
    if given not in ("true", "false"):
        raise RefusedError(422, f"{name}: must be true or false, got {given[:80]!r}", name)
    return given == "true"


async def _uploaded(request: Request, service: Service, name: str, *, first: bool, active: bool) -> str:
    alike = not first and not _flag(request, "allow_differences")
    content = await read_body(request, service.limits.for_upload())
    try:
        model = await service.aside(Model.from_bytes, content, "the uploaded file")
    except FileError as error:
        raise RefusedError(422, f"body: {error}", "body") from None
    learner = FittedLearner(model, service.engine.store.seed)
    note, by = request.query_params.get("note", "")[:200], request.state.who
    task = commands.add_version(name, learner, "given", note=note, by=by, active=active, first=first, alike=alike)
    if not first:
        await service.engine.submit(commands.inspect(lambda state: state.model(name).name))
    version: str = await service.engine.submit(task, alone=True)
    service.audit(request.state.who, f"added version {version} of {name}{', active' if active else ''}")
    return version


async def list_versions(request: Request) -> Response:
    """All versions, the active one marked."""
    service, name = service_of(request, "read"), _name(request)
    return answer(
        await service.engine.submit(commands.inspect(lambda state: {"versions": versions_of(state.model(name))}))
    )


async def activate(request: Request) -> Response:
    """Have another version decide."""
    service, name = service_of(request, "admin"), _name(request)
    task = commands.activate_version(name, request.path_params["version"], why="by hand", by=request.state.who)
    version = await service.engine.submit(task, alone=True)
    service.audit(request.state.who, f"activated version {version} of {name}")
    return answer({"model": name, "version": version})


async def roll_back(request: Request) -> Response:
    """Return to the version before."""
    service, name = service_of(request, "admin"), _name(request)
    version = await service.engine.submit(commands.roll_back(name, by=request.state.who), alone=True)
    service.audit(request.state.who, f"rolled {name} back to version {version}")
    return answer({"model": name, "version": version})


async def learn(request: Request) -> Response:
    """Fit a new version to the model's own history, in the background."""
    service, name = service_of(request, "admin"), _name(request)
    learning = _learning(service)
    await service.engine.submit(commands.inspect(lambda state: state.model(name).name))
    learning.begin(name, request.state.who)
    service.audit(request.state.who, f"began to learn {name} from its history")
    return answer({"model": name, **learning.told(name)}, 202)


async def show_learning(request: Request) -> Response:
    """What became of learning from the model's own history."""
    service, name = service_of(request, "read"), _name(request)
    learning = _learning(service)
    await service.engine.submit(commands.inspect(lambda state: state.model(name).name))
    return answer({"model": name, **learning.told(name)})


def _learning(service: Service) -> Learning:
    if service.learning is None:
        raise RefusedError(503, "this service does not learn in the background")
    return service.learning


async def list_arms(request: Request) -> Response:
    """Registered arms, whether they are active, and how often each was chosen."""
    service, name = service_of(request, "read"), _name(request)

    def look(state: State) -> list[dict[str, Any]]:
        served = state.model(name)
        labels = served.learner.arms or dict.fromkeys(served.plays, True)
        return [{"label": one, "active": active, "plays": served.plays.get(one, 0)} for one, active in labels.items()]

    return answer({"arms": await service.engine.submit(commands.inspect(look))})


async def add_arm(request: Request) -> Response:
    """Register an arm."""
    service, name = service_of(request, "admin"), _name(request)
    asked = await read(request, ArmRequest, service.limits)
    check_values(asked.features, service.limits, "features")
    task = commands.change_arms(name, asked.label, add=True, features=asked.features, by=request.state.who)
    arms = await service.engine.submit(task, alone=True)
    service.audit(request.state.who, f"added an arm to {name}")
    return answer({"label": asked.label, "active": arms[asked.label]}, 201)


async def retire_arm(request: Request) -> Response:
    """Never choose an arm again."""
    service, name, label = service_of(request, "admin"), _name(request), request.path_params["label"]
    await service.engine.submit(commands.change_arms(name, label, add=False, by=request.state.who), alone=True)
    service.audit(request.state.who, f"retired an arm of {name}")
    return answer({"label": label, "active": False})


async def show_rules(request: Request) -> Response:
    """The configuration of a model."""
    service, name = service_of(request, "read"), _name(request)
    return answer(await service.engine.submit(commands.inspect(lambda state: state.model(name).configuration)))


async def change_rules(request: Request) -> Response:
    """Set the configuration of a model; what is not said gets its default."""
    service, name = service_of(request, "admin"), _name(request)
    asked = await read(request, Configuration, service.limits)
    told = await service.engine.submit(commands.configure(name, asked, by=request.state.who), alone=True)
    service.audit(request.state.who, f"configured {name}")
    return answer(told)


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _both(path: str, endpoint: Any, method: str) -> list[Route]:
    """A route for the default model (or ?model=), and one for a model by name."""
    return [
        Route(f"/v1/model{path}", endpoint, methods=[method]),
        Route(f"/v1/models/{{model}}{path}", endpoint, methods=[method]),
    ]


ROUTES = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models", make, methods=["POST"]),
    *_both("", show, "GET"),
    *_both("/versions", list_versions, "GET"),
    *_both("/versions", add_version, "POST"),
    *_both("/versions/{version}/activate", activate, "POST"),
    *_both("/rollback", roll_back, "POST"),
    *_both("/learn", learn, "POST"),
    *_both("/learn", show_learning, "GET"),
    *_both("/arms", list_arms, "GET"),
    *_both("/arms", add_arm, "POST"),
    *_both("/arms/{label:path}", retire_arm, "DELETE"),
    *_both("/configuration", show_rules, "GET"),
    *_both("/configuration", change_rules, "PUT"),
]
