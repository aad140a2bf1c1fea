"""The short forms of the scripts under chaos/: a service that is killed, cut off from power, full, and
crowded.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.system


def test_nothing_acknowledged_is_lost_when_it_is_killed_under_load() -> None:
    from kill9 import run

    told = run(1, clients=2)
    assert told["decisions"] > 20, told
    assert told["retries"] > 0, told
    assert (told["lost"], told["doubled"], told["state_is_replay"]) == (0, 0, True), (
        told
    )


@pytest.mark.skipif(
    shutil.which("gcc") is None, reason="gcc is needed to record what is written"
)
def test_nothing_acknowledged_is_lost_when_the_power_goes(tmp_path: Path) -> None:
    """And something is, if the syncs of the log are taken away: the test would notice."""
    import power_loss

    acknowledged = power_loss.record_load(tmp_path, 1.0, clients=2)
    assert len(acknowledged) > 20
    operations = list(power_loss.records(tmp_path / "rec"))
    kept = power_loss.cut_power(tmp_path / "image", acknowledged, operations, 5)
    assert (kept["lost"], kept["refused"]) == (0, []), kept
    syncs = [
        place
        for place, (_, operation, file, *_) in enumerate(operations)
        if operation == power_loss.SYNC and "-wal" in file
    ]
    removed = set(syncs[1:])
    without_syncs = [
        item for place, item in enumerate(operations) if place not in removed
    ]
    assert (
        power_loss.cut_power(tmp_path / "image", acknowledged, without_syncs, 5)["lost"]
        > 0
    )


def test_a_full_disk_is_503_and_passes() -> None:
    from disk_full import run

    told = run(1, clients=1, seconds=0.3)
    assert [time["status_when_full"] for time in told["times"]] == [503], told
    assert (told["lost"], told["doubled"], told["state_is_replay"]) == (0, 0, True), (
        told
    )


def test_the_state_after_64_clients_is_that_of_the_log_and_a_second_process_is_refused() -> (
    None
):
    from concurrency import run

    told = run(64, 1.0)
    assert "in use" in told["second_process"], told
    assert told["state_is_live_state"], told
    assert (told["lost"], told["doubled"], told["state_is_replay"], told["exit"]) == (
        0,
        0,
        True,
        0,
    ), told


def test_a_store_with_retention_stays_bounded_over_a_day_and_is_replayed() -> None:
    from retention import is_bounded, run

    told = run(hours=24.0, per_hour=160, keep_hours=4.0)
    assert told["state_is_replay"], told
    assert told["mistakes"] == [], told
    assert is_bounded(told, 4.0), told
