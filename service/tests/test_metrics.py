"""The page of metrics: the names that dashboards are built on, and figures of the process."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from local_client import TestClient

OWN = {
    *(
        "requests",
        "request_duration_seconds",
        "decisions",
        "explored",
        "rewards",
        "late",
        "unknown",
        "learned",
        "clock_in_doubt",
        "learning_failed",
        "shortened",
    ),
    *(
        "defaulted",
        "unlearned",
        "refused",
        "waiting_decisions",
        "alarm",
        "store_available",
        "events",
    ),
    *("clock_offset_seconds", "clock_jumps"),
}


def test_metrics_have_their_names_and_count_what_happened(loops: TestClient) -> None:
    for n in range(3):
        assert (
            loops.post(
                "/v1/decisions", json={"arms": ["a", "b"], "id": str(n)}
            ).status_code
            == 200
        )
    assert loops.post("/v1/decisions", content=b"{").status_code == 400
    assert loops.get("/nowhere").status_code == 404
    answered = loops.get("/metrics")
    assert answered.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {
        family.name: family for family in text_string_to_metric_families(answered.text)
    }
    assert {name for name in families if name.startswith("invariant_bandits_")} == {
        f"invariant_bandits_{name}" for name in OWN
    }
    assert {
        "process_resident_memory_bytes",
        "python_gc_collections",
        "python_info",
    } <= families.keys()
    requests = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["invariant_bandits_requests"].samples
    }
    assert requests["decisions.decide", "200"] == 3.0
    assert requests["decisions.decide", "400"] == 1.0
    assert requests["none", "404"] == 1.0
    durations = families["invariant_bandits_request_duration_seconds"].samples
    counted = [
        duration
        for duration in durations
        if duration.name.endswith("_count")
        and duration.labels["route"] == "decisions.decide"
    ]
    assert [item.value for item in counted] == [4.0]


def test_latencies_of_routes_are_shown_with_their_count(loops: TestClient) -> None:
    for _ in range(5):
        loops.get("/v1/models")
    summary = loops.get("/v1/overview").json()["service"]["latencies"][
        "models.list_models"
    ]
    assert summary["count"] == 5
    assert 0.0 < summary["p50"] <= summary["p95"] <= summary["p99"]
