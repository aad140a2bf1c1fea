"""What AutoISD believes, said in numbers and words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.policies import alarm
from invariant_bandits.policies.auto_deciding import AutoDeciding
from invariant_bandits.policies.belief import Belief
from invariant_bandits.policies.hypotheses import HYPOTHESES
from invariant_bandits.policies.rehearsal import Rehearsal


class AutoExplaining(AutoDeciding):
    """Says which hypotheses it trusts, how far the coefficients have moved, and whether invariance broke."""

    alarm_level: float
    rehearsal: Rehearsal | None

    @property
    def alarm(self) -> bool:
        """Whether invariance was ever rejected, at `alarm_level` over all rounds together.

        The evidence is looked at after 10·d rounds, then at every quarter more. Never, if not `alarm_supported`.
        """
        return self.alarm_supported and self._peak_evidence >= float(np.log(1.0 / self.alarm_level))

    @property
    def alarm_supported(self) -> bool:
        """Whether the logs tell enough of drift for an alarm: five windows at least, and drift along the basis."""
        return not alarm.unsupported(self.prior)

    @property
    def coefficients(self) -> Array:
        """The mixture's mean of γ (p,)."""
        with self._lock:
            return np.asarray(self.prior.basis @ self._blend[0, : self.dim])

    def beliefs(self) -> dict[str, float]:
        """What a simulation traces: the probability of each hypothesis, and the log evidence against invariance."""
        with self._lock:
            return self._hypothesis_weights() | {"log evidence": max(self.log_evidence, self._peak_evidence)}

    def _hypothesis_weights(self) -> dict[str, float]:
        weights = np.bincount(self._owners, weights=self._weights, minlength=len(HYPOTHESES))
        return dict(zip(HYPOTHESES, weights.tolist(), strict=True))

    def explain(self, feature_names: Sequence[str] | None = None) -> Belief:
        """What the policy believes now; print it for a text, read its fields for numbers."""
        names = [f"x{j}" for j in range(self.dim)] if feature_names is None else list(feature_names)
        if len(names) != self.dim:
            raise InputError(f"feature_names must have {self.dim} entries, got {len(names)}")
        main = [_main_features(column) for column in self.prior.basis.T]
        with self._lock:
            return Belief(
                hypotheses=self._hypothesis_weights(),
                log_evidence=max(self.log_evidence, self._peak_evidence),
                alarm=self.alarm,
                alarm_level=self.alarm_level,
                shifts=self._blend[0, : self.dim] - self.prior.mean,
                errors=np.sqrt(np.diagonal(self._blend[1:])[: self.dim]),
                names=[", ".join(names[i] for i in ones) for ones in main],
                rounds=self.rounds,
                noise_ratio=float(np.sqrt(self._noise_now / self.prior.noise_variance)),
                rehearsal=self.rehearsal,
                no_alarm_because=alarm.unsupported(self.prior),
                baseline_shift=self._baseline_shift(),
                winsorised=self.winsorised,
                refused=self.refused,
            )

    def _baseline_shift(self) -> tuple[float, float]:
        """How far the baseline stands from that of the logs, and its standard deviation if it did not move."""
        if not self.intercept:
            return 0.0, 0.0
        doubt = float(self._blend[-1, -1]) + self.prior.baseline_error + self.prior.baseline_variance
        return float(self._blend[0, -1]) - self.prior.baseline, float(np.sqrt(doubt))


def _main_features(direction: Array) -> list[int]:
    """Places of the two largest features of a direction (p,); of one, if the second is below a third of it."""
    size = np.abs(direction)
    first, *second = np.argsort(-size)[:2].tolist()
    return [first, *(i for i in second if size[i] >= size[first] / 3.0)]
