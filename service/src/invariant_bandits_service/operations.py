"""Operations: everything that can be asked over HTTP, and what a handler works with; metrics count them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, TypeVar

import msgspec
import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits_service import background, commands, responses
from invariant_bandits_service.access import Access, Caller, Role
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.state import ServedModel, State

Value = TypeVar("Value")
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)
Handler = Callable[..., Awaitable[Any]]
Registering = Callable[[Handler], Handler]
MODEL = "/v1/model"
NAMED_MODEL = "/v1/models/{model}"
"""What paths about one model begin with: the default one or that of ?model=, and one by its name."""
audit_log = logging.getLogger("invariant_bandits_service.audit")

PREFIX = "invariant_bandits"
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper ends of the latency classes, seconds."""
RECENT = 1_000
"""Requests of a route whose exact times are kept."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COUNTERS = {
    "decisions": "Decisions made.",
    "explored": "Decisions in which chance chose.",
    "rewards": "Rewards joined to their decisions.",
    "late": "Rewards that came after their decision was settled.",
    "unknown": "Rewards without a decision.",
    "learned": "Decisions learned.",
    "defaulted": "Decisions learned with the default reward.",
    "unlearned": "Decisions settled without being learned.",
    "refused": "Decisions that the policy could not learn.",
    "shortened": "Decisions settled before their wait ended, because too many waited.",
}
"""Help of the counters of every model; the names are those of `state.Counts`."""
GAUGES = {
    "waiting_decisions": "Decisions that wait for rewards.",
    "alarm": "Whether the alarm is on: what was invariant has changed.",
    "learning_failed": "Whether the last attempt to learn from its own decisions failed.",
}
"""Help of the gauges of every model."""

# when a counter began is of no use to readers, and would double the page
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics(Collector):
    """Requests by route and status, how long they took, and what the engine's dashboard counts per model.

    Attributes
    ----------
    dashboard : callable
        Returns the latest dashboard of the engine.
    """

    dashboard: Callable[[], Mapping[str, Any]] = dict

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        for collector in (
            prometheus.ProcessCollector,
            prometheus.PlatformCollector,
            prometheus.GCCollector,
        ):
            collector(registry=registry)
        about = "Requests by route and status."
        labels = ["route", "status"]
        self._requests = prometheus.Counter(
            f"{PREFIX}_requests", about, labels, registry=registry
        )
        name = f"{PREFIX}_request_duration_seconds"
        about = "How long requests took."
        self._durations = prometheus.Histogram(
            name, about, ["route"], buckets=BOUNDS, registry=registry
        )
        registry.register(self)
        self._counts: Counter[str] = Counter()
        self._recent: dict[str, deque[float]] = defaultdict(
            partial(deque, maxlen=RECENT)
        )

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, status).inc()
        self._durations.labels(route).observe(seconds)
        self._counts[route] += 1
        self._recent[route].append(seconds)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return quantiles and number of the latencies of every route.

        The quantiles, in seconds, are those of the last thousand requests.
        """
        summary = {}
        for route, recent in list(self._recent.items()):
            times = sorted(recent)
            shown = {
                name: times[int(share * len(times))]
                for name, share in QUANTILES.items()
            }
            summary[route] = {"count": self._counts[route], **shown}
        return summary

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each count of the dashboard, and its gauges."""
        dashboard = self.dashboard()
        numbers = {}
        failures = dashboard.get("learning_failures", {})
        for model, shown in dashboard.get("models", {}).items():
            gauges = {
                "waiting_decisions": shown["waiting"],
                "alarm": bool(shown["about"].get("alarm")),
                "learning_failed": model in failures,
            }
            numbers[model] = {**shown["counts"], **gauges}
        families: list[CounterMetricFamily | GaugeMetricFamily] = []
        for name, about in COUNTERS.items():
            families.append(_family(CounterMetricFamily, name, about))
        for name, about in GAUGES.items():
            families.append(_family(GaugeMetricFamily, name, about))
        for name, family in zip([*COUNTERS, *GAUGES], families, strict=True):
            for model, values in numbers.items():
                family.add_metric([model], values[name])
            yield family
        for name, (about, number) in dashboard.get("gauges", {}).items():
            yield GaugeMetricFamily(f"{PREFIX}_{name}", about, number)
        available = float(dashboard.get("available", True))
        yield GaugeMetricFamily(
            f"{PREFIX}_store_available", "Whether the store takes events.", available
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_events",
            "Events since the store was made, also those that were removed.",
            dashboard.get("seq", 0),
        )

    def page(self) -> bytes:
        """Return the page in the text format of Prometheus."""
        return prometheus.generate_latest(self._registry)


def _family(kind: type[Family], name: str, about: str) -> Family:
    """Return a metric that every model has, without values yet."""
    return kind(f"{PREFIX}_{name}", about, labels=["model"])


@dataclass
class Service:
    """The engine, who may use it, and how much.

    Parameters
    ----------
    engine : Engine
    access : Access
    metrics : Metrics
    learning : background.Learning or None
        Learns in the background, where that is wanted.
    """

    engine: Engine
    access: Access = field(default_factory=Access)
    metrics: Metrics = field(default_factory=Metrics)
    learning: background.Learning | None = None


class Call:
    """A request of a caller who may make it, as handlers see it.

    Parameters
    ----------
    request : Request
    service : Service
    caller : Caller
        Who asks, as far as the operation needs to know it.
    model : str
        Name of the model that is meant.
    """

    def __init__(
        self, request: Request, service: Service, caller: Caller, model: str
    ) -> None:
        self.request = request
        self.service = service
        self.caller = caller
        self.model = model
        self.engine = service.engine
        self.path: Mapping[str, Any] = request.path_params
        self.query = request.query_params

    async def submit(self, command: commands.Command[Value]) -> Value:
        """Return the answer of a command, after everything it proposed is durable."""
        return await self.engine.submit(command)

    async def change(self, command: commands.Command[Value], done: str) -> Value:
        """Return the answer of a command that is run alone, and audit it.

        `done` is its line in the audit, in which the answer replaces `{}`.
        """
        answer = await self.engine.submit(command, alone=True)
        self.audit(done.replace("{}", str(answer)))
        return answer

    def charge(self, more: int) -> None:
        """Count what a request carries beyond its first decision or reward against the caller's rate."""
        self.service.access.charge(self.caller, more)

    def audit(self, done: str) -> None:
        """Log one line about what the caller did."""
        audit_log.info("%s: %s", self.caller.name, done)

    async def look(self, function: Callable[[State], Value]) -> Value:
        """Return what a function that changes nothing says of the state."""
        return await self.submit(commands.inspect(function))

    async def look_at_model(self, function: Callable[[ServedModel], Value]) -> Value:
        """Return what a function that changes nothing says of the model that is meant."""
        return await self.look(lambda state: function(state.model(self.model)))

    async def in_thread(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Return what a function that reads the store returns, without holding up other requests."""
        return await asyncio.get_running_loop().run_in_executor(
            None, function, *arguments
        )


def model_of(request: Request) -> str | None:
    """Return the name of the model that a request names, in the path or in the query."""
    return request.path_params.get("model") or request.query_params.get("model")


class ModelQuery(msgspec.Struct):
    """Which model is meant."""

    model: Annotated[
        str | None,
        msgspec.Meta(description="Name of the model; not needed if there is only one"),
    ] = None


@dataclass(frozen=True)
class Operation:
    """A method and a path, who may use them, and what is answered.

    Routes, role checks and OpenAPI follow from it.

    Parameters
    ----------
    method, path : str
    prefix : str
        Of a protocol whose operations have routes and errors of their own; it comes before the path.
    role : Role or None
        Role that the caller's token needs; None: anyone may ask.
    handler : callable
        Takes the call, and its body if it has one. Returns a response, or the value of a JSON response;
        None: no body.
    bodies : tuple of types
        Structs that the JSON body may hold. The first one is the usual one, another one is chosen by its
        first field. `bytes` is a file that is uploaded.
    answer : type or (type, str)
        Struct of the JSON response, for the document; with a name, a list of such structs may be under
        the name.
    status : int
        Status of a response without error.
    media : str
        Media type of such a response, for the document; empty: it differs.
    error : type
        Struct of the JSON response to a request that is refused, for the document.
    query : type or None
        Struct of the parameters in the query, for the document, besides the model.
    """

    method: str
    path: str
    role: Role | None
    handler: Handler
    bodies: tuple[Any, ...] = ()
    answer: Any = None
    status: int = 200
    media: str = "application/json"
    error: Any = responses.ErrorAnswer
    query: type[msgspec.Struct] | None = None
    prefix: str = ""

    @cached_property
    def name(self) -> str:
        """The label of its metrics, such as decisions.decide."""
        return f"{self.handler.__module__.rpartition('.')[2]}.{self.handler.__name__}"

    @property
    def answer_type(self) -> Any:
        """Struct of the JSON response."""
        return self.answer[0] if isinstance(self.answer, tuple) else self.answer

    @property
    def is_about_model(self) -> bool:
        """Whether it is about one model: the default one, that of ?model=, or one by its name in the path."""
        return self.path == MODEL or self.path.startswith(f"{MODEL}/")

    def paths(self) -> list[str]:
        """Return its paths after the prefix."""
        if self.is_about_model:
            return [self.path, NAMED_MODEL + self.path.removeprefix(MODEL)]
        return [self.path]

    def routes(self) -> list[Route]:
        """Return its routes after the prefix."""
        routes = []
        for path in self.paths():
            routes.append(Route(path, self.respond, methods=[self.method]))
        return routes

    async def respond(self, request: Request) -> Response:
        """Return the response to a request of a caller who may make it."""
        service: Service = request.app.state.service
        caller = Caller()
        if self.role is not None:
            caller = service.access.check(request, self.role)
            self._check_query(request)
        model = model_of(request) or service.engine.view().usual_model
        call = Call(request, service, caller, model)
        if self.bodies:
            answer = await self.handler(call, await self._body(call))
        else:
            answer = await self.handler(call)
        if answer is None:
            return Response(status_code=self.status)
        if isinstance(answer, Response):
            return answer
        return responses.json_response(answer, self.status)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that its query can have."""
        names = ("model",) if self.is_about_model else ()
        fields = () if self.query is None else self.query.__struct_fields__
        return (*names, *fields)

    def _check_query(self, request: Request) -> None:
        """Refuse parameters that are not known: a mistyped one must not be taken for none."""
        for name in request.query_params:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise responses.RefusedError(
                    422, f"{name[:80]}: is not a parameter; there are {known}", name
                )

    async def _body(self, call: Call) -> Any:
        takes_file = bytes in self.bodies
        most = responses.LARGEST_UPLOAD if takes_file else responses.LARGEST_BODY
        body = await responses.read_body(call.request, most)
        if takes_file and (
            self.bodies == (bytes,)
            or "log" in call.query
            or not responses.is_json(body)
        ):
            return body
        for kind in self.bodies[1:]:
            if kind is not bytes and responses.has_field(
                body, kind.__struct_encode_fields__[0]
            ):
                return responses.decode(body, kind)
        return responses.decode(body, self.bodies[0])


OPERATIONS: list[Operation] = []
"""All of them; a module registers its own when it is imported."""


def operation(
    method: str, path: str, role: Role | None, *bodies: Any, **options: Any
) -> Registering:
    """Register a handler as an operation; for the parameters see `Operation`."""

    def register(handler: Handler) -> Handler:
        registered = Operation(
            method=method,
            path=path,
            role=role,
            handler=handler,
            bodies=bodies,
            **options,
        )
        OPERATIONS.append(registered)
        return handler

    return register
