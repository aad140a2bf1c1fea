"""Are these propensities right? Observed choices against expected ones, check by check, with a test over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special

from invariant_bandits.checks import InputError, probability, whole_number
from invariant_bandits.evaluation.calibration_checks import Check, checks_of_all, checks_of_logged
from invariant_bandits.logs.feedback import Feedback

MATERIAL = 0.02


@dataclass(frozen=True)
class Calibration:
    """All checks of the propensities of a log.

    Attributes
    ----------
    checks : tuple of Check
        One per comparison.
    p_value : float
        Of the worst one, corrected for how many there are.
    level : float
        The propensities are flagged if the p-value is below it.
    rounds : int
        Number of rounds n.
    """

    checks: tuple[Check, ...]
    p_value: float
    level: float
    rounds: int

    @property
    def worst(self) -> Check | None:
        """The most significant check whose gap matters (MATERIAL: 2 % or 0.02 standard deviations)."""
        large = [check for check in self.checks if abs(check.gap) > MATERIAL]
        return max(large, key=lambda check: check.z, default=None)

    @property
    def harmless(self) -> Check | None:
        """The most significant check whose gap is too small to matter, if chance does not explain it at `level`."""
        small = [check for check in self.checks if abs(check.gap) <= MATERIAL]
        worst = max(small, key=lambda check: check.z, default=None)
        return worst if worst is not None and _corrected(worst.z, len(self.checks)) < self.level else None

    def named(self, names: Sequence[str]) -> Calibration:
        """The same checks with the names (p,) of the features."""
        checks = [
            replace(one, name=names[int(one.name.split()[1])]) if one.kind == "feature" else one for one in self.checks
        ]
        return replace(self, checks=tuple(checks))

    @property
    def words(self) -> str:
        """What all checks say together, without the end of a sentence."""
        worst, harmless, odds = self.worst, self.harmless, f"p = {self.p_value:.2g} over all checks"
        if worst is not None and self.flagged:
            return f"WRONG: {worst.name} is off by {worst.gap_in_words}, {odds}"
        if harmless is not None:
            return (
                f"nothing that matters speaks against them ({odds}); {harmless.name} is off by"
                f" {harmless.gap_in_words}, more than chance allows, but too little to matter"
            )
        return f"nothing speaks against them ({odds})"

    @property
    def flagged(self) -> bool:
        """Whether the propensities must not be trusted."""
        return self.p_value < self.level

    def summary(self) -> str:
        """A table a person can read."""
        lines = [f"{'check':<28} {'expected':>9} {'observed':>9} {'std. err.':>9} {'z':>6}"]
        lines += [
            f"{one.name:<28} {one.expected:>9.4f} {one.observed:>9.4f} {one.standard_error:>9.4f} {one.z:>6.1f}"
            for one in self.checks
        ]
        return "\n".join([*lines, self.words])


def calibration(feedback: Feedback, *, bins: int = 10, level: float = 0.01) -> Calibration:
    """Check the propensities of the feedback against its choices.

    With the propensities of all offered actions: do they add up to 1, are actions of each bin of predicted
    propensity, each position and each feature chosen as often as predicted? With those of the logged actions only: for
    any f, the mean of f(logged)/propensity must be that of the sum of f over the offered actions. The choices f = 1,
    positions and features are tried. That also fails if some offered actions are never played: weights cannot make up
    for them.
    Right propensities are flagged with probability at most `level`, in large samples (Bonferroni over z-tests, each
    round's error having mean zero given the rounds before). Estimated ones are flagged a little more often.

    Parameters
    ----------
    feedback : Feedback
        Rounds with propensities.
    bins : int
        Of predicted propensity, at least 2.
    level : float
        Of the test over all checks.

    Returns
    -------
    Calibration
        All checks, and whether the propensities are flagged.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.evaluation.calibration import calibration
    >>> rng = np.random.default_rng(0)
    >>> rounds = ib.Feedback.from_arrays(rng.normal(size=(2000, 2, 1)), rng.integers(2, size=2000), np.zeros(2000))
    >>> calibration(rounds.with_uniform_propensities()).flagged
    False
    >>> calibration(rounds.with_propensities(np.tile([0.9, 0.1], 2000))).flagged
    True
    """
    whole_number("bins", bins, 2)
    probability("level", level)
    if feedback.propensities is None:
        raise InputError("propensities are missing: there is nothing to check")
    checks = checks_of_logged(feedback) if feedback.offered_propensities is None else checks_of_all(feedback, bins)
    large = [check for check in checks if abs(check.gap) > MATERIAL]
    worst = max((check.z for check in large), default=0.0)
    return Calibration(tuple(checks), _corrected(worst, len(checks)), level, feedback.rounds)


def _corrected(z: float, checks: int) -> float:
    """p-value of the largest of so many z (Bonferroni)."""
    return min(1.0, 2.0 * checks * float(special.ndtr(-z)))
