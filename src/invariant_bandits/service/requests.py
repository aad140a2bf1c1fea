"""What can be asked of a service, whatever door it came through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A decision that is asked for.

    Parameters
    ----------
    context : mapping or None
        What all offered actions share.
    labels : sequence of str
        Offered arms by name; with neither labels nor actions, all active arms.
    actions : sequence or None
        What is known of each offered action.
    id : str or None
        The same id again has the same answer, and must be asked with the same context and actions.
    scores : bool
        Whether expected rewards are wanted.
    deferred : bool
        Whether the decision counts only once it is activated.
    extra : mapping or None
        What the door wants to find again, kept with the decision.
    """

    model: str = "default"
    context: Mapping[str, Any] | None = None
    labels: Sequence[str] = ()
    actions: Sequence[Any] | None = None
    id: str | None = None
    scores: bool = False
    deferred: bool = False
    protocol: str = "v1"
    extra: dict[str, Any] | None = None


@dataclass(frozen=True)
class Given:
    """A reward that came; `request` tells a repeated call from another reward.

    Without a model it is for the only one that has decided under the id, see `State.owner`.
    """

    id: str
    value: float
    request: str | None = None
    model: str | None = None
