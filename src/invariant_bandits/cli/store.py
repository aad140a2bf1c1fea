"""The commands that look after the store of a service: verify, repair, replay, export, compact."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
    from invariant_bandits.service.store.postgres import is_address
    from invariant_bandits.service.store.sqlite import check_journal, is_in_use
    from invariant_bandits.service.store.verify import verify

    if not is_address(store) and Path(store).is_file() and not is_in_use(Path(store)):
        check_journal(Path(store).resolve())
    began = time.perf_counter()
    with _reading(store, "checking", as_json) as (opened, progress):
        events = verify(opened.path, every_row=True, progress=progress)
        first, digest = opened.start().seq, opened.head().digest.hex()
        aside, known = restore(opened).aside, set_aside_events(opened)
    for seq in sorted(aside.keys() - known.keys()):
        raise UnappliableError(seq, aside[seq])
    answer = {"events": events, "first": first, "digest": digest, "set_aside": aside}
    answer["seconds"] = time.perf_counter() - began
    lines = [f"{store}: events {first:,} to {events - 1:,} are whole, digest {digest}", *_lines(aside)]
    _say(answer, as_json, lines)


def repair(store: str, as_json: bool = False) -> None:
    """Set aside events that cannot be applied; they stay in the store. Not while it is in use."""
    from invariant_bandits.service.replay import repair

    with _writing(store) as opened:
        aside = repair(opened)
    _say({"set_aside": aside}, as_json, [f"{store}: {len(aside):,} events set aside", *_lines(aside)])


def _lines(aside: dict[int, str]) -> list[str]:
    return [f"event {seq} is set aside: {why}" for seq, why in sorted(aside.items())]


def replay(store: str, as_json: bool = False) -> None:
    """Make every decision again from the events alone; it fails unless all are the same, bit for bit."""
    from invariant_bandits.service.replay import replay_all

    with _reading(store, "replaying", as_json) as (opened, progress):
        base, end = opened.base(), opened.head().seq
        hashes = replay_all(opened, lambda done: progress(done, end), end).hashes()
    since = 0 if base is None else base[0]
    lines = [f"{store}: {end - since:,} events replayed, every decision the same"]
    lines += [f"{name}: state {digest}" for name, digest in hashes.items()]
    _say({"events": end, "since": since, "state_hashes": hashes}, as_json, lines)


def compact(
    store: str, keep_days: float | None = None, before: str | None = None, as_json: bool = False
) -> None:
    """Remove old events for good; the checksums of the others still hold. Not while it is in use."""
    from invariant_bandits.service.replay import compact

    if (keep_days is None) == (before is None):
        raise InputError("say either --keep-days or --before")
    bound = _time_of("--before", before) if keep_days is None else time.time() - keep_days * 86_400.0
    with _writing(store) as opened:
        done = compact(opened, float(bound or 0.0))
    _say(done._asdict(), as_json, [f"{store}: {done.removed:,} events removed, {done.kept:,} kept"])


def export(
    store: str,
    out: Path,
    model: str | None = None,
    since: str | None = None,
    until: str | None = None,
    force: bool = False,
) -> None:
    """Write settled decisions, rewards and propensities as a log that fit, update and evaluate read."""
    from invariant_bandits.service.history.export import export

    start, end = _time_of("--since", since), _time_of("--until", until)
    with _reading(store, "", quiet=True) as (opened, _):
        done = export(opened, out, model=model, since=start, until=end, force=force)
    rare = f", without {done.left_out:,} features that are too rare" if done.left_out else ""
    console.print(f"{out}: {done.decisions:,} decisions, {done.rows:,} rows{rare}")


@contextmanager
def _reading(store: str, words: str, quiet: bool) -> Iterator[tuple[Any, Callable[[int, int], None]]]:
    """A store opened for reading, and a bar of its events to move, unless the answer is for a program."""
    from invariant_bandits.service.store.open_store import open_store

    with ExitStack() as stack:
        opened = open_store(store, writing=False)
        stack.callback(opened.close)
        show = None if quiet else stack.enter_context(Bar(words))
        yield opened, lambda done, total: None if show is None else show("events", done, total)


@contextmanager
def _writing(store: str) -> Iterator[Any]:
    """A store that exists, every event of it checked, opened for writing."""
    from invariant_bandits.service.store.open_store import open_store
    from invariant_bandits.service.store.postgres import is_address
    from invariant_bandits.service.store.verify import verify

    if not is_address(store) and not Path(store).is_file():
        raise InputError(f"STORE: {store} does not exist")
    opened = open_store(store, check=verify)
    try:
        yield opened
    finally:
        opened.close()


def _say(answer: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    if as_json:
        print(json.dumps(answer))
    else:
        console.print("\n".join(lines))


def _time_of(option: str, text: str | None) -> float | None:
    """Seconds since 1970 of a time that says its zone, or is meant as UTC."""
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{option} must be a date or time such as 2026-11-01T12:00, got {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


store = typer.Typer(no_args_is_help=True, help="Look after the events of a service.")
register(store, verify, repair, replay, export, compact)
