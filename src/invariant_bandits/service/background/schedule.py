"""When a service learns in the background, and what becomes of the new version."""

from __future__ import annotations

import datetime
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from invariant_bandits.service import commands
from invariant_bandits.service.background.refit import RefitResult, follow
from invariant_bandits.service.commands import EventBatch
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.state import ConflictError, State
from invariant_bandits.service.store.chain import UnavailableError

Activation = Literal["better", "always", "never"]
CLOSE = 256
"""A new version that lacks so few events is handed to the engine, which teaches it the rest."""
DAY = 86_400.0
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
"""Environment of the process that fits."""

log = logging.getLogger("invariant_bandits.service")


@dataclass(frozen=True)
class RefitSchedule:
    """When to learn, and what to do with what comes of it.

    Parameters
    ----------
    every : float or None
        Seconds from one time to the next.
    at : (int, int) or None
        Hour and minute of every day, in the time of this machine.
    activate : "better", "always" or "never"
        Whether a new version takes over by itself: if it is better than the running one for all that can be
        known (the whole interval of the difference lies above 0), in any case, or only by hand. A model that
        began empty is first fitted on easier terms: something must be known, and it must not be worse.
    """

    every: float | None = None
    at: tuple[int, int] | None = None
    activate: Activation = "better"

    def seconds_to_next(self, moment: float) -> float | None:
        """How long to wait from a time (seconds since 1970) on; None: for ever.

        >>> noon = datetime.datetime(2026, 11, 16, 12, 0).timestamp()
        >>> RefitSchedule(at=(13, 30)).seconds_to_next(noon), RefitSchedule(at=(11, 0)).seconds_to_next(noon)
        (5400.0, 82800.0)
        """
        waits = [] if self.every is None else [self.every]
        if self.at is not None:
            today = datetime.datetime.fromtimestamp(moment)
            then = today.replace(hour=self.at[0], minute=self.at[1], second=0, microsecond=0)
            waits.append((then - today).total_seconds() % DAY or DAY)
        return min(waits, default=None)


class Learning:
    """Learns models of a service from their own history, one at a time, in a process of its own.

    Parameters
    ----------
    engine : Engine
        The service's.
    store : str
        Where the process finds the events.
    plan : RefitSchedule
    clock : callable
        Seconds since 1970.
    fit : callable, optional
        Returns the new version of a model, or why there is none; in a process of its own if it is not given.
    """

    def __init__(
        self,
        engine: Engine,
        store: str,
        plan: RefitSchedule | None = None,
        *,
        clock: Callable[[], float] = time.time,
        fit: Callable[[str], RefitResult | str] | None = None,
    ) -> None:
        self.engine, self.store, self.plan, self.clock = engine, store, plan or RefitSchedule(), clock
        self._fit = fit or self._fit_in_process
        self._outcomes: dict[str, dict[str, Any]] = {}
        self._requests: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        """Begin to follow the plan."""
        self._thread.start()

    def stop(self) -> None:
        """End at once; what is being fitted is given up."""
        with self._guard:
            self._ending = True
            if self._process is not None:
                self._process.kill()
        self._requests.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def begin(self, model: str, by: str = "") -> None:
        """Learn a model as soon as possible; ConflictError if that is under way."""
        with self._guard:
            if self._outcomes.get(model, {}).get("status") == "running":
                raise ConflictError(f"model: {model!r} is being learned already")
            self._outcomes[model] = {"status": "running", "began": self.clock()}
        self._requests.put((model, by))

    def outcome(self, model: str) -> dict[str, Any]:
        """Return what became of the last time, plain values."""
        return dict(self._outcomes.get(model, {"status": "never"}))

    # -- the thread --

    def _run(self) -> None:
        due = self._next_time()
        while not self._ending:
            try:
                request = self._requests.get(timeout=None if due is None else max(due - self.clock(), 0.0))
            except queue.Empty:
                self._begin_all()
                due = self._next_time()
                continue
            if request is not None:
                self._learn(*request)

    def _next_time(self) -> float | None:
        wait = self.plan.seconds_to_next(self.clock())
        return None if wait is None else self.clock() + wait

    def _begin_all(self) -> None:
        for model in list(self.engine.state.models):
            try:
                self.begin(model, "plan")
            except ConflictError:
                log.info("%s is still being learned", model)

    def _learn(self, model: str, by: str) -> None:
        began = self.clock()
        outcome: dict[str, Any]
        try:
            refit = self._fit(model)
            outcome = {"status": "not learned", "why": refit}
            if not isinstance(refit, str):
                outcome = self._add(model, by, refit)
        except Exception as error:  # a fit that fails must not end the service
            outcome = {"status": "failed", "why": str(error) or type(error).__name__}
        log.info("learning %s: %s", model, outcome.get("why") or outcome.get("note"))
        self._outcomes[model] = {**outcome, "began": began, "seconds": self.clock() - began}

    def _fit_in_process(self, model: str) -> RefitResult | str:
        """Return what the process that fits answers."""
        with self._guard:
            if self._ending:
                raise UnavailableError("the service is ending")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "invariant_bandits.service.background.refit"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **ONE_THREAD},
            )
        content, _ = self._process.communicate(msgspec.json.encode({"store": self.store, "model": model}))
        code, self._process = self._process.returncode, None
        if code:
            raise UnavailableError(f"the process that fits ended with code {code}")
        return msgspec.msgpack.decode(content, type=RefitResult | str)

    def _add(self, model: str, by: str, refit: RefitResult) -> dict[str, Any]:
        """Have the new version learn what came meanwhile, and add it."""
        learner, upto = refit.learner, refit.upto
        while (last := self.engine.state.seq) - upto > CLOSE:
            follow(learner, self.engine.store, model, upto, last)
            upto = last

        def command(state: State, batch: EventBatch) -> dict[str, Any]:
            nonlocal upto
            follow(learner, state.store, model, upto, state.seq)
            upto = state.seq  # if it has to be proposed again, it goes on from here
            active = self._activates(refit) and state.model(model).version == refit.base
            add = commands.add_version(
                model,
                learner,
                "background",
                note=refit.note,
                by=by,
                active=active,
                through=refit.through,
                evaluation=refit.evaluation,
                why=f"learned from its own history, activated {self.plan.activate}",
            )
            version = add(state, batch)
            return {"version": version, "active": active, "note": refit.note, "evaluation": refit.evaluation}

        return {"status": "learned", **self.engine.call(command, alone=True)}

    def _activates(self, refit: RefitResult) -> bool:
        """Return whether the rule of the schedule lets a version take over."""
        if self.plan.activate != "better":
            return self.plan.activate == "always"
        evaluation = refit.evaluation
        known = not evaluation["unknown_because"]
        return bool(evaluation["better"] or (refit.first_fit and known and not evaluation["worse"]))
