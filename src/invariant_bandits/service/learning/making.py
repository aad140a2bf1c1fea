"""A new version of a model from its own history: fitted models get new windows, empty ones become AutoISD."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.logs.features import Column, FeatureMap, fewest_rounds, prune
from invariant_bandits.model.update import update_model
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.past import MOST_SETS
from invariant_bandits.service.history.layout import Layout, Roles, layout_of
from invariant_bandits.service.history.parquet import write_parquet
from invariant_bandits.service.history.settled import Settled
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner

FEWEST_ROUNDS = 200
"""New decisions below which nothing is fitted."""
FEWEST_WINDOWS, MOST_WINDOWS = 4, 24
FEWEST_PER_WINDOW = 100
MOST_FEATURES = 64
"""Of a model that began empty, so many features are fitted, the most frequent ones."""
FEWEST_USES = 20

Decisions = Callable[[], Iterable[Settled]]
"""Settled decisions from the first on, whenever it is called."""


def made_from(learner: Learner, decisions: Decisions, count: int) -> tuple[Learner, str]:
    """A new learner, and what it was made of in words.

    Parameters
    ----------
    learner : Learner
        The running version; it is left as it is.
    decisions : callable
        Gives the settled decisions that are new to the history of `learner`, or all there are of a model that began
        empty, in the order in which they were learned.
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
    """The model with the new decisions as further windows, by their number: times of the old log may be of any kind."""
    own, layout = learner.model, layout_of(decisions, learner)
    layout = replace(layout, chosen_only=layout.rows and not own.schema.has_offered)
    timeless = replace(own, schema=layout.schema_like(own.schema), moments=replace(own.moments, edges=None))
    windows = max(round(layout.decisions * own.moments.windows / own.moments.rounds), 1)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        path = Path(folder) / "decisions.parquet"
        write_parquet(path, layout, decisions())
        with _quiet():
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
    for one in decisions():
        uses.update(name for name, value in layout.of_action(one, one.decided.place).items() if value)
    names = tuple(name for name, often in uses.most_common(MOST_FEATURES) if often >= FEWEST_USES)
    if not names:
        raise InputError(f"history: no feature occurs in {FEWEST_USES} decisions")
    windows = min(count // max(FEWEST_PER_WINDOW, fewest_rounds(len(names))), MOST_WINDOWS)
    if windows < FEWEST_WINDOWS:
        needed = FEWEST_WINDOWS * max(FEWEST_PER_WINDOW, fewest_rounds(len(names)))
        raise InputError(f"history: {count:,} decisions, {needed:,} are needed for {len(names)} features")
    moments, sets = _moments(layout, names, decisions, count, windows)
    usable = prune(moments, FeatureMap(tuple(Column(name) for name in names)))
    kept = usable.feature_map.names
    places = np.array([names.index(name) for name in kept])
    with _quiet():
        policy = AutoISD.from_history(usable.moments, offered=[one[:, places] for one in sets])
    made = OpenLearner(
        learner.arms,
        learner.columns,
        limit=learner.limit,
        seed=learner.seed,
        places={name: place for place, name in enumerate(kept)},
        policy=policy,
    )
    words = f"{count:,} decisions in {usable.moments.windows} windows, {len(kept)} of {len(uses)} features"
    return made, words


def _moments(
    layout: Layout, names: Sequence[str], decisions: Decisions, count: int, windows: int
) -> tuple[WindowedMoments, list[Array]]:
    """Moments of what was chosen, and some of the offered sets."""
    moments: WindowedMoments | None = None
    sets: list[Array] = []
    source, step = enumerate(decisions()), max(count // MOST_SETS, 1)
    for window in range(windows):
        rows, rewards = [], []
        for place, one in islice(source, count * (window + 1) // windows - count * window // windows):
            rows.append(_row(layout.of_action(one, one.decided.place), names))
            rewards.append(one.reward)
            if place % step == 0 and len(sets) < MOST_SETS:
                offered = range(len(one.decided.propensities))
                sets.append(np.array([_row(layout.of_action(one, action), names) for action in offered]))
        one_window = WindowedMoments.from_arrays(np.array(rows), np.array(rewards), windows=1)
        moments = one_window if moments is None else moments.followed_by(one_window)
    assert moments is not None
    return moments, sets


def _row(numbers: dict[str, float], names: Sequence[str]) -> list[float]:
    return [numbers.get(name, 0.0) for name in names]


class _quiet(warnings.catch_warnings):  # noqa: N801 - reads like a verb
    """Without the warnings of a search that stopped a little early."""

    def __enter__(self) -> Any:
        told = super().__enter__()
        warnings.simplefilter("ignore", ConvergenceWarning)
        return told
