"""Refitting: a new version of a model from its own history, judged on the latest decisions.

As a program, it is the process that fits: standard input says what, and the new version goes to standard
output. It is a process of its own, of low priority and one thread, and only reads the store: the service
never waits for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

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
from invariant_bandits.service.events import ArmAdded, ArmRetired, Closed, Decided
from invariant_bandits.service.history.decisions import (
    Layout,
    Roles,
    SettledDecision,
    events_between,
    layout_of,
    learned_decisions,
)
from invariant_bandits.service.history.export import write_parquet
from invariant_bandits.service.learners.base import Learner, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.replay import restore
from invariant_bandits.service.state import Records, teach
from invariant_bandits.service.store.open_store import open_store

FEWEST_ROUNDS = 200
"""New decisions below which nothing is fitted."""
FEWEST_WINDOWS, MOST_WINDOWS = 4, 24
FEWEST_PER_WINDOW = 100
MOST_FEATURES = 64
"""Of a model that began empty, so many features are fitted, the most frequent ones."""
FEWEST_USES = 20
LOWEST_PRIORITY = 15
"""How nice the process that fits is to others."""

Decisions = Callable[[], Iterable[SettledDecision]]
"""Gives settled decisions from the first on, whenever it is called."""


def made_from(learner: Learner, decisions: Decisions, count: int) -> tuple[Learner, str]:
    """A new learner, and what it was made of in words.

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
    if isinstance(learner, OpenLearner):
        return _fitted(learner, decisions, count)
    raise InputError(f"model: a learner of kind {learner.kind!r} is not fitted to its history")


# -- models that were fitted --


def _updated(learner: FittedLearner, decisions: Decisions) -> tuple[Learner, str]:
    """The model with the new decisions as further windows, by their number: times of the old log may be
    of any kind.
    """
    own, layout = learner.model, layout_of(decisions, learner)
    layout = replace(layout, chosen_only=layout.rows and not own.schema.has_offered)
    timeless = replace(own, schema=layout.schema_like(own.schema), moments=replace(own.moments, edges=None))
    windows = max(round(layout.decisions * own.moments.windows / own.moments.rounds), 1)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        path = Path(folder) / "decisions.parquet"
        write_parquet(path, layout, decisions())
        with _without_convergence_warnings():
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
    layout = Layout(True, True, Roles())
    uses: Counter[str] = Counter()
    for settled in decisions():
        uses.update(name for name, value in layout.of_action(settled, settled.decided.place).items() if value)
    names = tuple(name for name, often in uses.most_common(MOST_FEATURES) if often >= FEWEST_USES)
    if not names:
        raise InputError(f"history: no feature occurs in {FEWEST_USES} decisions")
    windows = min(count // max(FEWEST_PER_WINDOW, fewest_rounds(len(names))), MOST_WINDOWS)
    if windows < FEWEST_WINDOWS:
        needed = FEWEST_WINDOWS * max(FEWEST_PER_WINDOW, fewest_rounds(len(names)))
        raise InputError(f"history: {count:,} decisions, {needed:,} are needed for {len(names)} features")
    moments = _moments(layout, names, decisions, count, windows)
    usable = prune(moments, FeatureMap(tuple(Column(name) for name in names)))
    usable_names = usable.feature_map.names
    with _without_convergence_warnings():
        policy = AutoISD.from_history(usable.moments)
    made = OpenLearner(
        learner.arms,
        learner.columns,
        limit=learner.limit,
        seed=learner.seed,
        places=usable_names,
        policy=policy,
    )
    words = f"{count:,} decisions in {usable.moments.windows} windows, "
    words += f"{len(usable_names)} of {len(uses)} features"
    return made, words


def _moments(
    layout: Layout, names: Sequence[str], decisions: Decisions, count: int, windows: int
) -> WindowedMoments:
    """Moments of what was chosen."""
    moments: WindowedMoments | None = None
    source = iter(decisions())
    for window in range(windows):
        rows, rewards = [], []
        for settled in islice(source, count * (window + 1) // windows - count * window // windows):
            rows.append(_row(layout.of_action(settled, settled.decided.place), names))
            rewards.append(settled.reward)
        part = WindowedMoments.from_arrays(np.array(rows), np.array(rewards), windows=1)
        moments = part if moments is None else moments.followed_by(part)
    assert moments is not None
    return moments


def _row(numbers: dict[str, float], names: Sequence[str]) -> list[float]:
    return [numbers.get(name, 0.0) for name in names]


@contextmanager
def _without_convergence_warnings() -> Iterator[None]:
    """Ignore that a search stopped a little early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def follow(
    learner: Learner, store: Any, model: str, first: int, last: int, judge: Judge | None = None
) -> None:
    """Teach a learner the events of a model from number `first` to before `last`; a judge sees them before.

    It then stands where it would if it had been the active version in between, with the same bits.
    """
    records = Records(store.of_key)
    for _, event in events_between(store, first, last):
        if getattr(event, "model", None) != model:
            continue
        if isinstance(event, Decided):
            records.take(event, fresh=True)
            if judge is not None:
                judge.decided(learner, event)
            learner.seen(event.context, event.labels, event.actions)
            continue
        with suppress(InputError):  # as when it serves: a round that it cannot take is not learned
            if isinstance(event, Closed) and event.value is not None:
                record = records.of(event)
                if record is not None and record.decided is not None:
                    if judge is not None:
                        judge.settled(event.id, event.value)
                    teach(learner, record.decided, event.value)
            elif isinstance(event, ArmAdded):
                learner.add_arm(event.label, event.features)
            elif isinstance(event, ArmRetired):
                learner.retire_arm(event.label)


FEWEST_JUDGED = 200
"""Decisions of the running version below which nothing is concluded."""
MOST_WAITING = 100_000


class Judge:
    """Gathers, decision by decision, what a new version would have earned more.

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
        """The running version decided: what would the new one have done?"""
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
        """What the running version earned with a decision."""
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
    state = restore(store)
    served, upto = state.model(model), state.seq
    base = served.versions[served.version]
    first = base.through if isinstance(served.learner, FittedLearner) else 0
    settled = array("q", (seq for seq, _ in learned_decisions(store, model, first, upto)))
    judged = max(FEWEST_JUDGED, int(JUDGED_SHARE * len(settled)))
    later = judged + max(FEWEST_SETTLING, int(SETTLING_SHARE * len(settled)))
    if len(settled) <= later:
        raise InputError(f"history: {len(settled):,} decisions are settled, more than {later} are needed")
    count = len(settled) - later
    through, judged_from = settled[count], settled[len(settled) - judged]
    learner, words = made_from(
        served.learner,
        lambda: (settled for _, settled in learned_decisions(store, model, first, through)),
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


if __name__ == "__main__":
    main()
