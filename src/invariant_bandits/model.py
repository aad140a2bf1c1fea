"""Model: a policy with everything that serving and explaining it needs, in one checked file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits import __version__, files
from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.files import FileError
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.features import FeatureMap
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.schema import Schema
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import state
from invariant_bandits.policies.base import Policy, Scores, reward_number

if TYPE_CHECKING:
    from typing import Self

KIND = "model"
FEATURES = "features."


@dataclass(frozen=True, eq=False)
class Model:
    """What `fit_logs` makes of a log; its policy goes on learning, all else is as the log left it.

    policy: takes the features of `feature_map`; policy_name: as asked for, such as "auto-isd"; baseline: is taken off
    the rewards that the policy is told, where it has no intercept; moments: of the log, per window, mapped features;
    schema, quality: how the log was read; dropped: features left out and why; notes: what else happened on the way;
    value: what evaluation said of the policy, plain values, or None; version: of the package that fitted; fit: the
    decomposition of the moments, found again when it is asked for if it is not given.
    """

    policy: Policy
    policy_name: str
    feature_map: FeatureMap
    schema: Schema
    moments: WindowedMoments
    quality: QualityReport
    baseline: float = 0.0
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    value: Mapping[str, Any] | None = None
    version: str = __version__
    fit: InvariantSubspaceDecomposition | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.policy.dim == self.feature_map.dim == self.moments.dim:
            raise InputError(
                f"policy, feature_map and moments must have the same features, got {self.policy.dim},"
                f" {self.feature_map.dim} and {self.moments.dim}"
            )

    # -- serving --

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features (p,)."""
        return self.feature_map.names

    def features(self, offered: Mapping[str, Any]) -> Array:
        """Features (K, p) of the offered actions of one round, given as raw columns with one value per action."""
        return self.feature_map.apply(offered)

    def select(self, offered: Mapping[str, Any]) -> int:
        """Index of the action to play among those offered, raw columns with one value per action."""
        return self.policy.select(self.features(offered))

    def scores(self, offered: Mapping[str, Any]) -> Scores:
        """Expected rewards (K,) and widths (K,) of the offered actions."""
        scores = self.policy.scores(self.features(offered))
        return Scores(scores.mean + self.baseline, scores.width, scores.propensities)

    def update(self, offered: Mapping[str, Any], action: int, reward: float) -> None:
        """Learn the reward of the action that was played, an index among those offered."""
        features = self.features(offered)
        action = whole_number("action", action, 0)
        if action >= len(features):
            raise InputError(
                f"action must be one of the {len(features)} offered, 0 to {len(features) - 1}, got {action}"
            )
        gain = reward_number(reward) - self.baseline
        self.policy.update(features[action], gain, offered=features, action=action)

    # -- explaining --

    @cached_property
    def decomposition(self) -> InvariantSubspaceDecomposition:
        """What is stable and what drifts, fitted to the moments."""
        if self.fit is not None:
            return self.fit
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # the findings of the fit say it
            return InvariantSubspaceDecomposition(feature_names=self.names).fit(self.moments)

    def __repr__(self) -> str:
        return f"Model({self.policy_name}, {self.feature_map.dim} features, {self.moments.rounds:,} logged rounds)"

    # -- storing --

    def save(self, path: str | PathLike[str]) -> None:
        """Write one checked file, replacing `path` in one step."""
        arrays: dict[str, Any] = {f"{FEATURES}{name}": array for name, array in self.feature_map.arrays().items()}
        arrays["policy"] = np.frombuffer(state.to_bytes(self.policy), dtype=np.uint8)
        arrays["moments"] = np.frombuffer(self.moments.to_bytes(), dtype=np.uint8)
        about = {
            "policy_name": self.policy_name,
            "features": self.feature_map.describe(),
            "schema": self.schema.to_dict(),
            "quality": self.quality.to_dict(),
            "baseline": self.baseline,
            "dropped": [[one.name, dict(one.combination), one.window] for one in self.dropped],
            "notes": list(self.notes),
            "value": None if self.value is None else dict(self.value),
            "version": self.version,
        }
        files.write(path, KIND, arrays, about)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a file written by `save`; a damaged, foreign or newer one raises FileError."""
        name = str(path)
        arrays, about = files.decode(Path(path).read_bytes(), KIND, name)
        try:
            learned = {key.removeprefix(FEATURES): a for key, a in arrays.items() if key.startswith(FEATURES)}
            return cls(
                policy=state.from_bytes(arrays["policy"].tobytes(), name),
                policy_name=about["policy_name"],
                feature_map=FeatureMap.rebuilt(about["features"], learned),
                schema=Schema(**about["schema"]),
                moments=WindowedMoments.from_bytes(arrays["moments"].tobytes(), name),
                quality=QualityReport.from_dict(about["quality"]),
                baseline=about["baseline"],
                dropped=tuple(Dropped(*one) for one in about["dropped"]),
                notes=tuple(about["notes"]),
                value=about["value"],
                version=about["version"],
            )
        except FileError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{name} does not hold a whole model: {error}") from None
