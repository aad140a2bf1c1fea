"""The policies of the real-data study, each with the settings it may be tuned to.

Rewards reach them with mean 0 and standard deviation 1 over the logs, hence noise scale 1; features are in standard
deviations too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log

from invariant_bandits.checks import Array
from invariant_bandits.experiments.contenders import unconverged_fits_count
from invariant_bandits.experiments.studies.real_data import Rounds
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import DEFAULT_EXPLORATION, AutoISD
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.baselines import Greedy, Uniform
from invariant_bandits.policies.isd import ISDLinUCB
from invariant_bandits.policies.linear import LinearPolicy, LinUCB
from invariant_bandits.policies.memory import Discount, Memory, SlidingWindow

AUTO_DEFAULT = "AutoISD, default"
AUTO_TUNED = "AutoISD, tuned"
ISD = "ISD-linUCB, estimated"
COLD = "LinUCB, cold"
COLD_TUNED = "LinUCB, cold, tuned"
WARM = "LinUCB, warm on all logs"
SLIDING = "sliding window"
DISCOUNT = "discount"
FROZEN = "frozen"
UNIFORM = "uniform"

AUTO_EXPLORATIONS = (0.05, 0.1, 0.25, 0.5, 1.0)
AUTO_WINDOWS = (4, 8, 16)
DEFAULT_WINDOWS = 8
EXPLORATIONS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
WINDOWS = (250, 500, 1000, 2000, 4000)
DISCOUNTS = (0.99, 0.996, 0.998, 0.999, 0.9995)
FORGOTTEN = 1e-6


@dataclass(frozen=True, eq=False)
class History:
    """What a practitioner has: the rounds so far with all offered features, and one logged action with its reward.

    rows (k,): the row of `rounds` that was logged in each of the first k rounds; rewards (k,): what it brought.
    """

    rounds: Rounds
    rows: Array
    rewards: Array

    @property
    def dim(self) -> int:
        """Number of features p."""
        return self.rounds.dim

    def moments(self, windows: int) -> WindowedMoments:
        """Windowed moments of the logs, offered actions included."""
        return self.rounds.logged_moments(self.rows, self.rewards, windows)


@dataclass(frozen=True)
class Contender:
    """A policy with its settings in words; a frozen one never learns online."""

    settings: str
    make: Callable[[History], Policy]
    learns: bool = True


Families = Mapping[str, tuple[Contender, ...]]


def families() -> Families:
    """Name -> everything that the policy may be tuned to; those with one member are not tuned."""
    return {
        AUTO_DEFAULT: (auto(DEFAULT_EXPLORATION, DEFAULT_WINDOWS),),
        AUTO_TUNED: tuple(auto(exploration, windows) for windows in AUTO_WINDOWS for exploration in AUTO_EXPLORATIONS),
        ISD: tuple(isd(exploration) for exploration in EXPLORATIONS),
        COLD: (linucb(1.0, 0),),
        COLD_TUNED: tuple(linucb(exploration, 0) for exploration in EXPLORATIONS),
        WARM: tuple(linucb(exploration, None) for exploration in EXPLORATIONS),
        SLIDING: tuple(
            forgetful(exploration, SlidingWindow(window), window, f"window {window}")
            for window in WINDOWS
            for exploration in EXPLORATIONS
        ),
        DISCOUNT: tuple(
            forgetful(exploration, Discount(discount), _remembered(discount), f"discount {discount}")
            for discount in DISCOUNTS
            for exploration in EXPLORATIONS
        ),
        FROZEN: (Contender("ridge regression on all logs", frozen, learns=False),),
        UNIFORM: (Contender("every action alike", lambda history: Uniform(history.dim, seed=len(history.rows))),),
    }


def auto(exploration: float, windows: int) -> Contender:
    """AutoISD from the moments of all logs."""

    def make(history: History) -> Policy:
        with unconverged_fits_count():
            return AutoISD.from_history(history.moments(windows), exploration=exploration)

    return Contender(f"{windows} windows, exploration {exploration:g}", make)


def isd(exploration: float) -> Contender:
    """ISD-linUCB with split and component estimated from all logs."""

    def make(history: History) -> Policy:
        with unconverged_fits_count():
            return ISDLinUCB.from_history(
                history.moments(DEFAULT_WINDOWS), exploration=exploration, norm_bound=1.0, ridge=0.1
            )

    return Contender(f"{DEFAULT_WINDOWS} windows, exploration {exploration:g}", make)


def linucb(exploration: float, logs: int | None) -> Contender:
    """LinUCB that starts from the last `logs` logged rounds (None: all)."""
    return Contender(
        f"exploration {exploration:g}",
        lambda history: warmed(LinUCB(history.dim, exploration=exploration), history, logs),
    )


def forgetful(exploration: float, memory: Memory, logs: int, words: str) -> Contender:
    """LinUCB with a memory that has seen as many of the latest logs as it can remember."""

    def make(history: History) -> Policy:
        # The published radii need a bound on ‖φ‖; standardised features have a mean square of p.
        bound = float(history.dim) ** 0.5
        policy = LinUCB(history.dim, exploration=exploration, memory=memory, feature_bound=bound)
        return warmed(policy, history, logs)

    return Contender(f"{words}, exploration {exploration:g}", make)


def frozen(history: History) -> Policy:
    """The greedy policy of a ridge regression on all logs."""
    return warmed(Greedy(history.dim), history, None)


def warmed(policy: LinearPolicy, history: History, logs: int | None) -> LinearPolicy:
    """The policy after learning the last `logs` logged rounds (None: all)."""
    first = 0 if logs is None else max(0, len(history.rows) - logs)
    for features, reward in zip(history.rounds.features[history.rows[first:]], history.rewards[first:], strict=True):
        policy.update(features, reward)
    return policy


def _remembered(discount: float) -> int:
    """After so many rounds a round weighs less than one in a million."""
    return ceil(log(FORGOTTEN) / log(discount))
