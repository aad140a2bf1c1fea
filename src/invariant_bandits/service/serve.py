"""Start a service: check the store, restore the state, open the door; end it in order."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from starlette.applications import Starlette

from invariant_bandits.checks import InputError
from invariant_bandits.model.model import Model
from invariant_bandits.service import commands
from invariant_bandits.service.access import Access, Role, is_loopback, read_tokens
from invariant_bandits.service.app import make_app
from invariant_bandits.service.background.schedule import Learning, RefitSchedule
from invariant_bandits.service.commands import EventBatch, QueuedCommand
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.operations import Service
from invariant_bandits.service.responses import Limits
from invariant_bandits.service.state import ConflictError, State
from invariant_bandits.service.store.chain import EmptyStoreError, Row, UnavailableError
from invariant_bandits.service.store.open_store import open_store
from invariant_bandits.service.store.postgres import is_address
from invariant_bandits.service.store.verify import VerifyingStore, verify

LOOK_EVERY = 0.2
"""Seconds between two looks for a newer published state."""


class Decider(Engine):
    """Decides from what a learner has published, and never learns.

    Parameters
    ----------
    store : open_store
        Opened for writing, not for learning.
    clock : callable
        Seconds since 1970.
    """

    def __init__(self, store: Any, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store, clock=clock, retry_every=LOOK_EVERY, state=published(store))
        self._newer: State | None = None
        self._seen = self.state.seq
        self._stopping = threading.Event()
        self._looking = threading.Thread(target=self._look, name="published states", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._looking.start()
        super().start()

    def stop(self) -> None:
        """Finish what was asked, let go of the store."""
        self._stopping.set()
        if self._looking.is_alive():
            self._looking.join()
        super().stop()

    def _look(self) -> None:
        """Fetch newer states in a thread of their own, so that no decision waits for them."""
        newest = self.state.seq
        while not self._stopping.wait(LOOK_EVERY):
            with contextlib.suppress(UnavailableError):
                if (self.store.snapshot_seq() or 0) > newest:
                    self._newer = published(self.store)
                    newest = self._newer.seq

    def _take_newer(self) -> None:
        newer, self._newer = self._newer, None
        if newer is not None:
            self.state = newer

    def _put(self, item: QueuedCommand) -> None:
        if item.alone:
            raise ConflictError("role: this process only decides; changes are made where the learner listens")
        super()._put(item)

    def _tend(self, moment: float) -> None:
        self._take_newer()

    def _snapshot(self) -> None:
        """Snapshots are the learner's."""

    def _idle_for(self) -> float:
        return LOOK_EVERY

    def _propose(self, queued: Sequence[QueuedCommand]) -> EventBatch:
        """Return what the commands propose; their decisions are read from the store, to which others add."""
        self._take_newer()
        self.state.records.forget()
        try:
            self._seen = self.store.head().seq
        except UnavailableError:
            self.available = False
            raise
        return super()._propose(queued)

    def _follow(self, rows: Iterable[Row]) -> None:
        """What others have added is asked for again when it matters."""

    def _append(self, batch: EventBatch) -> None:
        self.store.append(batch.stored, batch.contents, seen=self._seen, keys=list(batch.pending))
        for event in batch.events:
            self._notify(event)

    def _recover(self) -> None:
        self.store.reopen()


def published(store: Any) -> State:
    """The newest state that a learner has published; UnavailableError if there is none yet."""
    snapshot = store.latest_snapshot()
    if snapshot is None:
        raise UnavailableError("no learner has published a model yet")
    return State.from_bytes(snapshot[1], store, published=True)


FleetRole = Literal["alone", "learner", "decider"]
"""Alone: decides and learns, and a second such process is refused. A learner waits for its turn instead, and
publishes what it has learned; deciders decide from that, as many as are wanted."""
PUBLISH_EVERY = 1.0
"""Seconds between two published states."""
PAUSE = 0.25
"""Seconds between two looks whether it is one's turn."""

Say = Callable[[str], None]


def engine_for(role: FleetRole, address: str, say: Say, verifying: VerifyingStore | None = None) -> Engine:
    """Return the engine, not started, of a process with this role on the store under an address.

    `verifying` is that store, if it is open already.
    """
    if role not in get_args(FleetRole):
        raise InputError(f"role must be one of {', '.join(get_args(FleetRole))}, got {role!r}")
    if role != "alone" and not is_address(address):
        raise InputError(f"role: a {role} needs a store that processes can share (--store postgresql://…)")
    if role == "decider":
        store = _open_published(address, say)
    elif verifying is not None:
        store = verifying.store
    else:
        wait = Poller(say, "another process learns: waiting for its turn") if role == "learner" else None
        store = open_store(address, check=verify, wait=wait)
    try:
        if role == "decider":
            return Decider(store)
        try:
            return Engine(store, publish_every=PUBLISH_EVERY if role == "learner" else math.inf)
        finally:
            if verifying is not None:
                verifying.finish()  # what is damaged is said first
    except BaseException:
        store.close()
        raise


def _open_published(address: str, say: Say) -> Any:
    """The store, as soon as a learner has published something in it."""
    pause = Poller(say, "waiting for a learner to publish its first model")
    while True:
        try:
            store = open_store(address, learning=False)
            if store.snapshot_seq() is not None:
                return store
            store.close()
        except EmptyStoreError:
            pass
        pause()


class Poller:
    """Waits a little each time it is called, and says once why."""

    def __init__(self, say: Say, why: str) -> None:
        self._say, self._why, self._is_said = say, why, False

    def __call__(self) -> None:
        """Wait."""
        if not self._is_said:
            self._say(self._why)
        self._is_said = True
        time.sleep(PAUSE)


log = logging.getLogger("invariant_bandits.service")


@dataclass(frozen=True)
class ServiceSettings:
    """How a service is started.

    Parameters
    ----------
    store : str
        Path of the SQLite file, made if it is not there, or `postgresql://…`.
    models : mapping of str to path
        Model files by the name they are served under; without any, and with an empty store, an empty model
        "default".
    host, port : str, int
        Where to listen.
    tokens : mapping of str to Role
        See `access`; without any, only loopback is served.
    token_file : Path or None
        Where the tokens are from; SIGHUP reads it again.
    limits : Limits
    role : "alone", "learner" or "decider"
        See `roles`.
    logs : mapping of str to str
        Logs by the name of the model that is fitted to them, unless the store has it already.
    plan : RefitSchedule
        When and how models learn from their own history in the background.
    """

    store: str = "decisions.db"
    models: Mapping[str, Path] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Mapping[str, Role] = field(default_factory=dict)
    token_file: Path | None = None
    limits: Limits = field(default_factory=Limits)
    role: FleetRole = "alone"
    logs: Mapping[str, str] = field(default_factory=dict)
    plan: RefitSchedule = field(default_factory=RefitSchedule)


def open_service(
    settings: ServiceSettings,
    say: Callable[[str], None] = lambda line: None,
    *,
    empty_model: bool = True,
    verifying: VerifyingStore | None = None,
    access: Access | None = None,
) -> Service:
    """The service with its store checked, its state restored and its models there; not yet listening.

    Where there is no model at all, an empty one is made if that is wanted. `verifying` is the store, if it is
    already open.
    """
    if not settings.tokens and not is_loopback(settings.host):
        raise InputError(
            f"host: {settings.host} can be reached from outside, which needs tokens (--token-file)"
        )
    if settings.role == "decider" and (settings.models or settings.logs):
        raise InputError("role: a decider takes its models from the learner, not from files")
    engine = engine_for(settings.role, settings.store, say, verifying)
    say(f"{engine.state.seq:,} events, models: {', '.join(engine.state.models) or 'none yet'}")
    engine.start()
    try:
        if empty_model and not settings.models and not settings.logs and not engine.state.models:
            empty = OpenLearner(seed=engine.store.seed)
            engine.call(commands.add_version("default", empty, "empty"), alone=True)
            say("an empty model, 'default', learns from what comes")
        _bring_models(engine, settings, say)
    except BaseException:
        engine.stop()
        raise
    learning = None if settings.role == "decider" else Learning(engine, settings.store, settings.plan)
    if learning is not None:
        learning.start()
    access = access or Access(settings.tokens, settings.limits)
    return Service(engine, access, settings.limits, learning=learning)


def _bring_models(engine: Engine, settings: ServiceSettings, say: Callable[[str], None]) -> None:
    """Add the models that were given; one that is there already stays as it has learned."""
    for name, path in settings.models.items():
        learner: Learner = FittedLearner(Model.load(path), engine.store.seed)
        add = commands.add_version(name, learner, "file", note=path.name, unless_known=True)
        version = engine.call(add, alone=True)
        say(f"{name}: version {version}")
    for name, log_path in settings.logs.items():
        if name not in engine.state.models:
            from invariant_bandits.model.fit import fit_logs  # a start without logs saves this second

            say(f"{name}: fitting to {log_path}")
            learner = FittedLearner(fit_logs(log_path), engine.store.seed)
            add = commands.add_version(name, learner, "logs", note=Path(log_path).name)
            version = engine.call(add, alone=True)
            say(f"{name}: version {version}")


def application(service: Service) -> Starlette:
    """The application, which stops the engine when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        if service.learning is not None:
            service.learning.stop()
        service.engine.stop()

    return make_app(service, lifespan=lifespan)


def serve(
    settings: ServiceSettings,
    say: Callable[[str], None] = lambda line: None,
    verifying: VerifyingStore | None = None,
) -> int:
    """Serve until asked to end, with the tokens read again at every SIGHUP; 0 if it ended in order."""
    access = Access(settings.tokens, settings.limits)
    signal.signal(signal.SIGHUP, lambda *_: _rotate(access, settings.token_file))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return run(open_service(settings, say, verifying=verifying, access=access), settings, say)


def _rotate(access: Access, token_file: Path | None) -> None:
    """Read the token file again; one that is refused leaves the tokens as they are."""
    if token_file is None:
        log.warning("SIGHUP: there is no token file to read again")
        return
    try:
        access.tokens = read_tokens(token_file)
    except InputError as error:
        log.error("SIGHUP: the tokens stay as they were: %s", error)
    else:
        log.info("SIGHUP: read %d token(s) from %s", len(access.tokens), token_file)


def run(service: Service, settings: ServiceSettings, say: Callable[[str], None] = lambda line: None) -> int:
    """Listen until asked to end; 0 if it ended in order."""
    import uvicorn

    config = uvicorn.Config(
        application(service),
        settings.host,
        settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=64 << 10,
        timeout_keep_alive=30,
        limit_concurrency=2_000,
    )
    server = Server(config, lambda: say(f"serving at http://{settings.host}:{settings.port}"), service.engine)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn ends in order, and raises them again afterwards
        signal.signal(number, lambda *_: None)
    server.run()
    return 0 if service.engine.failure is None and server.started else 1


def Server(config: Any, started: Callable[[], None], engine: Engine) -> Any:  # noqa: N802 - makes one
    """A uvicorn server that says when it listens, and ends when the engine has failed."""
    import asyncio

    import uvicorn

    class Watching(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                started()
                self.watch = asyncio.get_running_loop().create_task(self.end_with_engine())

        async def end_with_engine(self) -> None:
            while engine.failure is None:
                await asyncio.sleep(0.5)
            self.should_exit = True

    return Watching(config)
