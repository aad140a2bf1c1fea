"""Rolling origins: fit before each of many dates, and play the rounds that follow, where every reward is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.evaluation.estimators import played_rows
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy_specs
from invariant_bandits_reproduction.studies.harness import gather


def play_from(
    feedback: Feedback,
    policies: Mapping[str, Any],
    start: int,
    stop: int,
    *,
    past_of: Callable[[Feedback, int], Past] = Past.from_feedback,
) -> dict[str, Array]:
    """Return what every policy chooses from one origin, fitted on all rounds before it.

    Parameters
    ----------
    feedback : Feedback
        Rounds whose rewards are all known.
    policies : name -> maker
        As in `compare`.
    start, stop : int
        First round played, and the one after the last.
    past_of : callable
        (rounds before the origin, rounds to play) -> Past.

    Returns
    -------
    name -> array of int, shape (stop − start,)
        Rows of the feedback's offered actions that were chosen.
    """
    ahead = feedback.between(start, stop)
    past = past_of(feedback.between(0, start), stop - start)
    chosen = {}
    for name, spec in policy_specs(policies).items():
        try:
            rows = played_rows(spec.build(past), ahead, baseline=past.baseline)
        except Exception as error:
            error.add_note(f"while playing policy {name!r} from round {start}")
            raise
        chosen[name] = feedback.starts[start] + rows
    return chosen


def rolling_origins(
    feedback: Feedback,
    policies: Mapping[str, Any],
    *,
    origins: Sequence[int],
    horizon: int,
    past_of: Callable[[Feedback, int], Past] = Past.from_feedback,
    jobs: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Array]:
    """Return the rows (origins, horizon) that every policy chooses from each origin; see `play_from`."""

    def from_origin(start: int) -> dict[str, Array]:
        return play_from(feedback, policies, start, start + horizon, past_of=past_of)

    played = gather(from_origin, origins, jobs, progress)
    return {name: np.stack([chosen[name] for chosen in played]) for name in policies}
