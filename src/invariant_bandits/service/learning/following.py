"""A learner is taught what happened to a model, in the order of the events."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from invariant_bandits.checks import InputError
from invariant_bandits.service.events import ArmAdded, ArmRetired, Closed, Decided, decision_key, decoded
from invariant_bandits.service.history.settled import rows_in_pieces
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.records import Records


class Watcher(Protocol):
    """Is told of decisions before the learner sees them, and of their rewards before it learns them."""

    def decided(self, learner: Learner, event: Decided) -> None:
        """A decision was made."""

    def settled(self, id: str, reward: float) -> None:
        """It is about to be learned."""


def follow(learner: Learner, store: Any, model: str, first: int, last: int, watcher: Watcher | None = None) -> None:
    """Teach a learner the events of a model from number `first` to before `last`.

    It then stands where it would if it had been the active version in between, with the same bits.
    """
    records = Records(store.of_key)
    for row in rows_in_pieces(store, first, last):
        event = decoded(row.event)
        if getattr(event, "model", None) != model:
            continue
        if isinstance(event, Decided):
            records.take(event, fresh=True)
            if watcher is not None:
                watcher.decided(learner, event)
            learner.seen(event.context, event.labels, event.actions)
        elif isinstance(event, Closed) and event.value is not None:
            record = records.find(decision_key(event.id, model))
            if record is None or record.decided is None:
                continue
            if watcher is not None:
                watcher.settled(event.id, event.value)
            one = record.decided
            with suppress(InputError):  # as when it serves: a round that it cannot take is not learned
                learner.learn(one.context, one.labels, one.actions, one.place, event.value)
        elif isinstance(event, ArmAdded):
            with suppress(InputError):
                learner.add_arm(event.label, event.features)
        elif isinstance(event, ArmRetired):
            with suppress(InputError):
                learner.retire_arm(event.label)
