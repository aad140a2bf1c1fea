"""The commands around the decision service: serve, demo, and those that look after its store."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from invariant_bandits.checks import InputError, one_of
from invariant_bandits.cli.common import (
    AsJson,
    Seed,
    counting,
    print_json,
    register,
    take_defaults,
)
from invariant_bandits.cli.common import plain_console as console

StorePath = Annotated[
    str,
    Argument(metavar="STORE", help="Where the events are: a file, or postgresql://…"),
]


ENVIRONMENT = "INVARIANT_BANDITS_"
OF_KUBERNETES = re.compile(rf"{ENVIRONMENT}(SERVICE_(HOST|PORT)|PORT_\d)")
"""Variables that Kubernetes sets in every container if a service of the cluster has our name."""


def _take_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Take options from a TOML file, after refusing variables of the environment that name no option."""
    known = {parameter.envvar for parameter in context.command.params}
    for name in os.environ:
        if name.startswith(ENVIRONMENT) and not (
            name in known or OF_KUBERNETES.match(name)
        ):
            raise InputError(
                f"{name}: no option has this variable; serve --help lists them"
            )
    return take_defaults(context, path)


def serve(
    models: Annotated[
        list[str] | None,
        Argument(
            envvar="INVARIANT_BANDITS_MODELS",
            metavar="[MODEL]",
            help="Model file, or MODEL=FILE for several; without any, an empty model.",
        ),
    ] = None,
    store: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_STORE",
            metavar="FILE",
            help="Store of all events: a file, created if needed, or postgresql://…",
        ),
    ] = "decisions.db",
    host: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_HOST",
            help="Address to listen at; one that other machines can reach needs tokens.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        Option(
            envvar="INVARIANT_BANDITS_PORT", min=1, max=65535, help="Port to listen at."
        ),
    ] = 8080,
    token_file: Annotated[
        Path | None,
        Option(
            envvar="INVARIANT_BANDITS_TOKEN_FILE",
            help=(
                "File with one 'read TOKEN', 'decide TOKEN' or 'admin TOKEN' per line; SIGHUP"
                " reads it again."
            ),
        ),
    ] = None,
    rate: Annotated[
        float,
        Option(
            envvar="INVARIANT_BANDITS_RATE",
            min=0.0,
            help="Limit per token of decisions, rewards and other requests per second; 0: no limit.",
        ),
    ] = 0.0,
    role: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_ROLE",
            metavar="ROLE",
            help="In a fleet on one PostgreSQL store: 'learner' or 'decider'.",
        ),
    ] = "alone",
    logs: Annotated[
        list[str] | None,
        Option(
            envvar="INVARIANT_BANDITS_LOGS",
            metavar="MODEL=FILE",
            help="Log to fit a model to, unless the store has the model.",
        ),
    ] = None,
    learn_at: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_LEARN_AT",
            metavar="HH:MM",
            help="Time of day at which models learn from the service's own decisions, or never.",
        ),
    ] = "03:30",
    learn_every: Annotated[
        float | None,
        Option(
            envvar="INVARIANT_BANDITS_LEARN_EVERY",
            min=0.01,
            metavar="HOURS",
            help="Also learn every HOURS hours.",
        ),
    ] = None,
    activate: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_ACTIVATE",
            help=(
                "When a newly learned version takes over: better (the 95 % interval of its gain"
                " lies above 0), always or never."
            ),
        ),
    ] = "better",
    keep_days: Annotated[
        float | None,
        Option(
            envvar="INVARIANT_BANDITS_KEEP_DAYS",
            min=0.01,
            metavar="DAYS",
            help="Remove events older than this while the service runs.",
        ),
    ] = None,
    keep_events: Annotated[
        int | None,
        Option(
            envvar="INVARIANT_BANDITS_KEEP_EVENTS",
            min=1,
            metavar="EVENTS",
            help="Keep only the latest EVENTS events; remove others while the service runs.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        Option(
            envvar="INVARIANT_BANDITS_ALLOW_HOST",
            metavar="NAME",
            help=(
                "Host name that requests may use; repeatable; '*.example.com' is a pattern, '*'"
                " is any. localhost, 127.0.0.1 and --host are always allowed."
            ),
        ),
    ] = None,
    root_path: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_ROOT_PATH",
            metavar="/PREFIX",
            help="Path prefix that a proxy strips.",
        ),
    ] = "",
    log_level: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_LOG_LEVEL",
            help="Least severe level that is logged: debug, info, warning or error.",
        ),
    ] = "info",
    log_format: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_LOG_FORMAT",
            help="Format of the log: text, or json with one object per line.",
        ),
    ] = "text",
    access_log: Annotated[
        bool,
        Option(
            "--access-log",
            envvar="INVARIANT_BANDITS_ACCESS_LOG",
            help="Log every request; health checks only at level debug.",
        ),
    ] = False,
    trust_proxy: Annotated[
        list[str] | None,
        Option(
            envvar="INVARIANT_BANDITS_TRUST_PROXY",
            metavar="ADDRESS",
            help=(
                "Proxy or network whose X-Forwarded-For says who asks; '*': any."
                " Default: 127.0.0.1."
            ),
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        Option(
            envvar="INVARIANT_BANDITS_HOLDOUT",
            min=0.0,
            max=1.0,
            metavar="SHARE",
            help=(
                "Share of the units whose decisions go to a fixed reference; the difference is"
                " the uplift. 0: none."
            ),
        ),
    ] = None,
    holdout_to: Annotated[
        str,
        Option(
            envvar="INVARIANT_BANDITS_HOLDOUT_TO",
            metavar="REFERENCE",
            help="The reference: uniform, the label of an arm, or a version.",
        ),
    ] = "uniform",
    holdout_key: Annotated[
        str | None,
        Option(
            envvar="INVARIANT_BANDITS_HOLDOUT_KEY",
            metavar="COLUMN",
            help=(
                "Context column that names the unit. Default: the request's field 'unit', or"
                " the decision's id."
            ),
        ),
    ] = None,
    config: Annotated[
        Path | None,
        Option(
            envvar="INVARIANT_BANDITS_CONFIG",
            is_eager=True,
            callback=_take_settings,
            metavar="FILE.toml",
            help="File of options by name; the command line and environment variables override it.",
        ),
    ] = None,
    print_config: Annotated[
        bool,
        Option(
            "--print-config",
            envvar="INVARIANT_BANDITS_PRINT_CONFIG",
            help="Print all options as such a file, and exit.",
        ),
    ] = False,
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
        proxies=trust_proxy or ["127.0.0.1"],
        holdout={} if holdout is None else {"holdout": holdout, **held_out},
    )
    # a line that is not JSON would stop many a collector of logs
    log = logging.getLogger("invariant_bandits_service")
    raise typer.Exit(serve(settings, log.info if as_json else console.print))


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
    port: Annotated[
        int, Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")
    ] = 0,
    store: Annotated[
        Path | None,
        Option(metavar="FILE", help="Store of the events; default: a temporary one."),
    ] = None,
    rate: Annotated[
        float, Option(min=0.1, max=1000.0, help="Visits per second.")
    ] = 25.0,
    break_after: Annotated[
        int, Option(min=0, help="Visits after which the invariance breaks.")
    ] = 600,
    seed: Seed = 0,
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


def verify(store: StorePath, as_json: AsJson = False) -> None:
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


def repair(store: StorePath, as_json: AsJson = False) -> None:
    """Set aside events that cannot be applied; they stay in the store. Not while it is in use."""
    from invariant_bandits_service.replay import repair

    with _writing(store) as opened:
        aside = repair(opened)
    lines = [f"{_shown(store)}: {len(aside):,} events set aside", *_lines(aside)]
    _say({"set_aside": aside}, as_json, lines)


def _lines(aside: dict[int, str]) -> list[str]:
    return [f"event {seq} is set aside: {why}" for seq, why in sorted(aside.items())]


def replay(store: StorePath, as_json: AsJson = False) -> None:
    """Make every decision again from the events alone; it fails unless all are the same, bit for bit.

    It names events that cannot be read or applied, such as a model of another version, and then fails, unless
    they were set aside for good.
    """
    from invariant_bandits_service.replay import replay_all
    from invariant_bandits_service.state import set_aside_events

    with _reading(store, "replaying", as_json) as (opened, progress):
        base, end = opened.base(), opened.head().seq
        state = replay_all(opened, lambda done: progress(done, end), end)
        known = set_aside_events(opened)
    since = 0 if base is None else base[0]
    hashes = state.hashes()
    aside = state.aside
    others = " of the others" if aside else ""
    lines = [
        f"{len(aside):,} events were left out, and whatever they held is not in the state:"
    ]
    lines += [f"  event {seq}: {why}" for seq, why in sorted(aside.items())]
    if not aside:
        lines = []
    lines.append(
        f"{_shown(store)}: {end - since:,} events replayed, every decision{others} the same"
    )
    lines += [f"{name}: state {digest}" for name, digest in hashes.items()]
    answer = {
        "events": end,
        "since": since,
        "state_hashes": hashes,
        "set_aside": {str(seq): why for seq, why in aside.items()},
    }
    _say(answer, as_json, lines)
    if aside.keys() - known.keys():
        raise typer.Exit(1)


def backup(
    store: Annotated[
        str, Argument(metavar="STORE", help="Where the events are; it may be in use.")
    ],
    out: Annotated[Path, Argument(metavar="OUT", help="File for the copy.")],
    force: Annotated[
        bool, Option("--force", help="Replace OUT if it is there and not in use.")
    ] = False,
) -> None:
    """Copy a store, also one in use, as it is at one moment; the copy is verified."""
    from invariant_bandits_service.store.open_store import copy_store

    head = copy_store(store, out, force=force)
    console.print(f"{out}: {head.seq:,} events, digest {head.digest.hex()}")


def restore(
    copy: Annotated[
        str, Argument(metavar="COPY", help="What `store backup` has written.")
    ],
    out: Annotated[Path, Argument(metavar="STORE", help="The store to be made.")],
    force: Annotated[
        bool, Option("--force", help="Replace STORE if it is there and not in use.")
    ] = False,
) -> None:
    """Make a store of a copy; events that came after the copy are not in it."""
    backup(copy, out, force)


def compact(
    store: StorePath,
    keep_days: Annotated[
        float | None, Option(min=0.0, help="Remove events that are older.")
    ] = None,
    before: Annotated[
        str | None,
        Option(help="Remove events before this time: 2026-11-01T12:00, UTC."),
    ] = None,
    as_json: AsJson = False,
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
    store: Annotated[
        str, Argument(metavar="STORE", help="Where the events are; it may be in use.")
    ],
    out: Annotated[
        Path,
        Argument(metavar="OUT", help="FILE.parquet; only its owner can read it."),
    ],
    model: Annotated[
        str | None, Option(help="Which model, if there are several.")
    ] = None,
    since: Annotated[
        str | None,
        Option(help="Only decisions from this time on: 2026-11-01T12:00, UTC."),
    ] = None,
    until: Annotated[
        str | None, Option(help="Only decisions before this time.")
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Replace OUT if it is there.")
    ] = False,
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


def erase(
    store: StorePath,
    person: Annotated[
        str,
        Argument(
            metavar="TEXT", help="The id of a decision, or a value in its context."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Erase all decisions about a person. Not while the store is in use: then POST /v1/erasures does it."""
    from invariant_bandits_service.commands import EventBatch, erase
    from invariant_bandits_service.replay import last_time
    from invariant_bandits_service.replay import restore as restore_state

    if len(person) < 3:
        raise InputError("TEXT must have at least 3 characters")
    with _writing(store) as opened:
        state = restore_state(opened)
        batch = EventBatch(last_time(opened))
        first = opened.start().seq
        erased = erase([], text=person, searched=first, by="store erase")(state, batch)
        opened.append(batch.stored, cut=batch.cut)
        opened.shrink()
        left = restore_state(opened).versions_with(person)
    lines = [f"{_shown(store)}: {erased:,} events erased"]
    lines += [
        f"{name} was fitted to a log with this text: fit it again" for name in left
    ]
    _say({"erased": erased, "left_in": left}, as_json, lines)


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
    erase,
    backup,
    restore,
)
commands = typer.Typer(rich_markup_mode=None)
register(commands, serve, demo)
commands.add_typer(store_commands, name="store")
