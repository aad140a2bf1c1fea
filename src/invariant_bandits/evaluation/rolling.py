"""Rolling origins: at each of many dates, fit on everything before, play what follows, and pair the policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, probability, whole_number
from invariant_bandits.evaluation.contenders import Maker, Past, checked_policies, made
from invariant_bandits.evaluation.playing import played_rewards
from invariant_bandits.logs.feedback import Feedback, Whole
from invariant_bandits.parallel import finished

HORIZONS = (100, 500, 2000)


@dataclass(frozen=True)
class PairedDifference:
    """Mean over origins of one policy's mean reward minus another's, and its standard error.

    independent_origins: how many origins that share no rounds these are worth; see `standard_error`.
    """

    policy: str
    reference: str
    horizon: int
    mean: float
    standard_error: float
    origins: int
    independent_origins: float


@dataclass(frozen=True, eq=False)
class Rolling:
    """What every policy earned from every origin.

    origins (N,): first round played; dates (N,): its time, if known; horizons (H,): rounds played;
    rewards: policy -> (N, H) mean reward per round; average (N, H): mean over all offered actions of those rounds, what
    a random choice would have earned.
    """

    origins: Whole
    dates: Whole | None
    horizons: tuple[int, ...]
    rewards: Mapping[str, Array]
    average: Array

    def rows(self) -> list[dict[str, Any]]:
        """One line per origin, horizon and policy."""
        dates = self.origins if self.dates is None else self.dates
        return [
            {"date": dates[i], "origin": int(start), "horizon": horizon, "policy": name, "reward": float(means[i, h])}
            for i, start in enumerate(self.origins)
            for h, horizon in enumerate(self.horizons)
            for name, means in self.rewards.items()
        ]

    def difference(self, policy: str, reference: str) -> list[PairedDifference]:
        """Paired differences, one per horizon."""
        for name in (policy, reference):
            if name not in self.rewards:
                raise InputError(f"policy must be one of {', '.join(self.rewards)}, got {name!r}")
        result = []
        for h, horizon in enumerate(self.horizons):
            values = self.rewards[policy][:, h] - self.rewards[reference][:, h]
            error, worth = standard_error(values, self.origins, horizon)
            result.append(PairedDifference(policy, reference, horizon, float(values.mean()), error, len(values), worth))
        return result

    def summary(self, reference: str | None = None) -> str:
        """A table a person can read: mean gain over a random choice, and the difference to `reference`."""
        reference = next(iter(self.rewards)) if reference is None else reference
        head = f"{'gain over a random choice':<26}" + "".join(f"{h:>12,} rounds" for h in self.horizons)
        lines = [f"{len(self.origins)} origins; in brackets: difference to {reference} ± standard error", head]
        for name, means in self.rewards.items():
            gains = (means - self.average).mean(axis=0)
            lines.append(f"{name:<26}" + "".join(f"{gain:>19.3f}" for gain in gains))
            if name != reference:
                parts = [f"({d.mean:+.3f} ± {d.standard_error:.3f})" for d in self.difference(name, reference)]
                lines.append(" " * 26 + "".join(f"{part:>19}" for part in parts))
        return "\n".join(lines)


def standard_error(values: Array, origins: Whole, horizon: int) -> tuple[float, float]:
    """Standard error of the mean of values (N,), and how many independent ones they are worth.

    Two origins d rounds apart share the part 1 − d/horizon of their rounds, which is taken as the correlation ρ of
    their values. With A = Σ_ij ρ_ij / N, the mean has variance σ²A/N, and the sample variance has mean
    σ²(N − A)/(N − 1). Dependence beyond shared rounds, such as what two fits have in common, is not allowed
    for.
    """
    n = len(values)
    apart = np.abs(origins[:, None] - origins[None, :])
    inflation = float(np.maximum(0.0, 1.0 - apart / horizon).sum()) / n
    return float(values.std(ddof=1) * np.sqrt((n - 1) / (n - inflation) * inflation / n)), n / inflation


def rolling_origins(
    feedback: Feedback,
    policies: Mapping[str, Maker] | None = None,
    *,
    origins: int | Sequence[int] = 20,
    horizons: Sequence[int] = HORIZONS,
    first: float = 0.5,
    windows: int = 8,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Rolling:
    """From each origin fit every policy on all rounds before it and play the rounds that follow; needs all rewards.

    policies: name -> maker, called with the Past; the default ones if not given. origins: how many, evenly spaced from
    `first` of the rounds to the last that leaves the longest horizon, or the rounds themselves. One play of the
    longest horizon gives the shorter ones too. jobs: processes, forked. progress: called with (origins done, all).
    """
    makers = checked_policies(policies)
    lengths = tuple(sorted({whole_number("horizons", horizon, 1) for horizon in horizons}))
    if not lengths:
        raise InputError("horizons is empty: at least one is needed")
    if feedback.offered_rewards is None:
        raise InputError("offered_rewards are missing: rolling origins need the rewards of all offered actions")
    starts = _checked_origins(origins, first, lengths[-1], feedback.rounds)

    def from_origin(start: int) -> tuple[dict[str, Array], Array]:
        ahead = feedback.between(start, start + lengths[-1])
        past, baseline = Past.of(feedback.between(0, start), lengths[-1], windows)
        earned = {}
        for name, maker in makers.items():
            try:
                earned[name] = _means(played_rewards(made(maker, past), ahead, baseline=baseline), lengths)
            except Exception as error:
                error.add_note(f"while playing policy {name!r} from round {start}")
                raise
        return earned, _means(ahead.sums_per_round(np.asarray(ahead.offered_rewards)) / ahead.counts, lengths)

    shape = (len(starts), len(lengths))
    rewards, average = {name: np.empty(shape) for name in makers}, np.empty(shape)
    whole_number("jobs", jobs, 1)
    for done, (index, (earned, mean)) in enumerate(finished(from_origin, starts.tolist(), jobs), start=1):
        average[index] = mean
        for name, values in earned.items():
            rewards[name][index] = values
        if progress is not None:
            progress(done, len(starts))
    dates = None if feedback.times is None else feedback.times[starts]
    return Rolling(starts, dates, lengths, rewards, average)


def _means(values: Array, lengths: tuple[int, ...]) -> Array:
    """Means of the first so many of values (n,)."""
    return np.array([values[:length].mean() for length in lengths])


def _checked_origins(origins: int | Sequence[int], first: float, longest: int, rounds: int) -> Whole:
    if isinstance(origins, int | np.integer):
        number = whole_number("origins", origins, 3)
        begin = round(probability("first", first) * rounds)
        if begin + longest > rounds:
            raise InputError(
                f"the longest horizon, {longest}, does not fit into the {rounds - begin} rounds after first"
            )
        starts = np.unique(np.linspace(begin, rounds - longest, number).round().astype(np.int64))
    else:
        starts = np.unique(np.asarray(origins))
        if starts.dtype.kind not in "iu" or len(starts) != len(origins):
            raise InputError("origins must be different whole numbers")
    if len(starts) < 3:
        raise InputError(f"at least 3 different origins are needed for a standard error, got {len(starts)}")
    if starts[0] < 1 or starts[-1] + longest > rounds:
        raise InputError(f"origins must lie from 1 to {rounds - longest}, got {starts[0]} to {starts[-1]}")
    return starts
