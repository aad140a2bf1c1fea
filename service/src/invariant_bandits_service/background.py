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
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.evaluation.estimators import ones, support
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.features.columns import Column
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.logs.pruning import prune
from invariant_bandits.logs.windows import fewest_rounds
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.parallel import end_with_parent
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits_service import commands, history, learners, replay
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import (
    REMOVED,
    ArmAdded,
    ArmRetired,
    Closed,
    Decided,
    decode_event,
)
from invariant_bandits_service.history import Decisions
from invariant_bandits_service.learners import (
    FittedLearner,
    Learner,
    OpenLearner,
    learner_from_bytes,
)
from invariant_bandits_service.settings import DAY
from invariant_bandits_service.state import ConflictError, State, record_of, teach
from invariant_bandits_service.store.open_store import lower_priority, open_store
from invariant_bandits_service.store.sql import UnavailableError

FEWEST_ROUNDS = 200
"""Decisions before those that a new version is judged on, below which nothing is fitted."""
FEWEST_WINDOWS = 4
"""Windows below which drift cannot be told from noise."""
MOST_WINDOWS = 24
"""Windows beyond which a further one says little about drift and costs time."""
FEWEST_PER_WINDOW = 100
"""Decisions of a window, so that its rewards are estimated at all."""
MOST_FEATURES = 64
"""Of a model that began empty, so many features are fitted, the most frequent ones."""
FEWEST_USES = 20
"""Decisions in which a feature or an arm must occur to be fitted."""
FEWEST_ARMS = 3
"""Arms from which a prior over arms is learned."""
PROGRESS = "progress"
"""Name of the file beside a log that says how far it was read."""


class TooFewDecisionsError(InputError):
    """A history that is too short to learn from: nothing is wrong, and more comes."""


def made_from(
    learner: Learner, decisions: Decisions, count: int
) -> tuple[Learner, str]:
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
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        if isinstance(learner, FittedLearner):
            return _updated(learner, decisions, count)
        assert isinstance(learner, OpenLearner)
        return _fitted_to_arms(learner, decisions, count) or _fitted(
            learner, decisions, count
        )


# -- models that were fitted --


def _updated(
    learner: FittedLearner, decisions: Decisions, count: int
) -> tuple[Learner, str]:
    """Return the model with the new decisions as further windows.

    The windows are by number of decisions: times of the old log may be of any kind.
    """
    own = learner.model
    layout = history.layout_of(decisions, learner)
    layout = replace(layout, chosen_only=layout.rows and not own.schema.has_offered)
    odds = own.log_odds
    if odds is not None:
        odds = replace(odds, moments=replace(odds.moments, edges=None))
    timeless = replace(
        own,
        schema=layout.schema_like(own.schema),
        moments=replace(own.moments, edges=None),
        log_odds=odds,
    )
    windows = max(round(count * own.moments.windows / own.moments.rounds), 1)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        path = Path(folder) / "decisions.parquet"
        history.write_parquet(path, layout, decisions())
        update = timeless.update_from(path, windows=windows)
    made = FittedLearner(update.model, learner.seed)
    for label, active in learner.arms.items():
        if label not in made.arms:
            made.add_arm(label, None)
        if not active and made.arms[label]:
            made.retire_arm(label)
    windows = update.model.moments.windows
    words = f"{update.new.rounds:,} decisions, {windows} windows with those it had"
    return made, words


# -- models that began empty --


def _fitted(
    learner: OpenLearner, decisions: Decisions, count: int
) -> tuple[Learner, str]:
    """Return AutoISD over the most frequent named features that can be estimated."""

    def chosen() -> Iterator[tuple[dict[str, float], float]]:
        """Yield the named numbers of what was chosen, and its reward."""
        for decided, reward, _ in decisions():
            yield history.numbers_of(decided, decided.index), reward

    uses = Counter[str]()
    for numbers, _ in chosen():
        uses.update(name for name, value in numbers.items() if value)
    names = _frequent(uses, MOST_FEATURES)
    if not names:
        raise TooFewDecisionsError(
            f"history: no feature occurs in {FEWEST_USES} decisions"
        )
    per_window = max(FEWEST_PER_WINDOW, fewest_rounds(len(names)))
    windows = min(count // per_window, MOST_WINDOWS)
    if windows < FEWEST_WINDOWS:
        needed = FEWEST_WINDOWS * per_window
        raise TooFewDecisionsError(
            f"history: {count:,} decisions, {needed:,} are needed for {len(names)} features"
        )
    source = chosen()
    parts = []
    for window in range(windows):
        # windows differ by one decision at most
        size = count * (window + 1) // windows - count * window // windows
        rows = []
        rewards = []
        for numbers, reward in islice(source, size):
            rows.append([numbers.get(name, 0.0) for name in names])
            rewards.append(reward)
        parts.append(
            WindowedMoments.from_arrays(np.array(rows), np.array(rewards), windows=1)
        )
    moments = reduce(WindowedMoments.followed_by, parts)
    usable = prune(moments, RowFeatures(tuple(Column(name) for name in names)))
    kept = usable.feature_map.names
    fitted_windows = usable.moments.windows
    words = f"{len(kept)} of {len(uses)} features"
    words = f"{count:,} decisions in {fitted_windows} windows, {words}"
    return learner.with_policy(AutoISD.from_history(usable.moments), kept), words


def _frequent(uses: Counter[str], most: int) -> list[str]:
    """Return the names that occur most often, at most so many, and each often enough."""
    common = uses.most_common(most)
    return [name for name, often in common if often >= FEWEST_USES]


def _fitted_to_arms(
    learner: OpenLearner, decisions: Decisions, count: int
) -> tuple[Learner, str] | None:
    """Return AutoISD with a prior over arms, which also covers arms that come later.

    None where actions have features, or there are too few arms or decisions for it.
    """
    plays = Counter[str]()
    uses = Counter[str]()
    for decided, *_ in decisions():
        if decided.actions is not None or not decided.labels:
            return None
        plays[str(decided.action)] += 1
        uses.update(learners.named_numbers(decided.context, "context").keys())
    arms = _frequent(plays, MOST_FEATURES)
    room = max(MOST_FEATURES // max(len(arms), 1) - 1, 0)
    slopes = _frequent(uses, room)
    names = []
    for label in arms:
        names.append(f"a:{label}")
        names += [f"a:{label}|{slope}" for slope in slopes]
    per_window = max(FEWEST_PER_WINDOW, fewest_rounds(len(names)))
    windows = min(count // per_window, MOST_WINDOWS)
    if len(arms) < FEWEST_ARMS or windows < FEWEST_WINDOWS:
        return None
    contexts = array("d")
    played = array("q")
    rewards = array("d")
    for decided, reward, _ in decisions():
        if decided.action in arms:
            numbers = learners.named_numbers(decided.context, "context")
            contexts.extend([1.0, *(numbers.get(slope, 0.0) for slope in slopes)])
            played.append(arms.index(str(decided.action)))
            rewards.append(reward)
    statistics = ArmStatistics.from_rounds(
        np.array(contexts).reshape(len(played), -1),
        np.array(played),
        np.array(rewards),
        windows=windows,
        link="identity",
    )
    words = f"{len(arms)} arms, {len(slopes)} of {len(uses)} features"
    words = f"{count:,} decisions in {windows} windows, {words}"
    return learner.with_policy(AutoISD.from_arms(statistics), names), words


def follow(
    learner: Learner,
    store: Any,
    model: str,
    first: int,
    last: int,
    judge: Judge | None = None,
) -> None:
    """Teach a learner the events of a model from number `first` to before `last`; a judge sees them before.

    It then stands where it would if it had been the active version in between, with the same bits.
    """
    for _, event, record in history.events_of(store, model, first, last):
        if isinstance(event, Decided):
            if judge is not None:
                judge.decided(learner, event)
            learner.seen(event.context, event.labels, event.actions)
        # as when it serves: a round that it cannot take is not learned
        with suppress(InputError):
            if isinstance(event, Closed) and event.value is not None:
                if judge is not None:
                    judge.settled(event.id, event.value)
                if record.decided is not None:
                    teach(learner, record.decided, event.value)
            elif isinstance(event, ArmAdded):
                learner.add_arm(event.label, event.features)
            elif isinstance(event, ArmRetired):
                learner.retire_arm(event.label)


FEWEST_JUDGED = 200
"""Decisions of the running version below which nothing is concluded."""
MOST_WAITING = 100_000
"""Decisions without a reward that a judge remembers: some 10 MB."""


class Judge:
    """Estimates, decision by decision, how much more a new version would have earned.

    Every decision says Σ_a (π(a) − p(a))·q̂(a) + (w − 1)·(r − q̂ of what was played): π are the probabilities
    of the new version in the state it had learned by then, p the logged ones, w = π/p of what was played, q̂
    what the new version expected before it saw the reward r. Its mean is the doubly robust difference,
    unbiased as long as the logged propensities are right.

    Parameters
    ----------
    version : str or None
        The running version; only its decisions count, but for those that were held out. None: those of all.
    floor : float
        Share of uniform chance that the new version would be served with.

    Attributes
    ----------
    compared, changed, refusals : int
        Decisions that were looked at; where another action would be most probable; that it refuses.
    refused : str or None
        Why, the first time.
    """

    def __init__(self, version: str | None, floor: float) -> None:
        self.version = version
        self.floor = floor
        self.compared = self.changed = self.refusals = 0
        self.refused: str | None = None
        self._waiting: dict[str, tuple[float, float, float]] = {}
        self._seen: list[tuple[float, float, float, float]] = []

    def decided(self, learner: Learner, event: Decided) -> None:
        """Compare a decision of the running version with what the new one would have done."""
        is_own = (
            event.version == (self.version or event.version)
            and event.group != "holdout"
        )
        if not is_own or len(self._waiting) >= MOST_WAITING:
            return
        self.compared += 1
        try:
            round = learner.round_of(
                event.context, () if event.all_arms else event.labels, event.actions
            )
            choice = learner.decide(round, self.floor)
        except InputError as error:
            self.refusals += 1
            self.refused = self.refused or str(error)
            return
        new = choice.propensities.tolist()
        expected = choice.means.tolist()
        logged = event.propensities
        # what other arms would earn cannot be known
        if list(round.labels) != event.labels:
            self.changed += 1
            return
        self.changed += new.index(max(new)) != logged.index(max(logged))
        # Σ_a (π(a) − p(a))·q̂(a), in the letters of the class
        difference = 0.0
        for pi, p, q in zip(new, logged, expected, strict=True):
            difference += (pi - p) * q
        weight = new[event.index] / logged[event.index]
        self._waiting[event.id] = (weight, difference, expected[event.index])

    def settled(self, id: str, reward: float) -> None:
        """Add what the running version earned with a decision."""
        if id in self._waiting:
            self._seen.append((*self._waiting.pop(id), reward))

    def estimate(self) -> Estimate:
        """Return how much more per decision the new version would have earned."""
        weights, differences, expected, rewards = np.array(self._seen).reshape(-1, 4).T
        effective, reasons = support(weights) if len(weights) else (0.0, ())
        if len(weights) < FEWEST_JUDGED:
            reasons = (
                f"{len(weights)} decisions of the running version, {FEWEST_JUDGED} are needed",
            )
        if self.refused is not None:
            reasons = (
                f"it refuses what the running version decides: {self.refused}",
                *reasons,
            )
        return estimated(
            differences + (weights - 1.0) * (rewards - expected),
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
            "earned": float(np.mean([seen[3] for seen in self._seen]))
            if self._seen
            else None,
            "gain": float(gain.value) if np.isfinite(gain.value) else None,
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


MOST_REPLAYED = 1_000
"""The latest requests, which a version is tried on before it decides."""
MOST_SCANNED = 50_000
"""The latest events, in which these requests are looked for."""
LONGEST_TRIAL = 10.0
"""Seconds that a trial may take: an administrator waits for its answer."""
PAUSE = 0.001
"""Seconds that a trial leaves to other threads after every request."""
FAR = 5.0
"""Standard deviations from the logged rewards that the mean of recent ones may have."""


def compare(engine: Engine, model: str, learner: Learner) -> dict[str, Any]:
    """Try a version that does not decide yet on the latest requests.

    Returns
    -------
    dict
        `evaluation` by the logged propensities, with the numbers of requests `replayed`, `refused`
        and `changed`; `differences` in words, empty if it can answer these requests.
    """
    differences = engine.call(
        commands.inspect(lambda state: state.model(model).learner.differences(learner))
    )
    judge = Judge(None, engine.view().model(model).configuration.floor)
    rewards = _judge_latest(engine, model, learner, judge)
    if judge.refused is not None:
        refusals = f"{judge.refusals} of {judge.compared} latest requests"
        differences.append(f"{refusals} are refused: {judge.refused}")
    differences += _reward_differences(learner, rewards)
    evaluation = judge.evaluation()
    evaluation["replayed"] = judge.compared
    evaluation["refused"] = judge.refusals
    evaluation["changed"] = judge.changed
    return {"differences": differences, "evaluation": evaluation}


def _judge_latest(
    engine: Engine, model: str, learner: Learner, judge: Judge
) -> list[float]:
    """Have a judge see the latest decisions of a model; return the rewards of those that have one."""
    store = engine.store
    aside = engine.view().aside
    end = time.monotonic() + LONGEST_TRIAL
    last = store.head().seq
    first = max(store.start().seq, last - MOST_SCANNED)
    rewards: list[float] = []
    requests = 0
    for row, event in history.latest_decisions(store, first, last):
        if event.model != model or row.seq in aside:
            continue
        if requests >= MOST_REPLAYED or time.monotonic() > end:
            break
        requests += 1
        record = record_of(decode_event(later.event) for later in store.of_key(row.key))
        if record is None or record.decided is None:
            continue
        judge.decided(learner, record.decided)
        if record.closed is not None and record.closed.value is not None:
            rewards.append(record.closed.value)
            judge.settled(record.decided.id, record.closed.value)
        time.sleep(PAUSE)
    return rewards


def _reward_differences(learner: Learner, rewards: Sequence[float]) -> list[str]:
    """Describe how rewards differ from what a learner takes, or was fitted to."""
    differences: list[str] = []
    if rewards and learner.link == "logit":
        lowest = min(rewards)
        highest = max(rewards)
        if not 0.0 <= lowest <= highest <= 1.0:
            words = f"it takes 0 to 1, the latest go from {lowest:g} to {highest:g}"
            differences.append(f"rewards: {words}")
    if len(rewards) >= FEWEST_JUDGED and learner.reward_scale is not None:
        mean = float(np.mean(rewards))
        fitted, deviation = learner.reward_scale
        if abs(mean - fitted) > FAR * deviation:
            words = f"the mean of the latest is {mean:.3g}"
            words += f", of those it was fitted to {fitted:.3g} ± {deviation:.2g}"
            differences.append(f"rewards: {words}")
    return differences


JUDGED_SHARE = 0.25
"""Share of the decisions, the latest ones, that a new version is judged on."""
SETTLING_SHARE = 0.1
"""Share before these that it learns as they come without being judged.

What a new policy tries at first says little about what it will do, the less as the log seldom
plays what it wants to try."""
FEWEST_SETTLING = 100
"""Decisions that this share is at least."""


class NoRefit(msgspec.Struct, tag=True):
    """Why there is no new version, and whether that is a failure."""

    why: str
    failed: bool = True


class RefitResult(msgspec.Struct, tag=True):
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


def learn_from_history(store: Any, model: str) -> RefitResult:
    """Fit a new version of a model to its older decisions, and judge it on the latest.

    It learns the latest as they come.

    In between it learns some without being judged.

    Parameters
    ----------
    store : Store
        Opened for reading; it may grow meanwhile.
    model : str
    """
    state = replay.restore(store)
    served = state.model(model)
    upto = state.seq
    base = served.versions[served.version]
    first = base.through if isinstance(served.learner, FittedLearner) else 0
    decisions = partial(history.settled_decisions, store, model, first=first)
    settled = array("q", (each.seq for each in decisions(last=upto)))
    judged = max(FEWEST_JUDGED, int(JUDGED_SHARE * len(settled)))
    later = judged + max(FEWEST_SETTLING, int(SETTLING_SHARE * len(settled)))
    count = len(settled) - later
    if count < FEWEST_ROUNDS:
        needed = f"{later + FEWEST_ROUNDS:,} are needed"
        raise TooFewDecisionsError(
            f"history: {len(settled):,} decisions are settled, {needed}"
        )
    through = settled[count]
    judged_from = settled[len(settled) - judged]
    learner, words = made_from(served.learner, partial(decisions, last=through), count)
    judge = Judge(base.version, served.configuration.floor)
    follow(learner, store, model, through, judged_from)
    follow(learner, store, model, judged_from, upto, judge)
    first_fit = isinstance(served.learner, OpenLearner) and served.learner.grows
    evaluation = judge.evaluation()
    return RefitResult(
        kind=learner.kind,
        content=learner.to_bytes(),
        base=base.version,
        through=through,
        upto=upto,
        note=f"{words}; {in_words(evaluation)}",
        first_fit=first_fit,
        evaluation=evaluation,
    )


def main() -> None:
    """Do what standard input says; write a RefitResult or a NoRefit.

    The input is {"store": address, "model": name, "log": path or "", "seed": number}.
    """
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing else that is printed comes between
    lower_priority()
    end_with_parent()
    order = msgspec.json.decode(sys.stdin.buffer.read())
    answer: RefitResult | NoRefit
    try:
        if order["log"]:
            answer = _fit_log(Path(order["log"]), order["seed"])
        else:
            with closing(open_store(order["store"], writing=False)) as store:
                answer = learn_from_history(store, order["model"])
    except TooFewDecisionsError as error:
        answer = NoRefit(str(error), failed=False)
    except InputError as error:
        # what is wrong with an uploaded log is for its administrator to mend
        answer = NoRefit(str(error), failed=not order["log"])
    with out:
        out.write(msgspec.msgpack.encode(answer))


def _fit_log(path: Path, seed: int) -> RefitResult:
    """Fit a model to a log; a file beside it says how many rows were read, and of how many."""
    from invariant_bandits.model.fit import fit_logs

    def progress(rows: int, total: int | None, seconds: float) -> None:
        path.with_name(PROGRESS).write_text(
            f"{rows:,} rows read" + (f" of {total:,}" if total else "")
        )

    learner = FittedLearner(fit_logs(path, progress=progress), seed)
    moments = learner.model.moments
    return RefitResult(
        kind=learner.kind,
        content=learner.to_bytes(),
        base="",
        through=0,
        upto=0,
        note=f"{path.name}: {moments.rounds:,} rounds in {moments.windows} windows",
        first_fit=False,
        evaluation={},
    )


Activation = Literal["better", "always", "never"]
CLOSE = 256
"""A new version that lacks so few events is handed to the engine, which teaches it the rest."""
ONE_THREAD = {
    f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")
}
"""Environment of the process that fits."""

LONGEST_FAILING = 3 * DAY
"""Seconds of failed attempts to learn, three nights by default, after which the service is not ready."""

log = logging.getLogger("invariant_bandits_service")


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
            hour, minute = self.at
            then = today.replace(
                hour=hour, minute=minute, second=0, microsecond=0, fold=0
            )
            # days of the clock on the wall need not have 24 hours
            while then.timestamp() <= moment:
                then += datetime.timedelta(days=1)
            waits.append(then.timestamp() - moment)
        return min(waits, default=threading.TIMEOUT_MAX)


def add_caught_up(
    engine: Engine,
    model: str,
    learner: Learner,
    upto: int,
    *,
    base: str,
    note: str,
    by: str,
    why: str,
    through: int,
    evaluation: dict[str, Any] | None,
    made_from: int | None = None,
) -> str:
    """Add a version after it has learned the events from number `upto` on.

    It decides if the version `base` does now. ConflictError if a person was erased since the number
    `made_from` of events, whom the version may still name. The other arguments are those of
    `commands.add_version`.
    """
    while (last := engine.view().seq) - upto > CLOSE:
        follow(learner, engine.store, model, upto, last)
        upto = last

    def command(state: State, batch: commands.EventBatch) -> str:
        nonlocal upto
        erasures = state.store.of_key(REMOVED)
        if made_from is not None and any(row.seq >= made_from for row in erasures):
            raise ConflictError("history: decisions were erased while it was fitted")
        follow(learner, state.store, model, upto, state.seq)
        upto = state.seq  # if it has to be proposed again, it goes on from here
        add = commands.add_version(
            model,
            learner,
            "background",
            active=state.model(model).version == base,
            note=note,
            by=by,
            why=why,
            through=through,
            evaluation=evaluation,
        )
        return add(state, batch)

    return engine.call(command, alone=True)


def catch_up(engine: Engine, model: str, version: str, by: str) -> str | None:
    """Activate what a version from the background is after it has learned what happened since it was added.

    Returns
    -------
    str or None
        The new version; None for one of another origin, or that has learned since: it goes on where it stood.
    """
    served = engine.view().model(model)
    store = engine.store
    added = served.versions[version]
    content = engine.call(
        commands.inspect(
            lambda state: state.model(model).learner_of(version).to_bytes()
        )
    )
    if added.origin != "background" or not served.has_content(content):
        return None
    upto = replay.first_since(store, added.time, store.start().seq, store.head().seq)
    learner = learner_from_bytes(added.learner, content, version)
    return add_caught_up(
        engine,
        model,
        learner,
        upto,
        base=served.version,
        note=f"{version}, caught up; {added.note}",
        by=by,
        why="by hand",
        through=added.through,
        evaluation=added.evaluation,
    )


class Learning:
    """Learns models of a service from their own history, one at a time, in a process of its own.

    Parameters
    ----------
    engine : Engine
        The service's.
    store : str
        Where the process finds the events.
    plan : RefitSchedule
    """

    def __init__(
        self, engine: Engine, store: str, plan: RefitSchedule | None = None
    ) -> None:
        self.engine = engine
        self.store = store
        self.plan = plan or RefitSchedule()
        self._outcomes: dict[str, dict[str, Any]] = {}
        self._failures: dict[str, dict[str, Any]] = {}
        self._requests: queue.SimpleQueue[tuple[str, str, Path | None] | None] = (
            queue.SimpleQueue()
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End at once; what is being fitted is given up."""
        with self._guard:
            self._ending = True
            if self._process is not None:
                self._process.kill()
        self._requests.put(None)
        self._thread.join()

    def begin(self, model: str, by: str = "", log: Path | None = None) -> None:
        """Learn a model from its history, or a new one from a log, as soon as possible.

        ConflictError if that is under way. The folder of the log is removed when it is done.
        """
        with self._guard:
            if self._outcomes.get(model, {}).get("status") == "running":
                raise ConflictError(f"model: {model!r} is being learned already")
            self._outcomes[model] = {
                "status": "running",
                "began": time.time(),
                "log": log,
            }
        self._requests.put((model, by, log))

    def failures(self) -> dict[str, dict[str, Any]]:
        """Return models whose latest attempts to learn have failed: since when, and why."""
        models = self.engine.view().models
        return {name: why for name, why in self._failures.items() if name in models}

    def problem(self) -> str | None:
        """Say which model has not been able to learn for so long that an operator must look."""
        for model, failure in self.failures().items():
            if time.time() - failure["since"] > LONGEST_FAILING:
                return f"{model} has not been able to learn for days: {failure['why']}"
        return None

    def outcome(self, model: str) -> dict[str, Any]:
        """Return the outcome of the last refit as plain values; how far it is while it runs."""
        outcome = dict(self._outcomes.get(model, {"status": "never"}))
        if (log := outcome.pop("log", None)) is not None:
            with suppress(OSError):
                outcome["progress"] = log.with_name(PROGRESS).read_text()
        return outcome

    # -- the thread --

    def _run(self) -> None:
        wait = self.plan.seconds_to_next(time.time())
        due = time.time() + wait
        while not self._ending:
            try:
                timeout = min(max(due - time.time(), 0.0), wait)
                request = self._requests.get(timeout=timeout)
                if request is not None:
                    model, by, log_file = request
                    self._learn(model, by, log_file)
            except queue.Empty:
                for model in self.engine.view().models:
                    with suppress(ConflictError):  # it is still being learned
                        self.begin(model, "plan")
                # a timer that is early must not ring twice
                moment = max(time.time(), due)
                wait = self.plan.seconds_to_next(moment)
                due = moment + wait

    def _learn(self, model: str, by: str, log_file: Path | None = None) -> None:
        began = time.time()
        try:
            refit = self._fit(model, log_file)
            if isinstance(refit, NoRefit):
                status = "failed" if refit.failed else "not learned"
                outcome: dict[str, Any] = {"status": status, "why": refit.why}
            else:
                outcome = self._add(model, by, refit)
        except Exception as error:  # a fit that fails must not end the service
            outcome = {"status": "failed", "why": str(error) or type(error).__name__}
        if log_file is not None:
            shutil.rmtree(log_file.parent, ignore_errors=True)
        words = outcome.get("why") or outcome.get("note")
        if outcome["status"] != "failed":
            self._failures.pop(model, None)
            log.info("learning %s: %s", model, words)
        elif not self._ending:
            if log_file is None:
                since = self._failures.get(model, {}).get("since", began)
                self._failures[model] = {"since": since, "why": words}
            log.error("learning %s failed: %s", model, words)
        self._outcomes[model] = {
            **outcome,
            "began": began,
            "seconds": time.time() - began,
        }

    def _fit(self, model: str, log: Path | None = None) -> RefitResult | NoRefit:
        """Return what the process that fits answers: a new version, or why there is none."""
        with self._guard:
            if self._ending:
                raise UnavailableError("the service is ending")
            program = [sys.executable, "-m", __name__]
            pipe = subprocess.PIPE
            environment = {**os.environ, **ONE_THREAD}
            self._process = subprocess.Popen(
                program, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
            )
        order = {
            "store": self.store,
            "model": model,
            "log": str(log or ""),
            "seed": self.engine.store.seed,
        }
        content, said = self._process.communicate(msgspec.json.encode(order))
        code = self._process.returncode
        self._process = None
        if code:
            lines = said.decode(errors="replace").strip().splitlines() or ["no word"]
            raise UnavailableError(
                f"the process that fits ended with code {code}: {lines[-1]}"
            )
        return msgspec.msgpack.decode(content, type=RefitResult | NoRefit)

    def _add(self, model: str, by: str, refit: RefitResult) -> dict[str, Any]:
        """Add what was fitted: a new model, or a version that has learned what happened since."""
        shown = {"note": refit.note, "evaluation": refit.evaluation}
        learner = learner_from_bytes(refit.kind, refit.content, "the new version")
        if refit.base:
            version = add_caught_up(
                self.engine,
                model,
                learner,
                refit.upto,
                base=refit.base if self._activates(refit) else "",
                note=refit.note,
                by=by,
                why=f"learned from its own history, activated {self.plan.activate}",
                through=refit.through,
                evaluation=refit.evaluation,
                made_from=refit.upto,
            )
        else:
            command = commands.add_version(
                model, learner, "logs", note=refit.note, by=by, first=True
            )
            version = self.engine.call(command, alone=True)
        active = self.engine.view().model(model).version == version
        return {"status": "learned", "version": version, "active": active, **shown}

    def _activates(self, refit: RefitResult) -> bool:
        """Return whether the rule of the schedule lets a version take over."""
        if self.plan.activate != "better":
            return self.plan.activate == "always"
        evaluation = refit.evaluation
        known = not evaluation["unknown_because"]
        return bool(
            evaluation["better"]
            or (refit.first_fit and known and not evaluation["worse"])
        )


if __name__ == "__main__":
    main()
