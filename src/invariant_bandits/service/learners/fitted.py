"""A model that was fitted to logs, as a learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.logs.features import Column, FeatureMap
from invariant_bandits.model.decisions import Ledger
from invariant_bandits.model.model import Model
from invariant_bandits.policies.base import Policy
from invariant_bandits.service.learners import base
from invariant_bandits.service.learners.base import Actions, Context, Learner, Round

NUMBERS = {float, int}


class FittedLearner(Learner, kind="model"):
    """Decides by the policy of a Model; a policy that does not randomise is made to, with the floor that is
    asked for.

    Parameters
    ----------
    model : Model
        Becomes the learner's own; decisions that waited in it for their rewards are left behind.
    seed : int
        Of the random draws.

    Attributes
    ----------
    plain : FeatureMap or None
        Reads rows of numbers at once, where all columns are such.
    """

    def __init__(self, model: Model, seed: int = 0) -> None:
        model.ledger = Ledger()
        self.model, self.seed, self.baseline = model, seed, model.baseline
        self.takes = "rows" if model.arms is None else "labels"
        features = model.feature_map
        self.plain = features if isinstance(features, FeatureMap) and features.is_plain else None

    def round_of(self, context: Context, labels: Sequence[str], actions: Actions) -> Round:
        """Labels and features of a round; InputError names what is wrong."""
        if self.plain is not None and actions and not context and not labels and self._are_numbers(actions):
            return Round((), self.plain.apply_numbers(np.array(actions, dtype=np.float64)))
        self._check_numbers("context", context or {})
        if self.model.arms is None:
            if labels:
                raise InputError(
                    "arms: this model takes feature rows, one mapping per offered action, not labels"
                )
            rows = None if actions is None else [self._row(place, row) for place, row in enumerate(actions)]
            if rows is not None and not rows:
                raise InputError("arms: at least one action must be offered, got none")
            return Round(*self.model.round_of(context, rows))
        if actions is not None:
            raise InputError("arms: this model knows its arms by label; rows of features cannot be offered")
        return Round(*self.model.round_of(context, list(labels) if labels else None))

    def _are_numbers(self, rows: Sequence[Any]) -> bool:
        """Whether a round is rows of numbers, one per column, which can be read at once."""
        columns = len(self.model.feature_map.columns)
        return all(
            type(row) is list and len(row) == columns and set(map(type, row)) <= NUMBERS for row in rows
        )

    def _row(self, place: int, offered: Any) -> Mapping[str, Any]:
        """One offered row by the names of its columns; a list has them in their order."""
        columns = self.model.feature_map.columns
        is_list = isinstance(offered, Sequence) and not isinstance(offered, str)
        if isinstance(offered, Mapping):
            row = offered
        elif is_list and len(offered) == len(columns):
            row = {column.name: value for column, value in zip(columns, offered, strict=True)}
        else:
            size = f"{len(offered)} values" if is_list else type(offered).__name__
            needed = f"must be {len(columns)} values, or a mapping of columns"
            raise InputError(f"arms[{place}]: {needed}, got {size}")
        self._check_numbers(f"arms[{place}]", row)
        return row

    def _check_numbers(self, where: str, values: Mapping[str, Any]) -> None:
        """Raise if a column of numbers has something else; texts that look like numbers are not such."""
        for column in self.model.feature_map.columns:
            value = values.get(column.name)
            if value is None or column.categories is not None:
                continue
            for number in value if column.width is not None and isinstance(value, list) else [value]:
                if not isinstance(number, int | float) or isinstance(number, bool):
                    raise InputError(f"{where}.{column.name}: must be a number, got {number!r}")

    def policy_over(self, places: int = 0) -> Policy:
        """The model's policy."""
        return self.model.policy

    def learn(
        self, context: Context, labels: Sequence[str], actions: Actions, place: int, reward: float
    ) -> None:
        """Learn the reward of the action at `place`. Arms that were retired meanwhile are learned from,
        too.
        """
        if self.model.arms is None:
            features = self.round_of(context, labels, actions).features
        else:
            features = self.model.features({**(context or {}), str(self.model.schema.arm): list(labels)})
        gain = reward - self.model.baseline
        self.model.policy.update(features[place], gain, offered=features, action=place)

    @property
    def arms(self) -> dict[str, bool]:
        """Known arms, and whether they are active."""
        return {} if self.model.arms is None else {arm.label: arm.active for arm in self.model.arms.arms}

    @property
    def input_columns(self) -> dict[str, str]:
        """Names of the columns it needs, and what each holds."""
        return {column.name: _content_of(column) for column in self.model.feature_map.columns}

    def add_arm(self, label: str, features: Mapping[str, Any] | None) -> None:
        """Make a new arm known."""
        self.model.add_arm(label, features)

    def retire_arm(self, label: str) -> None:
        """Never choose an arm again."""
        self.model.retire_arm(label)

    def about(self) -> dict[str, Any]:
        """What it is and believes, plain values."""
        model = self.model
        return {
            "policy": model.policy_name,
            "identity": model.identity,
            "features": list(model.names),
            "columns": [column.name for column in model.feature_map.columns],
            "logged_rounds": int(model.moments.rounds),
            "logged_windows": int(model.moments.windows),
            **base.logged_reward(model.moments.counts, model.moments.reward_mean),
            "value": None if model.value is None else dict(model.value),
            **base.describe_belief(model.policy, list(model.names)),
        }

    def to_bytes(self) -> bytes:
        """The whole state."""
        return self.seed.to_bytes(8, "little") + self.model.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> Self:
        """The learner with this state."""
        return cls(Model.from_bytes(content[8:], name), int.from_bytes(content[:8], "little"))


def _content_of(column: Column) -> str:
    """What a column holds, in a word."""
    if column.categories is not None:
        return "categories"
    return "numbers" if column.width is None else f"{column.width} numbers"
