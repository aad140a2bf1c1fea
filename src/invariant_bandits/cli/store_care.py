"""Commands that check a store, replay it, repair it and make it smaller."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import Bar
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.cli.store_export import time_of

Where = Annotated[str, typer.Argument(metavar="STORE", help="Where the events are: a file, or postgresql://…")]
AsJson = Annotated[bool, typer.Option("--json", help="Say it as one line of JSON.")]


def verify(store: Where, as_json: AsJson = False) -> None:
    """Follow the checksums of every event, and check that all can be applied; the store may be in use."""
    from invariant_bandits.service.replay import UnappliableError, restored
    from invariant_bandits.service.state import set_aside_in
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
        aside, known = restored(opened).aside, set_aside_in(opened)
    finally:
        opened.close()
    for seq in sorted(aside.keys() - known.keys()):
        raise UnappliableError(seq, aside[seq])
    told = {"events": events, "first": first, "digest": head.digest.hex(), "set_aside": aside}
    told["seconds"] = time.perf_counter() - began
    words = f"{store}: events {first:,} to {events - 1:,} are whole, digest {head.digest.hex()}"
    _say(told, as_json, "\n".join([words, *_lines(aside)]))


def repair(store: Where, as_json: AsJson = False) -> None:
    """Set aside events that cannot be applied; they stay in the store and in its checksums. Not while it is in use."""
    from invariant_bandits.service.replay import repair
    from invariant_bandits.service.store.verify import verify

    opened = _opened(store, check=verify)
    try:
        aside = repair(opened)
    finally:
        opened.close()
    _say({"set_aside": aside}, as_json, "\n".join([f"{store}: {len(aside):,} events set aside", *_lines(aside)]))


def _lines(aside: dict[int, str]) -> list[str]:
    return [f"event {seq} is set aside: {why}" for seq, why in sorted(aside.items())]


def replay(store: Where, as_json: AsJson = False) -> None:
    """Make every decision again from the events alone; it fails unless all are the same, bit for bit."""
    from invariant_bandits.service.replay import replayed
    from invariant_bandits.service.store.open_store import open_store

    opened = open_store(store, writing=False)
    try:
        base, end = opened.base(), opened.head().seq
        with _bar("replaying", as_json) as progress:
            state = replayed(opened, lambda done: progress("events", done, end), end)
    finally:
        opened.close()
    told: dict[str, Any] = {"events": end, "since": 0 if base is None else base[0], "state_hashes": state.hashes()}
    words = "\n".join(f"{name}: state {hash}" for name, hash in state.hashes().items())
    _say(told, as_json, f"{store}: {end - told['since']:,} events replayed, every decision the same\n{words}")


def compact(
    store: Where,
    keep_days: Annotated[float | None, typer.Option(min=0.0, help="Remove events that are older.")] = None,
    before: Annotated[str | None, typer.Option(help="Remove events before this time: 2026-11-01T12:00, UTC.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove old events for good; the checksums of the others still hold. Not while it is in use."""
    from invariant_bandits.service.replay import compact
    from invariant_bandits.service.store.verify import verify

    if (keep_days is None) == (before is None):
        raise InputError("say either --keep-days or --before")
    bound = time_of("--before", before) if keep_days is None else time.time() - keep_days * 86_400.0
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


def _say(told: dict[str, Any], as_json: bool, words: str) -> None:
    if as_json:
        print(json.dumps(told))
    else:
        console.print(words)
