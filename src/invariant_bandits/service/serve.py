"""Start a service: check the store, restore the state, open the door; end it in order. The application: all
operations on one engine, what holds for every request, and the document of version 1 (OpenAPI 3.1), made from
its operations.
"""

from __future__ import annotations

import logging
import math
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from mimetypes import guess_type
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from invariant_bandits import __version__
from invariant_bandits.checks import InputError
from invariant_bandits.model.model import Model
from invariant_bandits.service import commands
from invariant_bandits.service.access import Access, Role, is_loopback, read_tokens
from invariant_bandits.service.background import Learning, RefitSchedule
from invariant_bandits.service.dashboard import Dashboard
from invariant_bandits.service.engine import Decider, Engine
from invariant_bandits.service.events import Origin
from invariant_bandits.service.learners import FittedLearner, OpenLearner
from invariant_bandits.service.operations import OPERATIONS, Call, Operation, Service, operation
from invariant_bandits.service.protocols import ofrep, personalizer
from invariant_bandits.service.responses import ErrorAnswer, RefusedError, json_response, refusal
from invariant_bandits.service.routes import decisions, models
from invariant_bandits.service.store.open_store import VerifyingStore, open_store, verify
from invariant_bandits.service.store.postgres import is_address
from invariant_bandits.service.store.sql import EmptyStoreError

log = logging.getLogger("invariant_bandits.service")
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self';"
    b" script-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self';"
    b" frame-ancestors 'none'",
}
"""Sent with every response."""
ERROR_RESPONSES: dict[str, Callable[[RefusedError, Scope], Response]] = {
    "/personalizer": personalizer.error_response,
    "/models/": personalizer.error_response,
    "/ofrep": ofrep.error_response,
}
"""How errors look under a prefix of paths; elsewhere as in version 1."""
HANDLERS = (decisions, models, ofrep, personalizer)
"""Modules whose import registers all operations but those below."""


class RequestMiddleware:
    """Times every request, answers those that fail, and sends the headers that every response has."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in HEADERS.items() if name not in own]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise
            await _error_response(refusal(error), scope)(scope, receive, send_with_headers)
        name = getattr(getattr(scope.get("endpoint"), "__self__", None), "name", "none")
        scope["app"].state.service.metrics.count(name, status, time.perf_counter() - began)


def _error_response(refused: RefusedError, scope: Scope) -> Response:
    for prefix, respond in ERROR_RESPONSES.items():
        if scope["path"].startswith(prefix):
            return respond(refused, scope)
    return json_response(ErrorAnswer.of(refused), refused.status, refused.headers)


async def _leave_to_middleware(request: Request, error: Exception) -> NoReturn:
    raise error


def make_app(service: Service, *, lifespan: Any = None) -> Starlette:
    """Return the application around a service; the engine makes views for its page and its metrics."""
    dashboard = Dashboard()
    service.engine.on_view.append(dashboard)
    service.engine.on_event.append(dashboard.take)
    service.metrics.view = lambda: service.engine.view
    app = Starlette(
        routes=[route for each in OPERATIONS for route in each.routes()],
        exception_handlers={HTTPException: _leave_to_middleware},
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(RequestMiddleware)
    return app


# -- the document --

Schema = dict[str, Any]
DOCUMENTED = re.compile(r"/(v1/|healthz|readyz)")
"""What the paths in the document begin with."""
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean", "default": False}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
QUERY: dict[str, Schema] = {
    "model": {**TEXT, "description": "Name of the model; the default one if not given"},
    "note": {**TEXT, "description": "Kept with the version"},
    "activate": {**FLAG, "description": "Whether the new version decides from now on"},
    "allow_differences": {**FLAG, "description": "Whether kind, columns and arms may be others than now"},
}
"""Schemas of the parameters in queries."""


@operation("GET", "/openapi.json", None)
async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    return document()


@cache
def document() -> Schema:
    """Return the whole document."""
    documented = [each for each in OPERATIONS if DOCUMENTED.match(each.path)]
    kinds = {kind for each in documented for kind in (*each.bodies, each.answer_type)}
    structs = {ErrorAnswer, *kinds} - {bytes, None}
    _, components = msgspec.json.schema_components(
        sorted(structs, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Schema] = {}
    for each in documented:
        path = re.sub(r":\w+}", "}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _described(each)
    about = "Decisions, durable and replayable."
    token = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "invariant-bandits", "version": __version__, "description": about},
        "components": {"schemas": components, "securitySchemes": {"token": token}},
        "security": [{}, {"token": []}],
        "paths": paths,
    }


def _described(described: Operation) -> Schema:
    """Return one operation; each can answer with an error."""
    answer: Schema = {"type": "object"} if described.answer is None else _ref(described.answer_type)
    if isinstance(described.answer, tuple):
        answer = {"anyOf": [answer, {"type": "object", "required": [described.answer[1]]}]}
    schema: Schema = {
        "summary": (described.handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "responses": {
            str(described.status): {"description": "done", **_json(answer)},
            "default": {"description": "refused", **_json(_ref(ErrorAnswer))},
        },
    }
    if described.bodies:
        structs = [_ref(kind) for kind in described.bodies if kind is not bytes]
        octets: Schema = {"content": {"application/octet-stream": {"schema": {}}}}
        content = _json(structs[0] if len(structs) == 1 else {"anyOf": structs}) if structs else octets
        schema["requestBody"] = {"required": True, **content}
    in_path = re.findall(r"{(\w+)", described.path)
    in_query = ("model", *described.query) if described.is_about_model else described.query
    parameters = [{"name": name, "in": "path", "required": True, "schema": NAME} for name in in_path]
    parameters += [{"name": name, "in": "query", "schema": QUERY[name]} for name in in_query]
    return {**schema, "parameters": parameters}


def _ref(kind: type) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _json(schema: Schema) -> Schema:
    return {"content": {"application/json": {"schema": schema}}}


# -- health, metrics and the page --

FILES = {file.name: file.read_bytes() for file in (files("invariant_bandits.service") / "page").iterdir()}
"""Everything the page is made of, read once: no path of a request reaches the file system."""


@operation("GET", "/healthz", None)
async def healthy(call: Call) -> dict[str, str]:
    """Say that the service lives."""
    return {"status": "ok"}


@operation("GET", "/readyz", None)
async def ready(call: Call) -> Any:
    """Say whether decisions can be made and stored."""
    engine = call.service.engine
    if engine.failure is not None or not engine.available:
        why = str(engine.failure or "the store cannot take events")
        return json_response({"status": "unavailable", "why": why}, 503)
    return {"status": "ready", "set_aside": len(engine.state.aside)}


@operation("GET", "/metrics", "read")
async def metrics(call: Call) -> Response:
    """Show metrics in the text format of Prometheus."""
    return Response(call.service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


@operation("GET", "/", None)
@operation("GET", "/page/{name}", None)
async def page(call: Call) -> Response:
    """Show the page, or a file that it is made of; the page asks for a token itself if one is needed."""
    name = call.path.get("name", "index.html")
    if name not in FILES:
        raise RefusedError(404, "there is no such file")
    return Response(FILES[name], media_type=guess_type(name)[0])


@operation("GET", "/v1/overview", "read", query=("model",))
async def overview(call: Call) -> dict[str, Any]:
    """Show what the page shows, as it was last seen."""
    service = call.service
    view, failure = service.engine.view, service.engine.failure
    models: dict[str, Any] = view.get("models", {})
    first = "default" if "default" in models else next(iter(models), None)
    name = call.query.get("model") or first
    if name is not None and name not in models:
        raise RefusedError(404, f"model: {name!r} is not served")
    return {
        "service": {
            "version": __version__,
            "time": view.get("time"),
            "since": view.get("since"),
            "events": view.get("seq", 0),
            "available": bool(view.get("available", True)) and failure is None,
            "failure": None if failure is None else str(failure),
            "latencies": service.metrics.latencies(),
            "may_change": not service.access.tokens or call.caller.startswith("admin"),
        },
        "models": {model: {"alarm": bool(shown["about"].get("alarm"))} for model, shown in models.items()},
        "name": name,
        "model": None if name is None else models[name],
    }


# -- starting --

FleetRole = Literal["alone", "learner", "decider"]
"""Alone: decides and learns, and a second such process is refused. A learner waits for its turn instead, and
publishes what it has learned; deciders decide from that, as many as are wanted."""
PUBLISH_EVERY = 1.0
"""Seconds between two published states."""
PAUSE = 0.25
"""Seconds between two looks whether it is one's turn."""

Say = Callable[[str], None]


def engine_for(role: FleetRole, address: str, say: Say, verifying: VerifyingStore | None = None) -> Engine:
    """Return the engine, not started, of a process with this role on the store under an address.

    `verifying` is that store, if it is open already.
    """
    if role not in get_args(FleetRole):
        raise InputError(f"role must be one of {', '.join(get_args(FleetRole))}, got {role!r}")
    if role != "alone" and not is_address(address):
        raise InputError(f"role: a {role} needs a store that processes can share (--store postgresql://…)")
    if role == "decider":
        return Decider(_open_published(address, say))
    if verifying is not None:
        store = verifying.store
    else:
        wait = _poller(say, "another process learns: waiting for its turn") if role == "learner" else None
        store = open_store(address, check=verify, wait=wait)
    try:
        try:
            return Engine(store, publish_every=PUBLISH_EVERY if role == "learner" else math.inf)
        finally:
            if verifying is not None:
                verifying.finish()  # what is damaged is said first
    except BaseException:
        store.close()
        raise


def _open_published(address: str, say: Say) -> Any:
    """The store, as soon as a learner has published something in it."""
    pause = _poller(say, "waiting for a learner to publish its first model")
    while True:
        try:
            store = open_store(address, learning=False)
            if store.snapshot_seq() is not None:
                return store
            store.close()
        except EmptyStoreError:
            pass
        pause()


def _poller(say: Say, why: str) -> Callable[[], None]:
    """Return a function that waits a little, and says once why."""
    say_once = cache(say)

    def wait() -> None:
        say_once(why)
        time.sleep(PAUSE)

    return wait


@dataclass(frozen=True)
class ServiceSettings:
    """How a service is started.

    Parameters
    ----------
    store : str
        Path of the SQLite file, made if it is not there, or `postgresql://…`.
    models : mapping of str to path
        Model files by the name they are served under; without any, and with an empty store, an empty model
        "default".
    host, port : str, int
        Where to listen.
    tokens : mapping of str to Role
        See `access`; without any, only loopback is served.
    token_file : Path or None
        Where the tokens are from; SIGHUP reads it again.
    rate : float
        Requests per second and token; 0 is without bound.
    role : "alone", "learner" or "decider"
        See `FleetRole`.
    logs : mapping of str to str
        Logs by the name of the model that is fitted to them, unless the store has it already.
    plan : RefitSchedule
        When and how models learn from their own history in the background.
    """

    store: str = "decisions.db"
    models: Mapping[str, Path] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Mapping[str, Role] = field(default_factory=dict)
    token_file: Path | None = None
    rate: float = 0.0
    role: FleetRole = "alone"
    logs: Mapping[str, str] = field(default_factory=dict)
    plan: RefitSchedule = field(default_factory=RefitSchedule)


def open_service(
    settings: ServiceSettings,
    say: Say = lambda line: None,
    *,
    empty_model: bool = True,
    verifying: VerifyingStore | None = None,
) -> Service:
    """The service with its store checked, its state restored and its models there; not yet listening.

    Where there is no model at all, an empty one is made if that is wanted. `verifying` is the store, if it is
    already open.
    """
    if not settings.tokens and not is_loopback(settings.host):
        outside = "can be reached from outside, which needs tokens (--token-file)"
        raise InputError(f"host: {settings.host} {outside}")
    if settings.role == "decider" and (settings.models or settings.logs):
        raise InputError("role: a decider takes its models from the learner, not from files")
    engine = engine_for(settings.role, settings.store, say, verifying)
    say(f"{engine.state.seq:,} events, models: {', '.join(engine.state.models) or 'none yet'}")
    engine.start()
    try:
        if empty_model and not settings.models and not settings.logs and not engine.state.models:
            empty = OpenLearner(seed=engine.store.seed)
            engine.call(commands.add_version("default", empty, "empty"), alone=True)
            say("an empty model, 'default', learns from what comes")
        _bring_models(engine, settings, say)
    except BaseException:
        engine.stop()
        raise
    learning = None if settings.role == "decider" else Learning(engine, settings.store, settings.plan)
    if learning is not None:
        learning.start()
    return Service(engine, Access(settings.tokens, settings.rate), learning=learning)


def _bring_models(engine: Engine, settings: ServiceSettings, say: Say) -> None:
    """Add the models that were given; one that is there already stays as it has learned."""

    def add(name: str, model: Model, origin: Origin, note: str) -> None:
        learner = FittedLearner(model, engine.store.seed)
        command = commands.add_version(name, learner, origin, note=note, unless_known=True)
        say(f"{name}: version {engine.call(command, alone=True)}")

    for name, path in settings.models.items():
        add(name, Model.load(path), "file", path.name)
    for name, log_path in settings.logs.items():
        if name not in engine.state.models:
            from invariant_bandits.model.fit import fit_logs  # a start without logs saves this second

            say(f"{name}: fitting to {log_path}")
            add(name, fit_logs(log_path), "logs", Path(log_path).name)


def application(service: Service) -> Starlette:
    """The application, which stops the engine when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        if service.learning is not None:
            service.learning.stop()
        service.engine.stop()

    return make_app(service, lifespan=lifespan)


def serve(
    settings: ServiceSettings, say: Say = lambda line: None, verifying: VerifyingStore | None = None
) -> int:
    """Serve until asked to end, with the tokens read again at every SIGHUP; 0 if it ended in order.

    The caller has blocked SIGHUP: one that comes before there is a service is answered then.
    """
    service = open_service(settings, say, verifying=verifying)
    signal.signal(signal.SIGHUP, lambda *_: _rotate(service.access, settings.token_file))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return run(service, settings, say)


def _rotate(access: Access, token_file: Path | None) -> None:
    """Read the token file again; one that is refused leaves the tokens as they are."""
    if token_file is None:
        log.warning("SIGHUP: there is no token file to read again")
        return
    try:
        access.tokens = read_tokens(token_file)
    except InputError as error:
        log.error("SIGHUP: the tokens stay as they were: %s", error)
    else:
        log.info("SIGHUP: read %d token(s) from %s", len(access.tokens), token_file)


def run(service: Service, settings: ServiceSettings, say: Say = lambda line: None) -> int:
    """Listen until asked to end, or until the engine has failed; 0 if it ended in order."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                say(f"serving at http://{settings.host}:{settings.port}")

        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or service.engine.failure is not None

    config = uvicorn.Config(
        application(service),
        settings.host,
        settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=64 << 10,
        timeout_keep_alive=30,
        limit_concurrency=2_000,
    )
    server = Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn ends in order, and raises them again afterwards
        signal.signal(number, lambda *_: None)
    server.run()
    return 0 if service.engine.failure is None and server.started else 1
