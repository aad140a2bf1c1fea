"""The constants of the fits: what was fixed by a study or a convention, and what only guards numbers."""

from __future__ import annotations

from dataclasses import dataclass

TINY = 1e-300
"""Replaces a denominator of 0: the smallest power of ten whose inverse is a number."""
SMALLEST = 1e-12
"""What rounding leaves of a relative number that should be positive."""


@dataclass(frozen=True)
class ArmFit:
    """Constants of the statistics of labelled arms and of the fit of their random effects."""

    # -- logistic fit of clicks --
    ridge: float = 1.0
    """Precision of an arm's coefficients about the mean of the arms, and of shared ones about 0: one log-odds
    either way, so that an arm with few clicks has a finite fit."""
    faint_ridge: float = 1e-3
    """Precision of all coefficients about 0; only makes the system regular."""
    most_passes: int = 30
    """Limit of passes over the log; Newton's method stops earlier unless columns separate the clicks."""
    halvings: int = 12
    """Of one step of Newton's method, which then has 1/4,096 of its length; less gains nothing."""
    smallest_step: float = 1e-5
    """Of log-odds, far below any standard error."""
    largest_odds: float = 30.0
    """Log-odds at which a chance differs from 1 by 1e-13, so that its logarithm still exists."""

    # -- deviations of arms from what they share --
    level_passes: int = 25
    """Limit of passes over the log, in which deviations, noise and τ² converge together."""
    spread_steps: int = 30
    """Steps of expectation–maximisation for τ² between two passes; they cost no pass."""
    few_spread_steps: int = 8
    """The same where a pass costs nothing: in simulated logs, the same τ² in a third of the time."""
    largest_move: float = 2.0
    """Of log-odds in one step of Newton's method, which overshoots from far away."""
    level_tolerance: float = 1e-3
    """Relative change at which deviations, noise and τ² have converged, far below their errors."""
    least_spread: float = 1e-6
    """Of τ², in units of the noise variance: τ² = 0 would divide by 0."""
    least_information: float = 1.0
    """Of a window about the level of an arm, where drift of levels is looked for."""
    drift_errors: float = 3.0
    """Levels drift if their windows vary by so many standard deviations more than sampling explains."""
    walk_variance: float = 6.0
    """A walk of m steps of variance s² varies by m·s²/6 about its mean."""

    # -- noise of rewards --
    least_variation: float = 1e-9
    """Relative eigenvalue of a window's Gram matrix below which a direction did not vary."""
    noise_rounds: int = 20_000
    """Rounds, about, from which it is seen where the noise is larger: its ratios are then known to a few per
    cent."""
    rounds_per_column: float = 4.0
    """Rounds of an arm in a window from which on its noise is looked at window by window: with fewer, the
    coefficients take too much of it."""
    least_freedom: float = 0.1
    """Share of the rounds that must be left, after the windows' coefficients, to estimate the noise from."""

    # -- random effects --
    uninformed: float = 1e-9
    """Information, relative to the largest of any arm and window, that counts as none."""
    first_iterations: int = 30
    """Steps of expectation–maximisation with common directions alone."""
    iterations: int = 50
    """Steps with the joint directions, which start from the first fit."""
    start: float = 3.0
    """Drift at the start, in units of what the windows could just detect: from above, where steps of
    expectation–maximisation are long."""
    wide_start: float = 10.0
    """Variance between arms at the start, in units of their drift; it is found from above as well."""
    shrinkage: float = 4.0
    """Windows that the median drift of all arms counts for, in the drift of one."""
    spread_count: float = 2.0
    """Arms that the mean of the other slopes' variances counts for, at most, in the variance of one."""
    vague_arms: float = 100.0
    """Variance of the arms' common part in units of the mean squared reward: nearly flat."""
    alternations: int = 20
    """Between arms and contexts, for the strongest pattern of joint drift."""
    likeness: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9)
    """Shares of the arms' variance that their features may explain; the likeliest is taken."""

    # -- shared coefficients --
    tail_freedom: float = 1.0
    """Degrees of freedom of shared coefficients about 0, for decisions: a Cauchy distribution."""
    scale_iterations: int = 200
    """Steps that find their scales: in simulated logs without any product more steps changed nothing."""
    scale_tolerance: float = 1e-3
    """Relative change of the scale at which it has converged, far below its error."""
    largest_growth: float = 4.0
    """Of the variance of an estimate that is no longer drawn to those of other arms. In simulated logs of
    clicks with three arms and 120 columns, intervals covered less than 93 % with 2."""


@dataclass(frozen=True)
class PriorFit:
    """Constants of the tests of drift, of its limits, and of where the logs ended."""

    # -- tests of drift --
    drift_level: float = 0.05
    """Level of the tests of drift, for all effects of a log together (Holm 1979)."""
    active_errors: float = 3.0
    """Standard errors from 0 at which an effect counts as active: one null effect in 370 is."""
    largest_factor: float = 1e4
    """How far the grid of drifts goes up and down from the fitted one, in a likelihood ratio."""
    grid_points: int = 200
    """Of that grid: neighbours differ by a tenth, over which the likelihood hardly changes."""
    enough_clicks: float = 5.0
    """Information of a window of clicks that can be tested: about five of the rarer kind, as in the rule for
    the χ² test of a table."""
    common_level: float = 0.01
    """At which the common level of all arms is taken to move; strict, because the model then forgets."""
    baseline_level: float = 0.01
    """The same for the baseline of rows."""

    # -- limits of drift --
    hidden_level: float = 0.08
    """Of the limit of drift of each direction by itself.

    40 % would let the alarm find smaller breaks, but make it false where rewards are rare clicks or
    revenue (docs/studies/alarm.md).
    """
    pooled_hidden_level: float = 0.4
    """Of the limit that is pooled over arms: the alarm searches for the likeliest drift of all at once."""
    halvings: int = 60
    """Of an interval in which a limit is searched: down to rounding."""
    unlimited: float = 1e4
    """Limit of a drift of which nothing is known, in typical squared coefficients."""

    # -- where the logs ended --
    vague: float = 100.0
    """Variance of where the filters start, in units of the prior variance of the mean: nearly flat."""
    persistent: tuple[tuple[float, float], ...] = ((1.0, 0.5), (4.0, 0.5), (4.0, 2.0))
    """(factor on the drift, time constant in log lengths) of drift that goes on from where the logs ended: a
    time constant above a log's length makes nearly a walk, which varies less within the log than later."""
    rarely_persistent: float = 0.05
    """Probability that the drift of a direction persists, before its windows are looked at; a convention,
    which the study of constants varies."""
    walk_rates: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2)
    """Steps per round, in units of the logs' drift, of labelled arms that go on from where the logs ended."""


ARM = ArmFit()
PRIOR = PriorFit()
