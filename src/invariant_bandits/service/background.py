"""Learning in the background: a new version of a model from its own history, judged on the latest decisions.

As a program, it is the process that fits: standard input says what, and the new version goes to standard
output. It is a process of its own, of low priority and one thread, and only reads the store: the service
never waits for it.
"""

from __future__ import annotations

import datetime
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.evaluation.estimators import ones, support
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.logs.features import Column, FeatureMap, fewest_rounds, prune
from invariant_bandits.model.update import update_model
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.service import commands, history, replay
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.events import ArmAdded, ArmRetired, Closed, Decided
from invariant_bandits.service.learners import FittedLearner, Learner, OpenLearner, finite, learner_from_bytes
from invariant_bandits.service.state import ConflictError, Records, State, teach
from invariant_bandits.service.store.open_store import open_store
from invariant_bandits.service.store.sql import UnavailableError

FEWEST_ROUNDS = 200
"""New decisions below which nothing is fitted."""
FEWEST_WINDOWS, MOST_WINDOWS = 4, 24
FEWEST_PER_WINDOW = 100
MOST_FEATURES = 64
"""Of a model that began empty, so many features are fitted, the most frequent ones."""
FEWEST_USES = 20
LOWEST_PRIORITY = 15
"""How nice the process that fits is to others."""

Decisions = Callable[[], Iterable[history.SettledDecision]]
"""Gives settled decisions from the first on, whenever it is called."""


def made_from(learner: Learner, decisions: Decisions, count: int) -> tuple[Learner, str]:
    """Return a new learner, and a description of what it was fitted to.

    Parameters
    ----------
    learner : Learner
        The running version; it is left as it is.
    decisions : callable
        Gives the settled decisions that are new to the history of `learner`, or all there are of a model that
        began empty, in the order in which they were learned.
    count : int
        How many these are.
    """
    if count < FEWEST_ROUNDS:
        raise InputError(f"history: {count:,} decisions are new, {FEWEST_ROUNDS} are needed")
    if isinstance(learner, FittedLearner):
        return _updated(learner, decisions)
    assert isinstance(learner, OpenLearner)
    return _fitted(learner, decisions, count)


# -- models that were fitted --


def _updated(learner: FittedLearner, decisions: Decisions) -> tuple[Learner, str]:
    """The model with the new decisions as further windows, by their number: times of the old log may be
    of any kind.
    """
    own, layout = learner.model, history.layout_of(decisions, learner)
    layout = replace(layout, chosen_only=layout.rows and not own.schema.has_offered)
    timeless = replace(own, schema=layout.schema_like(own.schema), moments=replace(own.moments, edges=None))
    windows = max(round(layout.decisions * own.moments.windows / own.moments.rounds), 1)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        path = Path(folder) / "decisions.parquet"
        history.write_parquet(path, layout, decisions())
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            update = update_model(timeless, path, windows=windows)
    made = FittedLearner(update.model, learner.seed)
    for label, active in learner.arms.items():
        if label not in made.arms:
            made.add_arm(label, None)
        if not active and made.arms[label]:
            made.retire_arm(label)
    return made, f"{update.new.rounds:,} decisions, {update.model.moments.windows} windows with those it had"


# -- models that began empty --


def _fitted(learner: OpenLearner, decisions: Decisions, count: int) -> tuple[Learner, str]:
    """AutoISD over the most frequent named features, those that cannot be estimated left out."""

    def chosen() -> Iterator[tuple[dict[str, float], float]]:
        """Yield the named numbers of what was chosen, and its reward."""
        for decided, reward in decisions():
            yield history.numbers_of(decided, decided.place), reward

    uses = Counter(name for numbers, _ in chosen() for name, value in numbers.items() if value)
    names = tuple(name for name, often in uses.most_common(MOST_FEATURES) if often >= FEWEST_USES)
    if not names:
        raise InputError(f"history: no feature occurs in {FEWEST_USES} decisions")
    per_window = max(FEWEST_PER_WINDOW, fewest_rounds(len(names)))
    windows = min(count // per_window, MOST_WINDOWS)
    if windows < FEWEST_WINDOWS:
        needed = FEWEST_WINDOWS * per_window
        raise InputError(f"history: {count:,} decisions, {needed:,} are needed for {len(names)} features")
    source, parts = chosen(), []
    for window in range(windows):
        some = list(islice(source, count * (window + 1) // windows - count * window // windows))
        rows = np.array([[numbers.get(name, 0.0) for name in names] for numbers, _ in some])
        parts.append(WindowedMoments.from_arrays(rows, np.array([reward for _, reward in some]), windows=1))
    moments = reduce(WindowedMoments.followed_by, parts)
    usable = prune(moments, FeatureMap(tuple(Column(name) for name in names)))
    places = usable.feature_map.names
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        policy = AutoISD.from_history(usable.moments)
    made = learner.with_policy(policy, places)
    words = f"{count:,} decisions in {usable.moments.windows} windows, {len(places)} of {len(uses)} features"
    return made, words


def follow(
    learner: Learner, store: Any, model: str, first: int, last: int, judge: Judge | None = None
) -> None:
    """Teach a learner the events of a model from number `first` to before `last`; a judge sees them before.

    It then stands where it would if it had been the active version in between, with the same bits.
    """
    records = Records(store.of_key)
    for _, event in history.events_of(store, model, first, last):
        if isinstance(event, Decided):
            records.take(event, fresh=True)
            if judge is not None:
                judge.decided(learner, event)
            learner.seen(event.context, event.labels, event.actions)
        with suppress(InputError):  # as when it serves: a round that it cannot take is not learned
            if isinstance(event, Closed) and event.value is not None:
                record = records.of(event)
                if judge is not None:
                    judge.settled(event.id, event.value)
                if record is not None and record.decided is not None:
                    teach(learner, record.decided, event.value)
            elif isinstance(event, ArmAdded):
                learner.add_arm(event.label, event.features)
            elif isinstance(event, ArmRetired):
                learner.retire_arm(event.label)


FEWEST_JUDGED = 200
"""Decisions of the running version below which nothing is concluded."""
MOST_WAITING = 100_000


class Judge:
    """Estimates, decision by decision, how much more a new version would have earned.

    Every decision says Σ_a (π(a) − p(a))·q̂(a) + (w − 1)·(r − q̂ of what was played): π are the probabilities
    of the new version in the state it had learned by then, p the logged ones, w = π/p of what was played, q̂
    what the new version expected before it saw the reward r. Its mean is the doubly robust difference,
    unbiased as long as the logged propensities are right.

    Parameters
    ----------
    version : str
        The running version; only its decisions count.
    floor : float
        Share of uniform chance that the new version would be served with.
    """

    def __init__(self, version: str, floor: float) -> None:
        self.version, self.floor = version, floor
        self.refused: str | None = None
        self._waiting: dict[str, tuple[float, float, float]] = {}
        self._seen: list[tuple[float, float, float]] = []
        self._rewards: list[float] = []

    def decided(self, learner: Learner, event: Decided) -> None:
        """Compare a decision of the running version with what the new one would have done."""
        if event.version != self.version or len(self._waiting) >= MOST_WAITING:
            return
        try:
            round = learner.round_of(event.context, event.labels, event.actions)
            mine = learner.policy_for(round, self.floor).propensities(round.features).tolist()
            means = learner.means(round)
        except InputError as error:
            self.refused = str(error)
            return
        logged = event.propensities
        difference = sum((p - q) * mean for p, q, mean in zip(mine, logged, means, strict=True))
        weight = mine[event.place] / logged[event.place]
        self._waiting[event.id] = (weight, difference, means[event.place])

    def settled(self, id: str, reward: float) -> None:
        """Add what the running version earned with a decision."""
        seen = self._waiting.pop(id, None)
        if seen is not None:
            self._seen.append(seen)
            self._rewards.append(reward)

    def estimate(self) -> Estimate:
        """Return how much more per decision the new version would have earned."""
        seen = np.array(self._seen).reshape(-1, 3)
        rewards, weights, expected = np.array(self._rewards), seen[:, 0], seen[:, 2]
        effective, reasons = support(weights) if len(weights) else (0.0, ())
        if len(weights) < FEWEST_JUDGED:
            reasons = (f"{len(weights)} decisions of the running version, {FEWEST_JUDGED} are needed",)
        if self.refused is not None:
            reasons = (f"it refuses what the running version decides: {self.refused}", *reasons)
        return estimated(
            seen[:, 1] + (weights - 1.0) * (rewards - expected),
            ones(len(weights)),
            effective_sample=effective,
            reasons=reasons,
            rewards=rewards,
            expected=expected,
            reach=weights - 1.0,
        )

    def evaluation(self) -> dict[str, Any]:
        """Return the estimate and what the running version did earn, plain values to be kept and shown.

        The new version is better, or worse, if the whole interval lies on one side of 0.
        """
        gain = self.estimate()
        known = gain.concludes
        return {
            "decisions": gain.rounds,
            "earned": float(np.mean(self._rewards)) if self._rewards else None,
            "gain": finite(gain.value),
            "low": float(gain.low) if known else None,
            "high": float(gain.high) if known else None,
            "confidence": gain.confidence,
            "better": known and gain.low > 0.0,
            "worse": known and gain.high < 0.0,
            "unknown_because": list(gain.reasons),
        }


def in_words(evaluation: Mapping[str, Any]) -> str:
    """Return one line about an estimate, given as plain values.

    >>> in_words({"gain": 0.03, "low": 0.01, "high": 0.05, "decisions": 900, "unknown_because": []})
    '+0.03 [+0.01, +0.05] per decision against the running version, on 900 later decisions'
    """
    if evaluation["unknown_because"]:
        return f"not compared: {evaluation['unknown_because'][0]}"
    ends = f"[{evaluation['low']:+.3g}, {evaluation['high']:+.3g}]"
    on = f"on {evaluation['decisions']:,} later decisions"
    return f"{evaluation['gain']:+.3g} {ends} per decision against the running version, {on}"


JUDGED_SHARE = 0.25
"""Share of the decisions, the latest ones, that a new version is judged on."""
SETTLING_SHARE, FEWEST_SETTLING = 0.1, 100
"""Share before these that it learns as they come without being judged: what a new policy tries at first is no
part of what it will do, the less as the log seldom plays what it wants to try."""


class RefitResult(msgspec.Struct):
    """A new version that was judged.

    Parameters
    ----------
    kind, content : str, bytes
        Of the learner, which has learned the events before number `upto`.
    base : str
        The version it was compared with.
    through : int
        Settled decisions before this event are windows of its history; it learned the later ones as they
        came.
    note : str
        What it was made of, and how it compares.
    first_fit : bool
        Whether the model began empty and was not fitted before.
    evaluation : dict
        The estimate of the gain, plain values.
    """

    kind: str
    content: bytes
    base: str
    through: int
    upto: int
    note: str
    first_fit: bool
    evaluation: dict[str, Any]

    @property
    def learner(self) -> Learner:
        """The new learner, a copy of its own."""
        return learner_from_bytes(self.kind, self.content, "the new version")


def learn_from_history(store: Any, model: str) -> RefitResult:
    """Fit a new version of a model to its older decisions, and judge it on the latest, which it learns as
    they come.

    In between it learns some without being judged.

    Parameters
    ----------
    store : Store
        Opened for reading; it may grow meanwhile.
    model : str
    """
    state = replay.restore(store)
    served, upto = state.model(model), state.seq
    base = served.versions[served.version]
    first = base.through if isinstance(served.learner, FittedLearner) else 0
    settled = array("q", (seq for seq, _ in history.learned_decisions(store, model, first, upto)))
    judged = max(FEWEST_JUDGED, int(JUDGED_SHARE * len(settled)))
    later = judged + max(FEWEST_SETTLING, int(SETTLING_SHARE * len(settled)))
    if len(settled) <= later:
        raise InputError(f"history: {len(settled):,} decisions are settled, more than {later} are needed")
    count = len(settled) - later
    through, judged_from = settled[count], settled[len(settled) - judged]
    learner, words = made_from(
        served.learner,
        lambda: (settled for _, settled in history.learned_decisions(store, model, first, through)),
        count,
    )
    judge = Judge(base.version, served.configuration.floor)
    follow(learner, store, model, through, judged_from)
    follow(learner, store, model, judged_from, upto, judge)
    first_fit = isinstance(served.learner, OpenLearner) and served.learner.grows
    evaluation = judge.evaluation()
    note, content = f"{words}; {in_words(evaluation)}", learner.to_bytes()
    return RefitResult(learner.kind, content, base.version, through, upto, note, first_fit, evaluation)


def main() -> None:
    """Do what standard input says, {"store": address, "model": name}: write a RefitResult, or why there
    is none.
    """
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing else that is printed comes between
    os.nice(LOWEST_PRIORITY)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    order = msgspec.json.decode(sys.stdin.buffer.read())
    answer: RefitResult | str
    try:
        with closing(open_store(order["store"], writing=False)) as store:
            answer = learn_from_history(store, order["model"])
    except InputError as error:
        answer = str(error)
    with out:
        out.write(msgspec.msgpack.encode(answer))


def _end_with(parent: int) -> None:
    """End when the service has ended: no process waits for the answer."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


Activation = Literal["better", "always", "never"]
CLOSE = 256
"""A new version that lacks so few events is handed to the engine, which teaches it the rest."""
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
"""Environment of the process that fits."""

log = logging.getLogger("invariant_bandits.service")


@dataclass(frozen=True)
class RefitSchedule:
    """When a model is fitted again, and when the new version takes over.

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

    def seconds_to_next(self, moment: float) -> float:
        """Return the seconds from a time (seconds since 1970) to the next start.

        >>> noon = datetime.datetime(2026, 11, 16, 12, 0).timestamp()
        >>> RefitSchedule(at=(13, 30)).seconds_to_next(noon), RefitSchedule(at=(11, 0)).seconds_to_next(noon)
        (5400.0, 82800.0)
        """
        waits = [] if self.every is None else [self.every]
        if self.at is not None:
            today = datetime.datetime.fromtimestamp(moment)
            then = today.replace(hour=self.at[0], minute=self.at[1], second=0, microsecond=0, fold=0)
            days = (then + datetime.timedelta(day) for day in (0, 1, 2))  # of the clock on the wall
            waits.append(next(day.timestamp() - moment for day in days if day.timestamp() > moment))
        return min(waits, default=threading.TIMEOUT_MAX)


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
        """Return the outcome of the last refit as plain values."""
        return dict(self._outcomes.get(model, {"status": "never"}))

    # -- the thread --

    def _run(self) -> None:
        wait = self.plan.seconds_to_next(self.clock())
        due = self.clock() + wait
        while not self._ending:
            try:
                request = self._requests.get(timeout=min(max(due - self.clock(), 0.0), wait))
                if request is not None:
                    self._learn(*request)
            except queue.Empty:
                for model in list(self.engine.state.models):
                    with suppress(ConflictError):  # it is still being learned
                        self.begin(model, "plan")
                moment = max(self.clock(), due)  # a timer that is early must not ring twice
                wait = self.plan.seconds_to_next(moment)
                due = moment + wait

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
                [sys.executable, "-m", "invariant_bandits.service.background"],
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
        """Let the new version learn what happened meanwhile, and add it to the model."""
        learner, upto = refit.learner, refit.upto
        while (last := self.engine.state.seq) - upto > CLOSE:
            follow(learner, self.engine.store, model, upto, last)
            upto = last

        def command(state: State, batch: commands.EventBatch) -> dict[str, Any]:
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


if __name__ == "__main__":
    main()
