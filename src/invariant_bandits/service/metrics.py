"""Figures for Prometheus, in its text form: counters and one histogram, in seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper ends of the latency classes, seconds."""
PREFIX = "invariant_bandits"
RECENT = 1_000
"""Requests of a route whose exact times are kept."""


@dataclass
class Metrics:
    """Requests by route and status, and how long they took."""

    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    classes: dict[str, list[int]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    recent: dict[str, deque[float]] = field(default_factory=dict)

    def count(self, route: str, status: int, seconds: float) -> None:
        """One more request."""
        self.requests[route, status] = self.requests.get((route, status), 0) + 1
        classes = self.classes.setdefault(route, [0] * (len(BOUNDS) + 1))
        classes[bisect_left(BOUNDS, seconds)] += 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds
        self.recent.setdefault(route, deque(maxlen=RECENT)).append(seconds)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Median, 95 % and 99 % of the last thousand requests of every route, in seconds, and how many there were."""
        told = {}
        for route, kept in list(self.recent.items()):
            times = sorted(kept)
            at = {name: times[min(int(share * len(times)), len(times) - 1)] for name, share in QUANTILES.items()}
            told[route] = {"count": sum(self.classes[route]), **at}
        return told

    def quantile(self, route: str, share: float) -> float | None:
        """An upper bound on this quantile of the latency, seconds."""
        classes = self.classes.get(route)
        if not classes:
            return None
        wanted, so_far = share * sum(classes), 0
        for bound, count in zip((*BOUNDS, float("inf")), classes, strict=True):
            so_far += count
            if so_far >= wanted:
                return bound
        return None

    def text(self, view: Mapping[str, Any]) -> str:
        """All of it, with what the engine's view counts per model."""
        lines: list[str] = []
        counted = (
            (f'route="{_safe(route)}",status="{status}"', n) for (route, status), n in sorted(self.requests.items())
        )
        lines += _family("requests_total", "counter", "Requests by route and status.", counted)
        lines += _histogram(self.classes, self.seconds)
        models = view.get("models", {})
        for name, about in COUNTED.items():
            values = ((f'model="{_safe(model)}"', told["counts"][name]) for model, told in models.items())
            lines += _family(f"{name}_total", "counter", about, values)
        waiting = ((f'model="{_safe(model)}"', told["waiting"]) for model, told in models.items())
        lines += _family("waiting_decisions", "gauge", "Decisions that wait for rewards.", waiting)
        alarms = ((f'model="{_safe(model)}"', int(bool(told["about"].get("alarm")))) for model, told in models.items())
        lines += _family("alarm", "gauge", "Whether what was stable in the logs has changed.", alarms)
        lines += _family(
            "store_available", "gauge", "Whether the store takes events.", [("", int(view.get("available", True)))]
        )
        lines += _family("events", "gauge", "Events in the store.", [("", view.get("seq", 0))])
        return "\n".join(lines) + "\n"


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


def _family(name: str, kind: str, about: str, values: Iterable[tuple[str, float]]) -> list[str]:
    full = f"{PREFIX}_{name}"
    samples = [f"{full}{{{labels}}} {value}" if labels else f"{full} {value}" for labels, value in values]
    return [f"# HELP {full} {about}", f"# TYPE {full} {kind}", *samples] if samples else []


def _histogram(classes: Mapping[str, list[int]], seconds: Mapping[str, float]) -> list[str]:
    name = f"{PREFIX}_request_duration_seconds"
    lines = [f"# HELP {name} How long requests took.", f"# TYPE {name} histogram"] if classes else []
    for route, counts in sorted(classes.items()):
        so_far = 0
        for bound, count in zip((*(f"{one:g}" for one in BOUNDS), "+Inf"), counts, strict=True):
            so_far += count
            lines.append(f'{name}_bucket{{route="{_safe(route)}",le="{bound}"}} {so_far}')
        lines.append(f'{name}_sum{{route="{_safe(route)}"}} {seconds[route]:.6f}')
        lines.append(f'{name}_count{{route="{_safe(route)}"}} {so_far}')
    return lines


def _safe(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
