"""Start a service: check the store, restore the state, open the door; end it in order."""

from __future__ import annotations

import hashlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from invariant_bandits.checks import InputError
from invariant_bandits.model.model import Model
from invariant_bandits.service import roles, work
from invariant_bandits.service.access import Access, is_loopback
from invariant_bandits.service.app import make_app
from invariant_bandits.service.application import Service
from invariant_bandits.service.batches import Batch, Work
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.learning.background import Learning, Plan
from invariant_bandits.service.limits import Limits
from invariant_bandits.service.roles import engine_for
from invariant_bandits.service.store.beginning import Begun
from invariant_bandits.service.tokens import Role, read_tokens

log = logging.getLogger("invariant_bandits.service")


@dataclass(frozen=True)
class Settings:
    """How a service is started.

    Parameters
    ----------
    store : str
        Path of the SQLite file, made if it is not there, or `postgresql://…`.
    models : mapping of str to path
        Model files by the name they are served under; without any, and with an empty store, an empty model "default".
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
    plan : Plan
        When and how models learn from their own history in the background.
    """

    store: str = "decisions.db"
    models: Mapping[str, Path] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Mapping[str, Role] = field(default_factory=dict)
    token_file: Path | None = None
    limits: Limits = field(default_factory=Limits)
    role: roles.Role = "alone"
    logs: Mapping[str, str] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)


def opened(
    settings: Settings,
    say: Callable[[str], None] = lambda line: None,
    *,
    empty_model: bool = True,
    begun: Begun | None = None,
    access: Access | None = None,
) -> Service:
    """The service with its store checked, its state restored and its models there; not yet listening.

    Where there is no model at all, an empty one is made if that is wanted. A store may be begun already.
    """
    if not settings.tokens and not is_loopback(settings.host):
        raise InputError(f"host: {settings.host} can be reached from outside, which needs tokens (--token-file)")
    if settings.role == "decider" and (settings.models or settings.logs):
        raise InputError("role: a decider takes its models from the learner, not from files")
    engine = engine_for(settings.role, settings.store, say, begun)
    say(f"{engine.state.seq:,} events, models: {', '.join(engine.state.models) or 'none yet'}")
    engine.start()
    try:
        if empty_model and not settings.models and not settings.logs and not engine.state.models:
            engine.call(work.add_version("default", OpenLearner(seed=engine.store.seed), "empty"), alone=True)
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


def _bring_models(engine: Engine, settings: Settings, say: Callable[[str], None]) -> None:
    """Add the models that were given; one that is there already stays as it has learned."""
    for name, path in settings.models.items():
        learner: Learner = FittedLearner(Model.load(path), engine.store.seed)
        version = engine.call(_brought(name, learner, str(path.name)), alone=True)
        say(f"{name}: version {version}")
    for name, log_path in settings.logs.items():
        if name not in engine.state.models:
            from invariant_bandits.model.fit import fit_logs  # takes a second that a start without logs can do without

            say(f"{name}: fitting to {log_path}")
            learner = FittedLearner(fit_logs(log_path), engine.store.seed)
            version = engine.call(work.add_version(name, learner, "logs", note=Path(log_path).name), alone=True)
            say(f"{name}: version {version}")


def _brought(name: str, learner: Learner, note: str) -> Work:
    """Add a version unless the model has one with exactly this content."""

    def task(state: Any, batch: Batch) -> str:
        digest = hashlib.sha256(learner.to_bytes()).hexdigest()
        if name in state.models:
            for one in state.models[name].versions.values():
                if one.content == digest:
                    return str(state.models[name].version)
        version: str = work.add_version(name, learner, "file", note=note)(state, batch)
        return version

    return task


def application(service: Service) -> Starlette:
    """The application, which stops the engine when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        if service.learning is not None:
            service.learning.stop()
        service.engine.stop()

    return make_app(service, lifespan=lifespan)


def serve(settings: Settings, say: Callable[[str], None] = lambda line: None, begun: Begun | None = None) -> int:
    """Serve until asked to end, with the tokens read again at every SIGHUP; 0 if it ended in order."""
    access = Access(settings.tokens, settings.limits)
    signal.signal(signal.SIGHUP, lambda *_: _rotate(access, settings.token_file))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return run(opened(settings, say, begun=begun, access=access), settings, say)


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


def run(service: Service, settings: Settings, say: Callable[[str], None] = lambda line: None) -> int:
    """Listen until asked to end; 0 if it ended in order."""
    import uvicorn

    config = uvicorn.Config(
        application(service), settings.host, settings.port, log_level="warning", access_log=False, server_header=False,
        h11_max_incomplete_event_size=64 << 10, timeout_keep_alive=30, limit_concurrency=2_000,
    )  # fmt: skip
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
