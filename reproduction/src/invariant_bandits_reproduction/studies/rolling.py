"""Rolling origins: fit before each of many dates, and play the rounds that follow, where every reward is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, probability, whole_number
from invariant_bandits.evaluation.comparison import COMPARED
from invariant_bandits.evaluation.estimators import played_rows
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy_specs

BAD_ORIGINS = (
    "origins must be at least 3 different whole numbers from 1 to {last}, so that the longest horizon,"
    " {longest}, fits into the {rounds} rounds, got {origins}"
)


@dataclass(frozen=True)
class PairedDifference:
    """Mean over origins of one policy's mean reward minus another's.

    Attributes
    ----------
    policy, reference : str
        Whose reward, less whose.
    horizon : int
        Rounds played from each origin.
    mean : float
        Of the differences, per round.
    standard_error : float
        Of the mean.
    origins : int
        Number of origins.
    """

    policy: str
    reference: str
    horizon: int
    mean: float
    standard_error: float
    origins: int


@dataclass(frozen=True, eq=False)
class Rolling:
    """What every policy earned from every origin.

    Attributes
    ----------
    origins : array of int, shape (N,)
        First round played.
    dates : array, shape (N,), or None
        Its time, if known.
    horizons : tuple of int, length H
        Rounds played.
    rewards : policy -> array, shape (N, H)
        Mean reward per round.
    average : array, shape (N, H)
        Mean over all offered actions of those rounds, what a random choice would have earned.
    chosen_rows : policy -> array of int, shape (N, rounds of the longest horizon)
        Rows of the feedback's offered actions that were chosen.
    """

    origins: Array
    dates: Array | None
    horizons: tuple[int, ...]
    rewards: Mapping[str, Array]
    average: Array
    chosen_rows: Mapping[str, Array]

    def rows(self) -> list[dict[str, Any]]:
        """One line per origin, horizon and policy."""
        dates = self.origins if self.dates is None else self.dates
        return [
            {
                "date": dates[i],
                "origin": int(start),
                "horizon": horizon,
                "policy": name,
                "reward": float(means[i, h]),
            }
            for i, start in enumerate(self.origins)
            for h, horizon in enumerate(self.horizons)
            for name, means in self.rewards.items()
        ]

    def difference(self, policy: str, reference: str) -> list[PairedDifference]:
        """Paired differences, one per horizon."""
        for name in (policy, reference):
            if name not in self.rewards:
                raise InputError(
                    f"policy must be one of {', '.join(self.rewards)}, got {name!r}"
                )
        result = []
        for h, horizon in enumerate(self.horizons):
            values = self.rewards[policy][:, h] - self.rewards[reference][:, h]
            about = (
                float(values.mean()),
                standard_error(values, self.origins, horizon),
                len(values),
            )
            result.append(PairedDifference(policy, reference, horizon, *about))
        return result

    def summary(self, reference: str | None = None) -> str:
        """A table a person can read: mean gain over a random choice, and the difference to `reference`."""
        reference = next(iter(self.rewards)) if reference is None else reference
        head = f"{'gain over a random choice':<26}" + "".join(
            f"{h:>12,} rounds" for h in self.horizons
        )
        about = f"{len(self.origins)} origins; in brackets: difference to {reference} ± standard error"
        lines = [about, head]
        for name, means in self.rewards.items():
            gains = (means - self.average).mean(axis=0)
            lines.append(f"{name:<26}" + "".join(f"{gain:>19.3f}" for gain in gains))
            if name != reference:
                pairs = self.difference(name, reference)
                parts = [
                    f"({pair.mean:+.3f} ± {pair.standard_error:.3f})" for pair in pairs
                ]
                lines.append(" " * 26 + "".join(f"{part:>19}" for part in parts))
        return "\n".join(lines)


def standard_error(values: Array, origins: Array, horizon: int) -> float:
    """Standard error of the mean of values that come from overlapping stretches of rounds.

    Two origins d rounds apart share the part 1 − d/horizon of their rounds, which is taken as the correlation
    ρ of their values. With A = Σ_ij ρ_ij / N, the mean has variance σ²A/N, and the sample variance has mean
    σ²(N − A)/(N − 1). Dependence beyond shared rounds, such as what two fits have in common, is not allowed
    for.

    Parameters
    ----------
    values : array, shape (N,)
        One per origin.
    origins : array of int, shape (N,)
        First round of each.
    horizon : int
        Rounds played from each.
    """
    n = len(values)
    apart = np.abs(origins[:, None] - origins[None, :])
    inflation = float(np.maximum(0.0, 1.0 - apart / horizon).sum()) / n
    return float(
        values.std(ddof=1) * np.sqrt((n - 1) / (n - inflation) * inflation / n)
    )


def rolling_origins(
    feedback: Feedback,
    policies: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    origins: int | Sequence[int] = 20,
    horizons: Sequence[int] = (100, 500, 2000),
    first: float = 0.5,
    windows: int = 8,
    past_of: Callable[[Feedback, int], Past] | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Rolling:
    """From each origin fit every policy on all rounds before it and play the rounds that follow.

    Parameters
    ----------
    feedback : Feedback
        Rounds whose rewards are all known.
    policies : name -> maker, or registered names, optional
        As in `compare`.
    origins : int or sequence of int
        How many, evenly spaced from `first` of the rounds to the last that leaves the longest horizon, or the
        rounds themselves.
    horizons : sequence of int
        Rounds to play. One play of the longest gives the shorter ones too.
    first : float
        Share of the rounds that lie before the first origin, strictly between 0 and 1.
    windows : int
        Number of windows of the rounds before an origin.
    past_of : callable, optional
        (rounds before the origin, longest horizon) -> Past, instead of `Past.from_feedback`.
    jobs : int
        Processes, forked.
    progress : callable, optional
        Called with (origins done, all).

    Returns
    -------
    Rolling
        What every policy earned from every origin.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(600, 3, 2))
    >>> feedback = ib.evaluation.Feedback.from_full_information(offered, offered @ [1.0, -1.0], seed=0)
    >>> result = rolling_origins(feedback, ["linucb", "uniform"], origins=4, horizons=[50, 100], windows=4)
    >>> result.origins.tolist(), result.rewards["linucb"].shape
    ([300, 367, 433, 500], (4, 2))
    >>> result.difference("linucb", "uniform")[1].mean > 0
    True
    """
    specs = policy_specs(COMPARED if policies is None else policies)
    lengths = tuple(
        sorted({whole_number("horizons", horizon, 1) for horizon in horizons})
    )
    if not lengths:
        raise InputError("horizons is empty: at least one is needed")
    if feedback.offered_rewards is None:
        raise InputError(
            "offered_rewards are missing: rolling origins need those of all offered actions"
        )
    starts = _checked_origins(origins, first, lengths[-1], feedback.rounds)
    whole_number("jobs", jobs, 1)

    def from_origin(start: int) -> dict[str, Array]:
        return play_from(
            feedback,
            specs,
            start,
            start + lengths[-1],
            windows=windows,
            past_of=past_of,
        )

    rows = {
        name: np.empty((len(starts), lengths[-1]), dtype=np.int64) for name in specs
    }
    for done, (index, chosen) in enumerate(
        map_unordered(from_origin, starts.tolist(), jobs), start=1
    ):
        for name, values in chosen.items():
            rows[name][index] = values
        if progress is not None:
            progress(done, len(starts))
    every = feedback.sums_per_round(feedback.offered_rewards) / feedback.counts
    return Rolling(
        origins=starts,
        dates=None if feedback.times is None else feedback.times[starts],
        horizons=lengths,
        rewards={
            name: _means(feedback.offered_rewards[chosen], lengths)
            for name, chosen in rows.items()
        },
        average=_means(
            np.stack([every[start : start + lengths[-1]] for start in starts]), lengths
        ),
        chosen_rows=rows,
    )


def play_from(
    feedback: Feedback,
    policies: Mapping[str, Any],
    start: int,
    stop: int,
    *,
    windows: int = 8,
    past_of: Callable[[Feedback, int], Past] | None = None,
) -> dict[str, Array]:
    """What every policy chooses from one origin, fitted on all rounds before it.

    Parameters
    ----------
    feedback : Feedback
        Rounds whose rewards are all known.
    policies : name -> maker
        As in `compare`.
    start, stop : int
        First round played, and the one after the last.
    windows : int
        Into how many the rounds before the origin are cut.
    past_of : callable, optional
        (rounds before the origin, rounds to play) -> Past, instead of `Past.from_feedback`.

    Returns
    -------
    name -> array of int, shape (stop − start,)
        Rows of the feedback's offered actions that were chosen.
    """
    earlier, ahead = feedback.between(0, start), feedback.between(start, stop)
    make = past_of or partial(Past.from_feedback, windows=windows)
    past = make(earlier, stop - start)
    chosen = {}
    for name, spec in policy_specs(policies).items():
        try:
            rows = played_rows(spec.build(past), ahead, baseline=past.baseline)
        except Exception as error:
            error.add_note(f"while playing policy {name!r} from round {start}")
            raise
        chosen[name] = feedback.starts[start] + rows
    return chosen


def _means(values: Array, lengths: tuple[int, ...]) -> Array:
    """Means over the first so many of values (N, n), one column per length (N, H)."""
    return np.stack([values[:, :length].mean(axis=1) for length in lengths], axis=1)


def _checked_origins(
    origins: int | Sequence[int], first: float, longest: int, rounds: int
) -> Array:
    if isinstance(origins, int | np.integer):
        begin = round(probability("first", first) * rounds)
        spaced = np.linspace(
            begin, rounds - longest, whole_number("origins", origins, 3)
        )
        origins = spaced.round().astype(np.int64).tolist()
    starts = np.unique(np.asarray(origins))
    whole = starts.dtype.kind in "iu" and len(starts) >= 3
    if not whole or starts[0] < 1 or starts[-1] + longest > rounds:
        about = {
            "last": rounds - longest,
            "longest": longest,
            "rounds": rounds,
            "origins": origins,
        }
        raise InputError(BAD_ORIGINS.format(**about))
    return starts
