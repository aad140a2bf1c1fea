"""Start a service and answer requests: the application, the store, the models."""

from __future__ import annotations

import gc
import logging
import math
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from mimetypes import guess_type
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from invariant_bandits import __version__
from invariant_bandits.checks import InputError, one_of
from invariant_bandits.model.model import Model
from invariant_bandits_service import commands, document
from invariant_bandits_service.access import Access, is_loopback, read_tokens
from invariant_bandits_service.background import (
    Learning,
    RefitSchedule,
    compare,
    in_words,
)
from invariant_bandits_service.dashboard import Dashboard
from invariant_bandits_service.engine import Decider, Engine, Retention
from invariant_bandits_service.events import Origin
from invariant_bandits_service.learners import FittedLearner, OpenLearner
from invariant_bandits_service.listener import (
    HEALTH,
    Listener,
    answering_health,
    check_port,
    log_request,
    route_path,
)
from invariant_bandits_service.operations import (
    OPERATIONS,
    Call,
    Metrics,
    ModelQuery,
    Operation,
    Service,
    operation,
)
from invariant_bandits_service.protocols import ofrep
from invariant_bandits_service.responses import (
    ErrorAnswer,
    RefusedError,
    json_response,
    refusal,
)
from invariant_bandits_service.routes import decisions, models
from invariant_bandits_service.store.open_store import (
    FEW,
    Verification,
    check_newest,
    open_store,
)
from invariant_bandits_service.store.postgres import is_address
from invariant_bandits_service.store.sql import EmptyStoreError, UnreachableError

log = logging.getLogger("invariant_bandits_service")
HANDLERS = (decisions, document, models, ofrep)
"""Modules whose import registers all operations but those below."""
ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


# -- what holds for every request --

CONTENT_SOURCES = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The page loads nothing from elsewhere, and no other site can show it in a frame."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", CONTENT_SOURCES.encode()),
)
"""Sent with every response that does not have its own."""
MOST_REQUESTS = 2_000
"""Requests that are answered at the same time: as many as connections may be open."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Names that only this machine resolves to itself: no page of another site has them."""
BUSY = json_response(
    ErrorAnswer.of(RefusedError(503, "too many requests are in progress")),
    status=503,
    headers={"Retry-After": "1"},
)
"""The response to one request too many."""


class RequestMiddleware:
    """Times, counts and logs every request, and adds the headers that every response has.

    A request beyond `MOST_REQUESTS` is refused, unless it asks for the health.

    Parameters
    ----------
    app : ASGIApp
        Answers the requests.
    metrics : Metrics
        Counts them.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                present = {name.lower() for name, _ in headers}
                headers += [header for header in HEADERS if header[0] not in present]
            await send(message)

        self._in_progress += 1
        try:
            app = self.app
            if self._in_progress > MOST_REQUESTS and route_path(scope) not in HEALTH:
                app = BUSY
            await app(scope, receive, send_with_headers)
        finally:
            self._in_progress -= 1
        operation = getattr(scope.get("endpoint"), "__self__", None)
        name = operation.name if isinstance(operation, Operation) else "none"
        seconds = time.perf_counter() - began
        self.metrics.count(name, status, seconds)
        log_request(scope, status, seconds)


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed."""
    refused = refusal(error)
    return json_response(ErrorAnswer.of(refused), refused.status, refused.headers)


def error_handlers(handler: ErrorHandler) -> dict[Any, ErrorHandler]:
    """Return what `ExceptionMiddleware` takes, if one function answers all errors."""
    return {HTTPException: handler, Exception: handler}


class Application(Starlette):
    """All operations on a service.

    Parameters
    ----------
    service : Service
        Its engine makes dashboards for the page and the metrics, and stops when the application
        ends.
    hosts : sequence of str
        Host names under which it may be asked besides those of this machine; "*" is any.
    """

    def __init__(self, service: Service, hosts: Sequence[str] = ()) -> None:
        super().__init__(routes=_routes(), lifespan=_lifespan)
        self.state.service = service
        self.hosts = [*LOCAL_HOSTS, *hosts]
        service.engine.dashboard_parts.append(Dashboard())
        if service.learning is not None:
            failures = service.learning.failures
            service.engine.dashboard_parts.append(
                lambda state: {"learning_failures": failures()}
            )
        service.metrics.dashboard = lambda: service.engine.dashboard

    def build_middleware_stack(self) -> ASGIApp:
        """Return the router within what holds for every request.

        Starlette's own stack has two layers more, which answer errors that are answered here.
        """
        app: ASGIApp = ExceptionMiddleware(self.router, error_handlers(answer_error))
        app = TrustedHostMiddleware(app, self.hosts, www_redirect=False)
        return RequestMiddleware(app, self.state.service.metrics)


def _routes() -> list[BaseRoute]:
    """Return a route for every path of every operation; OpenFeature has errors of its own."""
    routes: list[BaseRoute] = []
    of_flags: list[BaseRoute] = []
    for each in OPERATIONS:
        group = of_flags if each.prefix == ofrep.PREFIX else routes
        group.extend(each.routes())
    handlers = error_handlers(ofrep.answer_error)
    errors = Middleware(ExceptionMiddleware, handlers=handlers)
    # first, so that its paths are not compared with those of all others
    return [Mount(ofrep.PREFIX, routes=of_flags, middleware=[errors]), *routes]


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    if app.state.service.learning is not None:
        app.state.service.learning.stop()
    app.state.service.engine.stop()


# -- health, metrics and the page --


@operation("GET", "/healthz", None)
async def healthy(call: Call) -> dict[str, str]:
    """Say that the service lives."""
    return {"status": "ok"}


@operation("GET", "/readyz", None)
async def ready(call: Call) -> Any:
    """Say whether decisions can be made and stored."""
    why = call.engine.problem()
    if why is None and call.service.learning is not None:
        why = call.service.learning.problem()
    if why is not None:
        return json_response({"status": "unavailable", "why": why}, 503)
    verified = call.engine.verification is None or call.engine.verification.done
    return {
        "status": "ready",
        "set_aside": len(call.engine.view().aside),
        "verified": verified,
    }


@operation("POST", "/v1/clock/confirm", "admin")
async def confirm_clock(call: Call) -> dict[str, str]:
    """Say that this machine's clock is right, although it is far ahead of the last event."""
    call.engine.confirm_clock()
    call.audit("confirmed the clock")
    return {"status": "confirmed"}


@operation("GET", "/metrics", "read", media="text/plain")
async def metrics(call: Call) -> Response:
    """Show metrics in the text format of Prometheus."""
    return Response(
        call.service.metrics.page(),
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )


@operation("GET", "/", None, media="text/html")
@operation("GET", "/page/{name}", None, media="")
async def page(call: Call) -> Response:
    """Show the page, or a file that it is made of; the page asks for a token itself if one is needed."""
    name = call.path.get("name", "index.html")
    if name not in document.FILES:
        raise RefusedError(404, "there is no such file")
    return Response(document.FILES[name], media_type=guess_type(name)[0])


@operation("GET", "/v1/overview", "read", query=ModelQuery)
async def overview(call: Call) -> dict[str, Any]:
    """Show what the page shows, as it was last seen."""
    service = call.service
    view = service.engine.dashboard
    failure = service.engine.failure
    models: dict[str, Any] = view.get("models", {})
    name = call.query.get("model") or next(iter(models), None)
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
            "may_change": call.caller.may("admin"),
        },
        "models": {
            model: {"alarm": bool(shown["about"].get("alarm"))}
            for model, shown in models.items()
        },
        "name": name,
        "model": None if name is None else models[name],
        "learning_failure": view.get("learning_failures", {}).get(name),
    }


# -- starting --

FleetRole = Literal["alone", "learner", "decider"]
"""Alone: decides and learns, and a second such process is refused. A learner waits for its turn instead, and
publishes what it has learned; deciders decide from that, as many as are wanted."""
PUBLISH_EVERY = 1.0
"""Seconds between two published states."""
PAUSE = 0.25
"""Seconds between two looks whether it is one's turn."""

GARBAGE_EVERY = (50_000, 100, 1_000)
"""New objects between two searches for garbage in cycles, of which a request leaves next to none: fewer than
one request in a thousand waits for one."""

Say = Callable[[str], None]


def engine_for(role: FleetRole, address: str, say: Say) -> Engine:
    """Return the engine, not started, of a process with this role on the store under an address.

    What a start depends on is checked first. The verification of all other events goes on in the background,
    and stops the engine if it finds damage.
    """
    one_of("role", role, get_args(FleetRole))
    if role != "alone" and not is_address(address):
        raise InputError(
            f"role: a {role} needs a store that processes can share (--store postgresql://…)"
        )
    say = cache(say)  # each line once, however long it waits
    if role == "decider":
        return Decider(_open(address, say, role, learning=False))
    wait = partial(_pause, say, "another process is the learner: waiting until it ends")
    store = _open(
        address, say, role, check=check_newest, wait=wait if role == "learner" else None
    )
    try:
        engine = Engine(
            store, publish_every=PUBLISH_EVERY if role == "learner" else math.inf
        )
    except BaseException:
        store.close()
        raise
    if engine.state.seq - store.start().seq > FEW:
        engine.verification = Verification(address, engine.fail)
    return engine


def _open(address: str, say: Say, role: FleetRole, **options: Any) -> Any:
    """The store: in a fleet, as soon as it can be reached, and a decider's once a learner has published."""
    while True:
        why = "waiting for a learner to publish its first model"
        try:
            store = open_store(address, **options)
            if role != "decider" or store.snapshot_seq() is not None:
                return store
            store.close()
        except UnreachableError:
            if role == "alone":
                raise
            why = "the store cannot be reached: waiting for it"
        except EmptyStoreError:
            pass  # only a decider can meet it
        _pause(say, why)


def _pause(say: Say, why: str) -> None:
    """Wait a little, and say why."""
    say(why)
    time.sleep(PAUSE)


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
    token_file : Path or None
        Tokens and their roles, see `read_tokens`; without it, only loopback is served. SIGHUP reads it again.
    rate : float
        Requests per second and token; 0 is without bound.
    role : "alone", "learner" or "decider"
        See `FleetRole`.
    logs : mapping of str to str
        Logs by the name of the model that is fitted to them, unless the store has it already.
    plan : RefitSchedule
        When and how models learn from their own history in the background.
    retention : Retention or None
        How much of the past is kept; all if it is None.
    allow_hosts : sequence of str
        Further host names and addresses under which the service may be asked; "*.example.com" is
        every name that ends so.
    root_path : str
        What a proxy takes away from the beginning of paths.
    proxies : sequence of str
        Addresses and networks whose X-Forwarded-For is believed; "*": any.
    holdout : mapping of str to value
        Rules of the holdout that all models get, also those that are made later, see `Configuration`.
        Without any, a holdout that an earlier start has set ends.
    empty_model : bool
        Whether an empty model "default" is made where there is no model at all.
    """

    store: str = "decisions.db"
    models: Mapping[str, Path] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    token_file: Path | None = None
    rate: float = 0.0
    role: FleetRole = "alone"
    logs: Mapping[str, str] = field(default_factory=dict)
    plan: RefitSchedule = field(default_factory=RefitSchedule)
    retention: Retention | None = None
    allow_hosts: Sequence[str] = ()
    root_path: str = ""
    proxies: Sequence[str] = ("127.0.0.1",)
    holdout: Mapping[str, Any] = field(default_factory=dict)
    empty_model: bool = True

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Under which names requests may come: any, if tokens are needed and none is named."""
        is_open = (
            self.token_file is not None
            and not self.allow_hosts
            and not is_loopback(self.host)
        )
        if is_open:
            return ("*",)
        # browsers write an IPv6 address in brackets
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host, *self.allow_hosts)


def open_service(settings: ServiceSettings, say: Say = lambda line: None) -> Service:
    """The service with its store checked, its state restored and its models there; not yet listening."""
    tokens = {} if settings.token_file is None else read_tokens(settings.token_file)
    if not tokens and not is_loopback(settings.host):
        raise InputError(
            f"host: other machines can reach {settings.host}: tokens are needed (--token-file)"
        )
    if settings.role == "decider" and (settings.models or settings.logs):
        raise InputError(
            "role: a decider takes its models from the learner, not from files"
        )
    for name in settings.allow_hosts:
        if "*" in name and name != "*" and name.rfind("*.") != 0:
            raise InputError(
                f"allow_hosts: a pattern must be like *.example.com, got {name!r}"
            )
    engine = engine_for(settings.role, settings.store, say)
    engine.retention = settings.retention
    engine.first_rules = msgspec.structs.replace(engine.first_rules, **settings.holdout)
    view = engine.view()
    say(f"{view.seq:,} events, models: {', '.join(view.models) or 'none yet'}")
    engine.start()
    try:
        if settings.empty_model and not (
            settings.models or settings.logs or view.models or view.removed
        ):
            empty = OpenLearner(seed=engine.store.seed)
            engine.call(commands.add_version("default", empty, "empty"), alone=True)
            say("created the empty model 'default', which learns from its requests")
        _bring_models(engine, settings, say)
        if settings.role != "decider":
            _hold_out(engine, settings.holdout)
    except BaseException:
        engine.stop()
        raise
    learning = (
        None
        if settings.role == "decider"
        else Learning(engine, settings.store, settings.plan)
    )
    return Service(engine, Access(tokens, settings.rate), learning=learning)


def _hold_out(engine: Engine, holdout: Mapping[str, Any]) -> None:
    """Have the holdouts of all models follow the settings, but for those that were set by a call."""
    for name, served in engine.view().models.items():
        changes = holdout
        if not holdout and served.holdout_by == "":
            changes = {"holdout": 0.0}
        rules = msgspec.structs.replace(served.configuration, **changes)
        engine.call(commands.configure(name, rules), alone=True)


def _bring_models(engine: Engine, settings: ServiceSettings, say: Say) -> None:
    """Add the models that were given; one that is there already stays as it has learned.

    A file that has changed since the last start becomes a further version; it decides if it can answer the
    latest requests.
    """

    def add(name: str, model: Model, origin: Origin, note: str) -> None:
        learner = FittedLearner(model, engine.store.seed)
        known = engine.view().models.get(name)
        about: dict[str, Any] = {"note": note, "unless_known": True}
        if known is not None and not known.has_content(learner.to_bytes()):
            report = compare(engine, name, learner)
            about |= {
                "active": not report["differences"],
                "evaluation": report["evaluation"],
            }
            say(f"{name}: the file has changed; {in_words(report['evaluation'])}")
            for difference in report["differences"]:
                say(f"{name}: {difference}")
            if report["differences"]:
                say(
                    f"{name}: the new version was added but does not decide; it can be activated by hand"
                )
        command = commands.add_version(name, learner, origin, **about)
        engine.call(command, alone=True)
        say(f"{name}: version {engine.view().models[name].version}")

    removed = engine.view().removed
    for name in sorted(removed & {*settings.models, *settings.logs}):
        say(f"{name}: was removed, and stays so whatever the command names")
    for name, path in settings.models.items():
        if name not in removed:
            add(name, Model.load(path), "file", path.name)
    for name, log_path in settings.logs.items():
        if name not in engine.view().models and name not in removed:
            # imported late: a start without logs saves this second
            from invariant_bandits.model.fit import fit_logs

            say(f"{name}: fitting to {log_path}")
            add(name, fit_logs(log_path), "logs", Path(log_path).name)


def serve(settings: ServiceSettings, say: Say = lambda line: None) -> int:
    """Serve until asked to end, with the tokens read again at every SIGHUP; 0 if it ended in order.

    The caller has blocked SIGHUP: one that comes before there is a service is answered then.
    """
    check_port(settings.host, settings.port)
    waiting: AbstractContextManager[object] = nullcontext()
    if settings.role != "alone":
        waiting = answering_health(settings.host, settings.port)
    with waiting:
        service = open_service(settings, say)
    signal.signal(
        signal.SIGHUP, lambda *_: _rotate(service.access, settings.token_file)
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return run(service, settings, say)


def _rotate(access: Access, token_file: Path | None) -> None:
    """Read the token file again; one that is refused leaves the tokens as they are."""
    if token_file is None:
        log.warning("SIGHUP: there is no token file to read again")
        return
    try:
        access.tokens = read_tokens(token_file)
        log.info("SIGHUP: read %d token(s) from %s", len(access.tokens), token_file)
    except InputError as error:
        log.error("SIGHUP: the tokens stay as they were: %s", error)


def run(
    service: Service, settings: ServiceSettings, say: Say = lambda line: None
) -> int:
    """Listen until asked to end, or until the engine has failed; 0 if it ended in order."""
    gc.freeze()  # modules and models are not looked through again and again
    gc.set_threshold(*GARBAGE_EVERY)
    app = Application(service, settings.allowed_hosts)
    listener = Listener(
        app,
        lambda: service.engine.failure is not None,
        say,
        host=settings.host,
        port=settings.port,
        root_path=settings.root_path,
        proxies=settings.proxies,
    )
    return 0 if listener.listen() and service.engine.failure is None else 1
