"""Rehearsal: before the first round AutoISD plays against its own doubts and keeps the exploration that did
best.

A world is drawn from the members (one of them by its weight, then coefficients from it, along its walk), its
rounds are offered sets that are known, and every candidate plays the same worlds. What is best depends on the
offered sets and on the horizon: with varied contexts hardly any exploration pays, with a few actions that are
always the same, much does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, whole_number
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.policies.hypotheses import Member
from invariant_bandits.policies.past import Past

MOST_SETS = 256


@dataclass(frozen=True, eq=False)
class OfferedSets:
    """Features of the actions that were, or will be, offered together.

    Parameters
    ----------
    rows : array, shape (rows, p)
        Features of all actions, set after set.
    starts : array of int, shape (n + 1,)
        Set i is rows[starts[i] : starts[i + 1]].

    >>> import numpy as np
    >>> OfferedSets.of(np.ones((5, 2))), OfferedSets.of(np.ones((300, 5, 2)))
    (OfferedSets(1 set, 5 actions), OfferedSets(256 sets, 5 actions))
    """

    rows: Array
    starts: np.ndarray[Any, Any]

    @classmethod
    def of(cls, offered: Any, dim: int | None = None) -> OfferedSets:
        """At most 256 sets, evenly spread.

        Parameters
        ----------
        offered : OfferedSets, array of shape (K, p) or (n, K, p), or sequence of arrays of shape (K_i, p)
            One set that never changes; sets of equal size; sets of any size.
        dim : int, optional
            p, if it is to be checked.
        """
        if isinstance(offered, OfferedSets):
            return offered
        sets = _as_sets(offered, dim)
        chosen = [sets[i] for i in _spread(len(sets))]
        starts = np.concatenate([[0], np.cumsum([len(actions) for actions in chosen])]).astype(np.int64)
        return cls(np.ascontiguousarray(np.concatenate(chosen)), starts)

    @classmethod
    def from_past(cls, past: Past) -> OfferedSets | None:
        """Actions that rounds to come may offer: the past's, else the logs' if they are at hand, else
        None.
        """
        sets = past.offered() if callable(past.offered) else past.offered
        if sets is not None:
            return cls.of(sets)
        offered, counts = getattr(past.logs, "offered", None), getattr(past.logs, "counts", None)
        if offered is None:
            return None
        return cls.of(offered) if counts is None else cls.of_rows(offered, counts)

    @classmethod
    def of_rows(cls, rows: Array, counts: Any) -> OfferedSets:
        """At most 256 sets, evenly spread over those in rows (rows, p), counts (n,) actions each."""
        ends = np.cumsum(counts)
        return cls.of([rows[ends[i] - counts[i] : ends[i]] for i in _spread(len(ends))])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        sizes = np.unique(np.diff(self.starts))
        actions = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return f"OfferedSets({len(self)} set{'s' if len(self) > 1 else ''}, {actions} actions)"


def _as_sets(offered: Any, dim: int | None) -> list[Array]:
    p = "p" if dim is None else dim
    axes = getattr(offered, "ndim", None)
    if axes == 2:
        return [finite_array("offered", offered, ("K", p))]
    if axes == 3:
        return list(finite_array("offered", offered, ("n", "K", p)))
    try:
        sets = [finite_array(f"offered[{i}]", actions, ("K", p)) for i, actions in enumerate(offered)]
    except TypeError:
        raise InputError(
            "offered must be an array (K, p) or (n, K, p), or a sequence of arrays (K, p)"
        ) from None
    if not sets or any(len(actions) == 0 for actions in sets):
        raise InputError("offered must have at least one set, and every set at least one action")
    return sets


def _spread(count: int) -> np.ndarray[Any, Any]:
    """At most MOST_SETS whole numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_SETS)).round().astype(np.int64))


EXPLORATIONS = (0.05, 0.1, 0.25, 0.5)
EAGER_EXPLORATIONS = (0.1, 0.25)
LONGEST = 2000
WORK = 4e8
"""Multiplications and additions of all candidates together: less than a second."""
FEWEST_WORLDS, MOST_WORLDS = 6, 40
GOLDEN = 0.6180339887498949


class Trial(NamedTuple):
    """What a candidate did: its settings, mean regret per rehearsed world, its standard error, and how
    many worlds.
    """

    exploration: float
    tests: str
    regret: float
    error: float
    worlds: int


@dataclass(frozen=True)
class Rehearsal:
    """The table of a rehearsal.

    Attributes
    ----------
    trials : tuple of Trial
        All candidates; those that fell behind played fewer worlds.
    chosen : int
        Which of them AutoISD plays with.
    rounds : int
        Length of a rehearsed world.
    sets : int
        How many offered sets it used.
    """

    trials: tuple[Trial, ...]
    chosen: int
    rounds: int
    sets: int

    @property
    def exploration(self) -> float:
        """The factor on the widths that did best."""
        return self.trials[self.chosen].exploration

    @property
    def tests(self) -> str:
        """When to test neglected actions, as it did best."""
        return self.trials[self.chosen].tests

    def __str__(self) -> str:
        lines = [
            f"Rehearsed {self.rounds:,} rounds on {self.sets} offered set{'s' if self.sets > 1 else ''}:"
        ]
        for i, trial in enumerate(self.trials):
            mark = "  <- plays" if i == self.chosen else ""
            lines.append(
                f"  exploration {trial.exploration:<5g} tests {trial.tests:<8}"
                f" regret {trial.regret:7.1f} ± {trial.error:.1f}"
                f" ({trial.worlds} worlds){mark}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "trials": [list(trial) for trial in self.trials]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Rehearsal:
        """What `to_dict` made."""
        trials = tuple(
            Trial(float(e), str(t), float(r), float(s), int(n)) for e, t, r, s, n in values["trials"]
        )
        chosen, rounds, sets = (whole_number(name, values[name], 0) for name in ("chosen", "rounds", "sets"))
        if chosen >= len(trials) or not np.isfinite([(trial.regret, trial.error) for trial in trials]).all():
            raise InputError("a rehearsal must be of finite regrets, and choose one of its trials")
        return cls(trials, chosen, rounds, sets)


class World(NamedTuple):
    """Coefficients of the features (T, p), the rounds' sets (T,), and noise (T,), uniform for clicks."""

    truth: Array
    order: np.ndarray[Any, Any]
    luck: Array


def rehearse(policy: Any, members: Sequence[Member], offered: OfferedSets, horizon: int) -> Rehearsal:
    """Play candidates of exploration and tests against worlds drawn from the policy's own members.

    Successive halving: all candidates play some worlds, the better half plays as many again, and so on to
    two. The best is chosen if it beats the policy's own settings by more than a standard error of the paired
    difference.

    Parameters
    ----------
    policy : AutoISD
        Fresh; it is not changed.
    members : sequence of Member
        What it started from.
    offered : OfferedSets
        What the rounds to come may offer.
    horizon : int
        How many there will be.
    """
    rounds = min(horizon, LONGEST)
    candidates = [(factor, "patient") for factor in EXPLORATIONS]
    candidates += [(factor, "eager") for factor in EAGER_EXPLORATIONS]
    own = candidates.index((policy.exploration, "patient"))
    d = policy.dim + policy.intercept
    affordable = WORK / (len(members) * (3.0 * d * d + 30.0 * d + 300.0) * rounds)
    each = int(np.clip(affordable / (3 * len(candidates)), FEWEST_WORLDS, MOST_WORLDS))
    if affordable < FEWEST_WORLDS * len(candidates):  # many coefficients: shorter worlds
        rounds = max(int(rounds * affordable / (FEWEST_WORLDS * len(candidates))), 2 * d)
    draw = _Worlds(policy.prior, members, offered, rounds)
    regrets: list[list[float]] = [[] for _ in candidates]
    left, worlds = list(range(len(candidates))), 0
    while True:
        for world in [draw(worlds + j) for j in range(each)]:
            for i in {*left, own}:
                regrets[i].append(policy.rehearsed_regret(world, offered, candidates[i], horizon))
        worlds += each
        if len(left) <= 2:
            break
        left = sorted(left, key=lambda i: float(np.mean(regrets[i])))[: max(len(left) // 2, 2)]
    best = min(left, key=lambda i: float(np.mean(regrets[i])))
    better = np.array(regrets[own]) - np.array(regrets[best])
    if better.mean() <= better.std() / np.sqrt(max(len(better) - 1, 1)):
        best = own
    trials = tuple(_trial(*played) for played in zip(candidates, regrets, strict=True))
    return Rehearsal(trials, best, rounds, len(offered))


def _trial(candidate: tuple[float, str], regrets: Sequence[float]) -> Trial:
    worlds = np.array(regrets)
    error = float(worlds.std() / np.sqrt(max(len(worlds) - 1, 1)))
    return Trial(candidate[0], candidate[1], float(worlds.mean()), error, len(worlds))


class _Worlds:
    """Draws worlds from the members of a policy; the i-th is always the same."""

    def __init__(
        self, prior: DriftPrior, members: Sequence[Member], offered: OfferedSets, rounds: int
    ) -> None:
        self.prior, self.members, self.offered, self.rounds = prior, members, offered, rounds
        self.cumulated = np.cumsum([member.weight for member in members])

    def __call__(self, number: int) -> World:
        rng = np.random.default_rng((number, 0))
        place = (number + 1) * GOLDEN % 1.0  # any run of numbers has each member in proportion to its weight
        drawn = int(np.searchsorted(self.cumulated, place * self.cumulated[-1]))
        truth = self._coefficients(self.members[min(drawn, len(self.members) - 1)], rng)
        order = rng.integers(len(self.offered), size=self.rounds)
        if self.prior.link == "logit":
            luck = rng.random(self.rounds)
        else:
            luck = np.sqrt(self.prior.noise_variance) * rng.standard_normal(self.rounds)
        return World(np.ascontiguousarray(truth), order, luck)

    def _coefficients(self, member: Member, rng: np.random.Generator) -> Array:
        """Coefficients of the features (T, p), drawn from a member and along its walk.

        From members that know nothing of the logs they are of the logs' size instead of any size.
        """
        p = len(self.prior.mean)
        if member.hypothesis == "logs useless":
            start = member.mean[:p] + rng.standard_normal(p) * np.sqrt(self.prior.unit)
        else:
            values, vectors = np.linalg.eigh(member.covariance[:p, :p])
            start = member.mean[:p] + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(p))
        step = member.process[:p]
        steps = (
            rng.standard_normal((self.rounds, p)) * np.sqrt(step)
            if step.any()
            else np.zeros((self.rounds, p))
        )
        return np.asarray((start + np.cumsum(steps, axis=0)) @ self.prior.basis.T)
