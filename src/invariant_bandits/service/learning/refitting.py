"""The whole of background learning that needs no service: from a store that is read to a version that was judged."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.service.history.settled import in_order_of_settling
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import OpenLearner
from invariant_bandits.service.learning.following import follow
from invariant_bandits.service.learning.judging import FEWEST_JUDGED, Judge
from invariant_bandits.service.learning.making import made_from
from invariant_bandits.service.replaying import restored

JUDGED_SHARE = 0.25
"""Share of the decisions, the latest ones, that a new version is judged on."""
SETTLING_SHARE, FEWEST_SETTLING = 0.1, 100
"""Share before these that it learns as they come without being judged: what a new policy tries at first is no part of
what it will do, the less as the log seldom plays what it wants to try."""


@dataclass(frozen=True)
class Learned:
    """A new version that was judged.

    Parameters
    ----------
    learner : Learner
        It has learned the events before number `upto`.
    base : str
        The version it was compared with.
    through : int
        Settled decisions before this event are windows of its history; it learned the later ones as they came.
    upto : int
    words : str
        What it was made of.
    first_fit : bool
        Whether the model had begun empty and was not fitted before.
    evaluation : dict
        The verdict, plain values.
    """

    learner: Learner
    base: str
    through: int
    upto: int
    words: str
    first_fit: bool
    evaluation: dict[str, Any]


def learn_from_history(store: Any, model: str) -> Learned:
    """Fit a new version of a model to its older decisions, and judge it on the latest, which it learns as they come.

    In between it learns some without being judged.

    Parameters
    ----------
    store : Store
        Opened for reading; it may grow meanwhile.
    model : str
    """
    state = restored(store)
    served, upto = state.model(model), state.seq
    base = served.versions[served.version]
    first = base.through if isinstance(served.learner, FittedLearner) else 0
    settled = array("q", (seq for seq, _ in in_order_of_settling(store, model, first, upto)))
    judged = max(FEWEST_JUDGED, int(JUDGED_SHARE * len(settled)))
    later = judged + max(FEWEST_SETTLING, int(SETTLING_SHARE * len(settled)))
    if len(settled) <= later:
        raise InputError(f"history: {len(settled):,} decisions are settled, more than {later} are needed")
    count = len(settled) - later
    through, judged_from = settled[count], settled[len(settled) - judged]
    learner, words = made_from(
        served.learner, lambda: (one for _, one in in_order_of_settling(store, model, first, through)), count
    )
    judge = Judge(base.version, served.configuration.floor)
    follow(learner, store, model, through, judged_from)
    follow(learner, store, model, judged_from, upto, judge)
    first_fit = isinstance(served.learner, OpenLearner) and served.learner.grows
    return Learned(learner, base.version, through, upto, words, first_fit, judge.verdict().to_plain())
