"""The commands around the decision service: serve, demo, and those that look after its store."""

from __future__ import annotations

import json
import math
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import typer

from invariant_bandits.checks import InputError, one_of
from invariant_bandits.cli.common import counting, print_json, register
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.storage import read_toml


def serve(
    models: list[str] | None = None,
    store: str = "decisions.db",
    host: str = "127.0.0.1",
    port: int = 8080,
    token_file: Path | None = None,
    rate: float = 0.0,
    role: str = "alone",
    logs: list[str] | None = None,
    learn_at: str = "03:30",
    learn_every: float | None = None,
    activate: str = "better",
    keep_days: float | None = None,
    keep_events: int | None = None,
    allow_host: list[str] | None = None,
    root_path: str = "",
    log_level: str = "info",
    log_format: str = "text",
    access_log: bool = False,
    holdout: float | None = None,
    holdout_to: str = "uniform",
    holdout_key: str | None = None,
    config: Path | None = None,
    print_config: bool = False,
) -> None:
    """Serve decisions over HTTP: durable before they are answered, and the same in every replay."""
    if print_config:
        _print_settings(locals())
        return
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGHUP}
    )  # until it can be answered with other tokens
    files = {
        name: Path(path)
        for name, path in _by_model(models or [], "MODEL", "files").items()
    }
    for path in files.values():
        if not path.is_file():
            raise InputError(f"MODEL: {path} does not exist")
    log_files, at = _by_model(logs or [], "--logs", "logs"), _time_of_day(learn_at)
    activation: Any = one_of("--activate", activate, ("better", "always", "never"))
    level = one_of("--log-level", log_level, ("debug", "info", "warning", "error"))
    as_json, prefix = (
        one_of("--log-format", log_format, ("text", "json")) == "json",
        _prefix(root_path),
    )
    fleet_role: Any = role
    held_out = {"holdout_to": holdout_to, "holdout_key": holdout_key}
    every = None if learn_every is None else 3_600.0 * learn_every
    from invariant_bandits_service.background import RefitSchedule
    from invariant_bandits_service.engine import Retention
    from invariant_bandits_service.listener import log_to_stderr
    from invariant_bandits_service.serve import ServiceSettings, serve

    log_to_stderr(level, as_json=as_json, access=access_log)
    settings = ServiceSettings(
        store=store,
        models=files,
        host=host,
        port=port,
        token_file=token_file,
        rate=rate,
        role=fleet_role,
        logs=log_files,
        plan=RefitSchedule(every, at, activation),
        retention=None
        if keep_days is None and keep_events is None
        else Retention(keep_days, keep_events),
        allow_hosts=[name.lower() for name in allow_host or []],
        root_path=prefix,
        holdout={} if holdout is None else {"holdout": holdout, **held_out},
    )
    raise typer.Exit(serve(settings, lambda line: console.print(line)))


def _print_settings(values: dict[str, Any]) -> None:
    """Print options as a TOML file that --config takes; an address that may have a password is a remark."""
    for name in sorted(values.keys() - {"config", "print_config"}):
        value = values[name]
        if name == "store" and _shown(value) != value:
            print(
                f"# store = {json.dumps(_shown(value))}  # without user, password and options"
            )
        elif value is not None:
            print(f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}")


def _shown(store: str) -> str:
    """Return the name of a store as it may be printed: an address without its password."""
    from invariant_bandits_service.store.postgres import is_address, without_password

    return without_password(store) if is_address(store) else store


def _prefix(path: str) -> str:
    """Return the prefix of paths without a slash at its end."""
    path = path.rstrip("/")
    if path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
        raise InputError(f"--root-path must be a path such as /bandits, got {path!r}")
    return path


def _by_model(entries: list[str], option: str, files: str) -> dict[str, str]:
    """Files by the name of their model: MODEL=FILE, or one FILE for "default"."""
    by_name: dict[str, str] = {}
    for entry in entries:
        name, sign, path = entry.partition("=")
        if not sign or Path(entry).exists():
            name, path = "default", entry
        if name in by_name:
            raise InputError(
                f"{option}: two {files} for the model {name!r}; write MODEL=FILE"
            )
        by_name[name] = path
    return by_name


def _time_of_day(words: str) -> tuple[int, int] | None:
    """Hour and minute, or None for never."""
    if words == "never":
        return None
    hour, _, minute = words.partition(":")
    if not (
        hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60
    ):
        raise InputError(
            f"--learn-at must be a time such as 03:30, or never, got {words!r}"
        )
    return int(hour), int(minute)


def demo(
    port: int = 0,
    store: Path | None = None,
    rate: float = 25.0,
    break_after: int = 600,
    seed: int = 0,
) -> None:
    """Serve a simulated shop, page included: its tastes drift, and half-way what lasted breaks and the alarm
    rings.
    """
    from invariant_bandits_service.cli.demonstration import (
        DemonstrationPlan,
        demonstrate,
    )

    plan = DemonstrationPlan(rate=rate, break_after=break_after, seed=seed)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        where = Path(folder) / "decisions.db" if store is None else store
        code = demonstrate(where, plan, port=port, say=lambda line: console.print(line))
    raise typer.Exit(code)


# -- the store --


def verify(store: str, as_json: bool = False) -> None:
    """Follow the checksums of every event, and check that all can be applied; the store may be in use."""
    from invariant_bandits_service.replay import erased_without_record, restore
    from invariant_bandits_service.state import UnappliableError, set_aside_events
    from invariant_bandits_service.store.open_store import verify
    from invariant_bandits_service.store.postgres import is_address
    from invariant_bandits_service.store.sqlite import check_journal, is_in_use

    if not is_address(store) and Path(store).is_file() and not is_in_use(Path(store)):
        check_journal(Path(store).resolve())
    with _reading(store, "checking", as_json) as (opened, progress):
        events = verify(opened.path, thorough=True, progress=progress)
        first, digest = opened.start().seq, opened.head().digest.hex()
        aside, known = restore(opened).aside, set_aside_events(opened)
        for seq in erased_without_record(opened):
            raise InputError(
                f"{_shown(store)}: event {seq} was erased, and no event says so"
            )
    for seq in sorted(aside.keys() - known.keys()):
        raise UnappliableError(seq, aside[seq])
    answer = {"events": events, "first": first, "digest": digest, "set_aside": aside}
    whole = f"{_shown(store)}: events {first:,} to {events - 1:,} are whole, digest {digest}"
    _say(answer, as_json, [whole, *_lines(aside)])


def repair(store: str, as_json: bool = False) -> None:
    """Set aside events that cannot be applied; they stay in the store. Not while it is in use."""
    from invariant_bandits_service.replay import repair

    with _writing(store) as opened:
        aside = repair(opened)
    lines = [f"{_shown(store)}: {len(aside):,} events set aside", *_lines(aside)]
    _say({"set_aside": aside}, as_json, lines)


def _lines(aside: dict[int, str]) -> list[str]:
    return [f"event {seq} is set aside: {why}" for seq, why in sorted(aside.items())]


def replay(store: str, as_json: bool = False) -> None:
    """Make every decision again from the events alone; it fails unless all are the same, bit for bit."""
    from invariant_bandits_service.replay import replay_all

    with _reading(store, "replaying", as_json) as (opened, progress):
        base, end = opened.base(), opened.head().seq
        hashes = replay_all(opened, lambda done: progress(done, end), end).hashes()
    since = 0 if base is None else base[0]
    lines = [
        f"{_shown(store)}: {end - since:,} events replayed, every decision the same"
    ]
    lines += [f"{name}: state {digest}" for name, digest in hashes.items()]
    _say({"events": end, "since": since, "state_hashes": hashes}, as_json, lines)


def backup(store: str, out: Path, force: bool = False) -> None:
    """Copy a store, also one in use, as it is at one moment; the copy is verified."""
    from invariant_bandits_service.store.open_store import copy_store

    head = copy_store(store, out, force=force)
    console.print(f"{out}: {head.seq:,} events, digest {head.digest.hex()}")


def restore(copy: str, out: Path, force: bool = False) -> None:
    """Make a store of a copy; events that came after the copy are not in it."""
    backup(copy, out, force)


def compact(
    store: str,
    keep_days: float | None = None,
    before: str | None = None,
    as_json: bool = False,
) -> None:
    """Remove old events for good; the checksums of the others still hold. Not while it is in use."""
    from invariant_bandits_service.replay import compact

    if (keep_days is None) == (before is None):
        raise InputError("give either --keep-days or --before")
    bound = (
        _time_of("--before", before)
        if keep_days is None
        else time.time() - keep_days * 86_400.0
    )
    with _writing(store) as opened:
        removed, kept = compact(opened, bound)
    lines = [f"{_shown(store)}: {removed:,} events removed, {kept:,} kept"]
    _say({"removed": removed, "kept": kept}, as_json, lines)


def export(
    store: str,
    out: Path,
    model: str | None = None,
    since: str | None = None,
    until: str | None = None,
    force: bool = False,
) -> None:
    """Write settled decisions, rewards and propensities as a log that fit, update and evaluate read."""
    from invariant_bandits_service.history import export

    start, end = (
        _time_of("--since", since, -math.inf),
        _time_of("--until", until, math.inf),
    )
    with _reading(store, "", quiet=True) as (opened, _):
        done = export(opened, out, model=model, since=start, until=end, force=force)
    rare = (
        f", without {done.left_out:,} features that are too rare"
        if done.left_out
        else ""
    )
    console.print(f"{out}: {done.decisions:,} decisions, {done.rows:,} rows{rare}")


@contextmanager
def _reading(
    store: str, words: str, quiet: bool
) -> Iterator[tuple[Any, Callable[[int, int], None]]]:
    """A store opened for reading, and a bar of its events to move, unless the answer is for a program."""
    from invariant_bandits_service.store.open_store import open_store

    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_store(store, writing=False)))
        show = None if quiet else stack.enter_context(counting(words))
        yield (
            opened,
            lambda done, total: None if show is None else show("events", done, total),
        )


@contextmanager
def _writing(store: str) -> Iterator[Any]:
    """A store that exists, every event of it checked, opened for writing."""
    from invariant_bandits_service.store.open_store import open_store, verify
    from invariant_bandits_service.store.postgres import is_address

    if not is_address(store) and not Path(store).is_file():
        raise InputError(f"STORE: {store} does not exist")
    with closing(open_store(store, check=verify)) as opened:
        yield opened


def _say(answer: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    if as_json:
        print_json(answer)
    else:
        console.print("\n".join(lines))


def _time_of(option: str, text: str | None, otherwise: float = 0.0) -> float:
    """Seconds since 1970 of a time that says its zone, or is meant as UTC."""
    from invariant_bandits_service.responses import seconds_of

    return otherwise if text is None else seconds_of(text, option)


OPTIONS = read_toml(Path(__file__).with_name("options.toml"))
"""As those of the library: section, one per command -> option -> its help, or its settings for typer."""
store_commands = typer.Typer(
    no_args_is_help=True, help="Look after the events of a service."
)
register(
    store_commands,
    verify,
    repair,
    replay,
    export,
    compact,
    backup,
    restore,
    options=OPTIONS,
)
commands = typer.Typer(rich_markup_mode=None)
register(commands, serve, demo, options=OPTIONS)
commands.add_typer(store_commands, name="store")
