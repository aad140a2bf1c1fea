"""The commands that look after the store of a service: verify, repair, replay, export, compact."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import Bar, register
from invariant_bandits.cli.common import plain_console as console


def verify(store: str, as_json: bool = False) -> None:
    """Follow the checksums of every event, and check that all can be applied; the store may be in use."""
    from invariant_bandits.service.replay import restore
    from invariant_bandits.service.state import UnappliableError, set_aside_events
    from invariant_bandits.service.store.open_store import open_store
    from invariant_bandits.service.store.postgres import is_address
    from invariant_bandits.service.store.sqlite import check_journal, is_in_use
    from invariant_bandits.service.store.verify import verify

    if not is_address(store) and Path(store).is_file() and not is_in_use(Path(store)):
        check_journal(Path(store).resolve())
    opened = open_store(store, writing=False)
    try:
        where: Path | str = opened.path
        began = time.perf_counter()
        with _bar("checking", as_json) as progress:
            events = verify(where, every_row=True, progress=lambda done, all: progress("events", done, all))
        first, head = opened.start().seq, opened.head()
        aside, known = restore(opened).aside, set_aside_events(opened)
    finally:
        opened.close()
    for seq in sorted(aside.keys() - known.keys()):
        raise UnappliableError(seq, aside[seq])
    answer = {"events": events, "first": first, "digest": head.digest.hex(), "set_aside": aside}
    answer["seconds"] = time.perf_counter() - began
    words = f"{store}: events {first:,} to {events - 1:,} are whole, digest {head.digest.hex()}"
    _say(answer, as_json, "\n".join([words, *_lines(aside)]))


def repair(store: str, as_json: bool = False) -> None:
    """Set aside events that cannot be applied; they stay in the store and in its checksums. Not while it is
    in use.
    """
    from invariant_bandits.service.replay import repair
    from invariant_bandits.service.store.verify import verify

    opened = _opened(store, check=verify)
    try:
        aside = repair(opened)
    finally:
        opened.close()
    _say(
        {"set_aside": aside},
        as_json,
        "\n".join([f"{store}: {len(aside):,} events set aside", *_lines(aside)]),
    )


def _lines(aside: dict[int, str]) -> list[str]:
    return [f"event {seq} is set aside: {why}" for seq, why in sorted(aside.items())]


def replay(store: str, as_json: bool = False) -> None:
    """Make every decision again from the events alone; it fails unless all are the same, bit for bit."""
    from invariant_bandits.service.replay import replay_all
    from invariant_bandits.service.store.open_store import open_store

    opened = open_store(store, writing=False)
    try:
        base, end = opened.base(), opened.head().seq
        with _bar("replaying", as_json) as progress:
            state = replay_all(opened, lambda done: progress("events", done, end), end)
    finally:
        opened.close()
    answer: dict[str, Any] = {
        "events": end,
        "since": 0 if base is None else base[0],
        "state_hashes": state.hashes(),
    }
    words = "\n".join(f"{name}: state {hash}" for name, hash in state.hashes().items())
    _say(
        answer,
        as_json,
        f"{store}: {end - answer['since']:,} events replayed, every decision the same\n{words}",
    )


def compact(
    store: str, keep_days: float | None = None, before: str | None = None, as_json: bool = False
) -> None:
    """Remove old events for good; the checksums of the others still hold. Not while it is in use."""
    from invariant_bandits.service.replay import compact
    from invariant_bandits.service.store.verify import verify

    if (keep_days is None) == (before is None):
        raise InputError("say either --keep-days or --before")
    bound = _time_of("--before", before) if keep_days is None else time.time() - keep_days * 86_400.0
    opened = _opened(store, check=verify)
    try:
        done = compact(opened, float(bound or 0.0))
    finally:
        opened.close()
    _say(done._asdict(), as_json, f"{store}: {done.removed:,} events removed, {done.kept:,} kept")


def _opened(store: str, check: Callable[[Path | str], object]) -> Any:
    """A store that exists, opened for writing."""
    from invariant_bandits.service.store.open_store import open_store
    from invariant_bandits.service.store.postgres import is_address

    if not is_address(store) and not Path(store).is_file():
        raise InputError(f"STORE: {store} does not exist")
    return open_store(store, check=check)


@contextmanager
def _bar(words: str, as_json: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar, unless the answer is for a program."""
    if as_json:
        yield lambda words, done, total: None
    else:
        with Bar(words) as progress:
            yield progress


def _say(answer: dict[str, Any], as_json: bool, words: str) -> None:
    if as_json:
        print(json.dumps(answer))
    else:
        console.print(words)


def export(
    store: str,
    out: Path,
    model: str | None = None,
    since: str | None = None,
    until: str | None = None,
    force: bool = False,
) -> None:
    """Write settled decisions with their rewards and propensities as a log that fit, update and evaluate
    read.
    """
    from invariant_bandits.service.history.export import export as exported
    from invariant_bandits.service.store.open_store import open_store

    opened = open_store(store, writing=False)
    try:
        done = exported(
            opened,
            out,
            model=model,
            since=_time_of("--since", since),
            until=_time_of("--until", until),
            force=force,
        )
    finally:
        opened.close()
    rare = f", without {done.left_out:,} features that are too rare" if done.left_out else ""
    console.print(f"{out}: {done.decisions:,} decisions, {done.rows:,} rows{rare}")


def _time_of(option: str, words: str | None) -> float | None:
    """Seconds since 1970 of a time that says its zone, or is meant as UTC."""
    from datetime import UTC, datetime

    if words is None:
        return None
    try:
        time = datetime.fromisoformat(words)
    except ValueError:
        raise InputError(f"{option} must be a date or time such as 2026-11-01T12:00, got {words!r}") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


store = typer.Typer(no_args_is_help=True, help="Look after the events of a service.")
register(store, verify, repair, replay, export, compact)
