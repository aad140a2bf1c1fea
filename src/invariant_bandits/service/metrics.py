"""Metrics for Prometheus: requests by route and status, their durations, and what the engine's view
counts.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "invariant_bandits"
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper ends of the latency classes, seconds."""
RECENT = 1_000
"""Requests of a route whose exact times are kept."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COUNTED = {
    "decisions": "Decisions made.",
    "explored": "Decisions in which chance chose.",
    "rewards": "Rewards joined to their decisions.",
    "late": "Rewards that came after their decision was settled.",
    "unknown": "Rewards without a decision.",
    "learned": "Decisions learned.",
    "defaulted": "Decisions learned with the default reward.",
    "unlearned": "Decisions settled without being learned.",
    "refused": "Decisions that the policy could not learn.",
}
"""Counts of a model that are metrics, and their help texts."""

# when a counter began is of no use to readers, and would double the page
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        for collector in (prometheus.ProcessCollector, prometheus.PlatformCollector, prometheus.GCCollector):
            collector(registry=self._registry)
        counted, timed = f"{PREFIX}_requests", f"{PREFIX}_request_duration_seconds"
        self._requests = prometheus.Counter(
            counted, "Requests by route and status.", ["route", "status"], registry=self._registry
        )
        self._durations = prometheus.Histogram(
            timed, "How long requests took.", ["route"], buckets=BOUNDS, registry=self._registry
        )
        self._counts: Tally[str] = Tally()
        self._recent: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=RECENT))

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, status).inc()
        self._durations.labels(route).observe(seconds)
        self._counts[route] += 1
        self._recent[route].append(seconds)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return median, 95 % and 99 % of the last thousand requests of every route, in seconds,
        and their count.
        """
        summary = {}
        for route, recent in list(self._recent.items()):
            times = sorted(recent)
            at = {
                name: times[min(int(share * len(times)), len(times) - 1)] for name, share in QUANTILES.items()
            }
            summary[route] = {"count": self._counts[route], **at}
        return summary

    def show(self, view: Callable[[], Mapping[str, Any]]) -> None:
        """Add what the engine's view counts per model to the page."""
        self._registry.register(ViewCollector(view))

    def page(self) -> bytes:
        """Return the page in the text format of Prometheus."""
        return prometheus.generate_latest(self._registry)


class ViewCollector(Collector):
    """Metrics of the models in a view.

    Parameters
    ----------
    view : callable
        Returns the latest view of the engine.
    """

    def __init__(self, view: Callable[[], Mapping[str, Any]]) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each count, and gauges."""
        view = self._view()
        models: Mapping[str, Any] = view.get("models", {})
        for name, about in COUNTED.items():
            counter = CounterMetricFamily(f"{PREFIX}_{name}", about, labels=["model"])
            for model, shown in models.items():
                counter.add_metric([model], shown["counts"][name])
            yield counter
        waiting = GaugeMetricFamily(
            f"{PREFIX}_waiting_decisions", "Decisions that wait for rewards.", labels=["model"]
        )
        alarm = GaugeMetricFamily(
            f"{PREFIX}_alarm", "Whether what was stable in the logs has changed.", labels=["model"]
        )
        for model, shown in models.items():
            waiting.add_metric([model], shown["waiting"])
            alarm.add_metric([model], bool(shown["about"].get("alarm")))
        available = float(view.get("available", True))
        yield from (waiting, alarm)
        yield GaugeMetricFamily(f"{PREFIX}_store_available", "Whether the store takes events.", available)
        yield GaugeMetricFamily(f"{PREFIX}_events", "Events in the store.", view.get("seq", 0))
