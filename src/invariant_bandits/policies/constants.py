"""The constants of AutoISD: one frozen dataclass per stage, each number with its reason.

"Study" means that the value earned most in simulations with tuning seeds, and was then checked on fresh
ones. "Grid" means that the values only have to cover a range, and "convention" that nobody tuned the value.
The study of constants (docs/studies/constants.md) halves and doubles each number: only `Tests.neglect`,
`Tests.patience` and `Tests.price` change the regret by more than a tenth. Limits that keep the arithmetic
finite are not settings of the method and stand beside the compiled loops.
"""

from __future__ import annotations

from dataclasses import dataclass

HYPOTHESES = (
    "nothing changed",
    "drift as in the logs",
    "invariance broken",
    "logs useless",
)
INVARIANCE_HOLDS = HYPOTHESES[:2]


@dataclass(frozen=True, kw_only=True)
class Members:
    """The filters of the four hypotheses: where they start, how they wander, how much they weigh.

    Variances of coefficients are in units of the typical squared coefficient of the logs, drift in units of
    the drift of the logs.
    """

    weights: tuple[float, ...] = (0.1, 0.6, 0.2, 0.1)
    """Prior probabilities of HYPOTHESES. Study."""
    weak_signal_weights: tuple[float, ...] = (0.8, 0.17, 0.02, 0.01)
    """The same at the lowest trust, where rewards can hardly tell the hypotheses apart. Study."""
    drifts: tuple[tuple[float, float], ...] = (
        (0.25, 0.0),
        (1.0, 0.0),
        (4.0, 0.0),
        (16.0, 0.0),
        (1.0, 1e-3),
        (1.0, 1e-2),
        (4.0, 1e-2),
        (4.0, 5e-2),
        (16.0, 5e-2),
    )
    """(c, q): variance c·Ω at the start, and steps of variance q·c·Ω per round. Grid of factor 4 in c, and
    of factor 5 to 10 in q."""
    likeliest_factors: tuple[float, ...] = (1.0, 4.0)
    """Factors c of the still members for which the baseline may behave in every way: the logs' drift, and as
    much more as few windows can hide."""
    continuing: float = 0.1
    """Part of the weight of drift that goes to drift from where the logs ended, if the windows do not tell
    whether drift persists. Study."""
    persistent: float = 0.1
    """The same if the windows leave no doubt that drift persists. Study."""
    break_sizes: tuple[float, ...] = (0.05, 0.5, 2.0)
    """Variances that "invariance broken" adds. Grid of factor 4 to 10 from the least break that matters to
    one as large as the coefficients. The largest is used in units of the logs alone, not of hidden signals.
    The alarm adds one that is larger."""
    break_drift: float = 4.0
    """Factor on the logs' drift in "invariance broken": a break is not drift that few windows hide."""
    breaks_at_end: bool = False
    """Whether "invariance broken" starts where the logs ended, as "nothing changed" does."""
    widest: float = 30.0
    """Variance of the first member of "logs useless", which learns from online rounds alone: far wider than
    any coefficient. Convention."""
    narrower: tuple[float, ...] = (1.0,)
    """Variances of its other members that do not wander: coefficients of the typical size."""
    walking: float = 10.0
    """Variance at the start of its members that wander, and of those for hidden signals. Convention."""
    useless_rates: tuple[float, ...] = (1e-3, 1e-2)
    """Step variances per round of its members that wander. Grid of factor 10."""
    useless_baseline: float = 30.0
    """Variance of their baseline in units of the noise variance: far wider than any baseline. Convention."""
    weakest_signal: float = 1e-9
    """Least signal variance in units of the noise variance: a hidden coefficient stays finite."""
    deviations: float = 0.5
    """Standard deviations of what the logs leave open that a choice adds to the mean. Study."""


FEATURES = Members()
"""For coefficients of features."""
ARMS = Members(
    continuing=0.5,
    persistent=0.95,
    breaks_at_end=True,
    widest=10.0,
    narrower=(),
    deviations=1.0,
)
"""For coefficients of labelled arms. Arms that are not played teach nothing online, so that the end of the
logs matters more, and a choice must explore more. Fixed by the study of labelled arms."""


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """How the reward baseline of a member may behave; variances in units of the noise variance."""

    step: float = 0.02
    """Step variance per round of a baseline that moves. Study."""
    doubt: float = 10.0
    """Variance that a moved baseline adds at the start: far wider than a season. Convention."""
    broken_doubt: float = 0.5
    """The same in "invariance broken": breaks of coefficients come with moderate ones of the baseline."""
    still: tuple[float, float, float] = (0.6, 0.3, 0.1)
    """Shares of baselines that stay, move, or moved before the first round, where the logs' stayed. Study."""
    moving: tuple[float, float] = (0.8, 0.2)
    """Shares of baselines that move or stay, where the logs' moved. Study."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far rewards may tell the hypotheses apart."""

    least: float = 0.1
    """Least exponent of a likelihood. Study: under greedy play weak signals mislead the likelihoods."""
    drift_rounds: float = 10.0
    """Online rounds after which drift counts as a signal: as many per coordinate as the alarm waits for."""
    signal_level: float = 0.9
    """The logs have a signal if all coefficients are 0 only with probability 1 − 0.9. Convention: a test at
    10 %."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How filters learn from a round."""

    share: float = 1e-5
    """Part of the weights that returns to the prior weights each round. Study: it keeps the hedge alive."""
    student_freedom: float = 5.0
    """Degrees of freedom of Student's t in the likelihood: few enough that no outlier decides. Convention."""
    noise_prior_rounds: float = 30.0
    """Rounds that the logs' noise variance counts for. Study."""
    parked: float = 1e-4
    """Weight below which a filter learns in few rounds, for speed: the mixture hardly differs."""
    rest: float = 8.0
    """Rounds between two lessons of such a filter."""


@dataclass(frozen=True, kw_only=True)
class Tests:
    """When a neglected action is worth a test."""

    doubt: float = 0.02
    """Least weight of the filter that knows online rounds alone, where tests are weighed. Study."""
    neglect: float = 3.0
    """An action is neglected if its variance is still so many times what as many logged rounds would have
    left. Study; 1.5 costs 20 % where invariance is broken."""
    patience: float = 3.0
    """Rounds per coordinate before the first test. Convention; 1.5 costs 11 % where invariance is broken."""
    price: float = 3.0
    """Times that a test must pay its cost. Study; 1.5 costs 25 % for five arms of which none changed."""
    rounds: float = 8.0
    """Rounds that a test takes, in units of noise variance over squared advantage: a comparison of two means
    at two standard errors, 2·2²."""


BASELINES = Baselines()
TRUST = Trust()
LEARNING = Learning()
TESTS = Tests()
