"""From a log to a Model: a policy with everything that serving and explaining it needs, in one checked file."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits import __version__, files
from invariant_bandits.checks import Array, InputError, probability, whole_number
from invariant_bandits.decisions import Decision, Ledger, OpenDecision
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.files import FileError
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.offered_columns import offered_columns, plain
from invariant_bandits.logs.passes import Progress
from invariant_bandits.logs.pruning import prune
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reading import read_moments, read_offered
from invariant_bandits.logs.schema import Schema, SchemaLike, with_features
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import state
from invariant_bandits.policies.base import Draws, Policy, Scores, reward_number
from invariant_bandits.policies.offered_sets import MOST_SETS
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import Contender, find_policy

if TYPE_CHECKING:
    from typing import Self

KIND = "model"
DEFAULT_POLICY = "auto-isd"
FEATURES = "features."


@dataclass(frozen=True, eq=False)
class Model:
    """What `fit_logs` makes of a log; its policy goes on learning, all else is as the log left it.

    Attributes
    ----------
    policy : Policy
        Takes the features of `feature_map`.
    policy_name : str
        As asked for, such as "auto-isd".
    feature_map : FeatureMap
        Raw columns -> features.
    schema, quality : Schema, QualityReport
        How the log was read.
    moments : WindowedMoments
        Of the log, per window, mapped features.
    baseline : float
        Is taken off the rewards that the policy is told, where it has no intercept.
    dropped : tuple of Dropped
        Features left out, and why.
    notes : tuple of str
        What else happened on the way.
    value : mapping or None
        What evaluation said of the policy, plain values.
    version : str
        Of the package that fitted.
    fit : InvariantSubspaceDecomposition or None
        Of the moments; found again when it is asked for if it is not given.
    ledger : Ledger
        Decisions that wait for their rewards.
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
    ledger: Ledger = field(default_factory=Ledger, repr=False)

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

    def decide(self, context: Any = None, arms: Any = None, *, id: str | None = None) -> Decision:
        """Decide, and remember the decision until its reward comes; see `learn`.

        A policy that randomises draws anew for every decision, also if no reward came in between.

        Parameters
        ----------
        context : mapping of str to value
            Raw columns that all offered actions share, one value each.
        arms : list of rows or columns
            What differs between the offered actions: mappings, columns with one value per action, or a frame.
        id : str, optional
            What the reward will be reported under; asked again under an id that waits for its reward, the answer is
            the same. A random one if not given.
        """
        name = self.ledger.new_id(id)
        if name in self.ledger.open:
            return self.ledger.open[name].decision
        columns = self._columns(context, arms)
        features = self.feature_map.apply(columns)
        place, propensity = self._drawn(features)
        expected = (self.policy.scores(features).mean + self.baseline).tolist()
        decision = Decision(name, place, propensity, dict(enumerate(expected)), self.identity)
        self.ledger.add(OpenDecision(decision, place, {key: plain(values) for key, values in columns.items()}))
        return decision

    def learn(self, decision: Decision | str, reward: float) -> bool:
        """Learn the reward of a decision, given itself or its id; in any order and as late as it comes.

        Returns
        -------
        bool
            False if this reward was learned before; another reward for the same decision is refused.
        """
        return self.learn_many([(decision, reward)]) == 1

    def learn_many(self, rewards: Iterable[tuple[Decision | str, float]]) -> int:
        """Learn many pairs (decision or id, reward), checked before any is learned; how many were new."""
        owed = self.ledger.all_owed(rewards)
        for one, reward in owed:
            self.update(one.columns, one.place, reward)
            self.ledger.close(one, reward)
        return len(owed)

    def _columns(self, context: Any, arms: Any = None) -> dict[str, list[Any]]:
        """Raw columns with one value per offered action."""
        vectors = [column.name for column in self.feature_map.columns if column.width is not None]
        given = offered_columns(context, arms, vectors=vectors)
        return {column.name: given[column.name] for column in self.feature_map.columns if column.name in given}

    def _drawn(self, features: Array) -> tuple[int, float]:
        """Place of the action to play, and its probability."""
        chances = self.policy.propensities(features)
        if chances.max() >= 1.0:
            return self.policy.select(features), 1.0
        luck = Draws(int(self.identity, 16)).at(self.ledger.made).random()
        place = min(int(np.searchsorted(np.cumsum(chances), luck, side="right")), int(np.flatnonzero(chances)[-1]))
        return place, float(chances[place])

    def features(self, offered: Any) -> Array:
        """Features (K, p) of the offered actions of one round.

        Raw columns with one value per action or one for all, a list of rows, or a frame.
        """
        return self.feature_map.apply(self._columns(offered))

    def select(self, offered: Any) -> int:
        """Index of the action to play among those offered, in any form that `features` takes."""
        return self.policy.select(self.features(offered))

    def select_many(self, rounds: Iterable[Any]) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds in the present state, each in any form that `features` takes."""
        features = [self.features(offered) for offered in rounds]
        if not features:
            raise InputError("rounds is empty: at least one is needed")
        sizes = np.array([len(one) for one in features])
        actions = np.empty(len(features), dtype=np.int64)
        for size in np.unique(sizes):
            places = np.flatnonzero(sizes == size)
            actions[places] = self.policy.select_many(np.stack([features[place] for place in places]))
        return actions

    def propensities(self, offered: Any) -> Array:
        """Probability (K,) with which each of the offered actions is the next choice."""
        return self.policy.propensities(self.features(offered))

    def scores(self, offered: Any) -> Scores:
        """Expected rewards (K,) and widths (K,) of the offered actions."""
        scores = self.policy.scores(self.features(offered))
        return Scores(scores.mean + self.baseline, scores.width, scores.propensities)

    def update(self, offered: Any, action: int, reward: float) -> None:
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
        return _decomposed(self.moments, self.names)

    @cached_property
    def identity(self) -> str:
        """Which model this is, twelve hexadecimal digits: of the log and the features; learning does not change it."""
        said = [self.policy_name, self.version, self.feature_map.describe()]
        content = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
        content.update(self.moments.to_bytes())
        return content.hexdigest()[:12]

    def explain(self) -> Any:
        """What the policy believes now, in the names of columns; for a policy that cannot say, what the log says."""
        explain = getattr(self.policy, "explain", None)
        return self.decomposition.summary() if explain is None else explain(list(self.names))

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
            "ledger": self.ledger.to_dict(),
        }
        files.write(path, KIND, arrays, about)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a file written by `save`; a damaged, foreign or newer one raises FileError."""
        name = str(path)
        arrays, about = files.decode(Path(path).read_bytes(), KIND, name)
        try:
            learned = files.under(arrays, FEATURES)
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
                ledger=Ledger.from_dict(about["ledger"]) if "ledger" in about else Ledger(),
            )
        except FileError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{name} does not hold a whole model: {error}") from None


def fit_logs(
    source: Any,
    schema: SchemaLike = None,
    *,
    policy: str = DEFAULT_POLICY,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | FeatureMap | Sequence[str] | None = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    keep_going: bool = False,
    confidence: float = 0.01,
    exploration: float | str | None = None,
    horizon: int | None = None,
    progress: Progress | None = None,
) -> Model:
    """Read a log and make a policy of it; see `read_moments` for how logs are read and cut into windows.

    Windows with hardly any rounds join a neighbour, features that no window can estimate are left out; the model says
    so, and what each window is silent about.

    Parameters
    ----------
    policy : str
        Name of a registered policy; one that can learn the logged rounds has learned them, unless its name says that
        it is cold.
    confidence : float
        η, the probability of failure.
    exploration : float or "rehearsed", optional
        Factor on the widths; the policy's own default if not given. AutoISD rehearses if the log has offered actions.
    horizon : int, optional
        How many rounds will be served, for policies that want to know.
    features : FeatureOptions, FeatureMap or list of str, optional
        How columns become features; names or patterns of columns are those of the schema.
    source, schema, windows, every, edges, engine, address, strict, keep_going, progress :
        As in `read_moments`.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(4000, 2))
    >>> reward = x[:, 0] + np.repeat([1.0, -1.0, 0.0, 2.0], 1000) * x[:, 1] + rng.normal(size=4000)
    >>> model = ib.fit_logs(pa.table({"reward": reward, "x0": x[:, 0], "x1": x[:, 1]}))
    >>> model
    Model(auto-isd, 2 features, 4,000 logged rounds)
    >>> model.decomposition.split_
    Split(invariant_dim=1, residual_dim=1)
    >>> model.select({"x0": [-1.0, 1.0], "x1": [0.0, 0.0]})
    1
    """
    contender = fitted_contender(policy, exploration, confidence)
    if features is not None and not isinstance(features, FeatureMap | FeatureOptions):
        schema, features = with_features(schema, features), None
    options = None if isinstance(features, FeatureMap) else features or FeatureOptions()
    raw = features if options is None else replace(options, standardise="none", drop_collinear=False)
    read = read_moments(
        source,
        schema,
        windows=windows,
        every=every,
        edges=edges,
        features=raw,
        engine=engine,
        address=address,
        strict=strict,
        keep_going=keep_going,
        progress=progress,
    )
    if isinstance(read.feature_map, ArmFeatures):
        raise InputError(
            "schema: labelled arms are read, but cannot be fitted yet; --arm none takes labels for features"
        )
    return model_of(
        read.moments,
        read.feature_map,
        options,
        schema=read.schema,
        quality=read.quality,
        policy=policy,
        contender=contender,
        confidence=confidence,
        horizon=horizon,
        source=source,
    )


def model_of(
    moments: WindowedMoments,
    feature_map: FeatureMap,
    options: FeatureOptions | None,
    *,
    schema: Schema,
    quality: QualityReport,
    policy: str,
    contender: Contender,
    confidence: float,
    horizon: int | None,
    source: Any,
) -> Model:
    """The model of moments that were read: pruned, decomposed, the policy started.

    Parameters
    ----------
    moments : WindowedMoments
        Of the features that `feature_map` expands to or, without `options`, of its features.
    feature_map, options : FeatureMap, FeatureOptions or None
        What the features are, and what is still to be learned from the moments; see `prune`.
    schema, quality : Schema, QualityReport
        How the log was read.
    policy, contender : str, Contender
        The name that was asked for, and what makes the policy.
    confidence, horizon : float, int or None
        As in `fit_logs`.
    source : Any
        Where the offered actions of a rehearsal can be read, if the policy asks for them.
    """
    usable = prune(moments, feature_map, options)
    moments, feature_map, baseline = usable.moments, usable.feature_map, 0.0
    if not keeps_baseline(policy):  # features and rewards count from the means of the log
        baseline = float(moments.counts @ moments.reward_mean) / moments.rounds
        mean = moments.counts @ moments.feature_mean / moments.rounds
        moments = moments.rescaled(np.arange(moments.dim), mean, np.ones(moments.dim))
        feature_map = feature_map.shifted(mean)
    fit = _decomposed(moments, feature_map.names)
    past = Past(
        moments=moments,
        baseline=baseline,
        noise_scale=max(fit.noise_scale_, 1e-12),
        confidence=confidence,
        horizon=horizon,
        remembered=max(moments.rounds // moments.windows, 1),
        offered=lambda: read_offered(source, schema, feature_map, MOST_SETS) or None,
        decomposition=fit,
    )
    return Model(
        policy=contender(past),
        policy_name=policy,
        feature_map=feature_map,
        schema=schema,
        moments=moments,
        quality=quality,
        baseline=baseline,
        dropped=usable.dropped,
        notes=(*_action_note(schema), *usable.notes),
        fit=fit,
    )


def fitted_contender(policy: str, exploration: float | str | None, confidence: float) -> Contender:
    """The policy of this name as a log is fitted with it: it has learned the logged rounds, if it can."""
    entry = find_policy(policy)
    given = {"warm": True, "exploration": exploration, "confidence": probability("confidence", confidence)}
    if exploration is not None:
        entry.check({"exploration": exploration})
    return Contender(
        entry.name, {name: value for name, value in given.items() if value is not None and entry.takes(name)}
    )


def keeps_baseline(policy: str) -> bool:
    """Whether the policy of this name has an intercept of its own; the others are told rewards less a baseline."""
    return find_policy(policy).keeps_baseline


def _decomposed(moments: WindowedMoments, names: tuple[str, ...]) -> InvariantSubspaceDecomposition:
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # the findings of the fit say it
        return InvariantSubspaceDecomposition(feature_names=names).fit(moments)


def _action_note(schema: Schema) -> list[str]:
    """A log of contexts and labels of actions teaches nothing about the choice unless the label is a feature."""
    if schema.action is None or schema.has_offered:
        return []
    return [
        f"the action (column {schema.action!r}) is not among the features: if they describe the context only, no action"
        f" can be preferred to another; to give every action coefficients of its own: --action none --one-hot"
        f" {schema.action} --interactions CONTEXT:{schema.action}"
    ]
