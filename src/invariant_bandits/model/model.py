"""Model: a policy with everything that serving and explaining it needs, in one checked file."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from invariant_bandits import __version__, storage
from invariant_bandits.checks import Array, InputError, in_sentence, whole_number
from invariant_bandits.decomposition.arm_statistics import ArmStatistics, LogOdds
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.decomposition.paths import missing_columns
from invariant_bandits.features import serving
from invariant_bandits.features.arm_maps import ArmFeatures, PooledLevels
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.features.maps import FeatureMap
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.preparation import without_values
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.schema import Schema, SchemaLike
from invariant_bandits.model.decisions import Decision, Ledger, OpenDecision
from invariant_bandits.moments.windowed import KIND as MOMENTS
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.optional import require
from invariant_bandits.policies import base
from invariant_bandits.policies.auto import Belief
from invariant_bandits.policies.base import BasePolicy, Draws, Scores, reward_number
from invariant_bandits.policies.wrapper import unwrapped
from invariant_bandits.storage import StateSchema, ThreadSafe, lock_of

if TYPE_CHECKING:
    import pandas

    from invariant_bandits.decomposition.effects import ArmEvidence
    from invariant_bandits.logs.scan import Progress
    from invariant_bandits.model.update import Update

KIND = "model"
UNKNOWN = "column {!r}: {!r} is {}, so it counts as none of them; said once, model.unknown_categories counts"
NAMED = 20
"""Drifting effects that a notebook names."""
POLICY = "policy."
"""Prefix of the arrays of the policy in the file of a model."""


@dataclass(eq=False)
class Model(ThreadSafe):
    """Fitted model of a log: a policy that continues to learn, and the statistics of the log.

    Threads may share a model: a reward is learned once, even if several threads report it.

    Attributes
    ----------
    policy : Policy
        Policy that chooses an action by the features that `feature_map` computes.
    policy_name : str
        Registered name of the policy, such as "auto-isd".
    feature_map : FeatureMap
        Map from raw columns of the log, and from the label of an arm, to features.
    schema, quality : Schema, QualityReport
        Roles of the log's columns, and how many of its rows were used or left out.
    moments : WindowedMoments
        Counts, means and sums of products of logged features and rewards, per window (period of the log).
    baseline : float
        Number that is subtracted from rewards before a policy without an intercept learns them.
    dropped : tuple of Dropped
        Features that were left out of the fit, with the reason.
    notes : tuple of str
        Remarks about the fit, such as joined windows (periods of the log).
    value : mapping or None
        Result of evaluating the policy on the log, as plain values.
    version : str
        Version of the package that fitted the model.
    fit : InvariantSubspaceDecomposition or None
        Decomposition of the features into stable and drifting directions, if the fit computed the
        decomposition.
    ledger : Ledger
        Record of the decisions that wait for their rewards.
    unknown_categories : mapping of str to Counter
        For each column, how often `decide` was called with a category that the log does not have.
    arms : ArmTable or None
        Labelled arms of the model, including retired arms, or None for a model without labelled arms.
    log_odds : LogOdds or None
        Statistics of each window (period of the log) on the log-odds scale, if the rewards of labelled arms
        are 0 or 1.

    >>> import tempfile, numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 2))
    >>> reward = x[:, 0] + rng.normal(size=2000)
    >>> model = ib.fit_logs(pa.table({"reward": reward, "x0": x[:, 0], "x1": x[:, 1]}))
    >>> model.select({"x0": [-1.0, 1.0], "x1": [0.0, 0.0]})
    1
    >>> path = tempfile.mkdtemp() + "/shop.model"
    >>> model.save(path)
    >>> ib.Model.load(path)
    Model(auto-isd, 2 features, 2,000 logged rounds)
    """

    policy: BasePolicy = field(metadata={"stored": False})
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
    fit: InvariantSubspaceDecomposition | None = field(
        default=None, repr=False, metadata={"stored": False}
    )
    ledger: Ledger = field(default_factory=Ledger, repr=False)
    arms: ArmTable | None = None
    log_odds: LogOdds | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._identity: str | None = None
        self.unknown_categories = dict[str, Counter[str]]()
        if not isinstance(self.policy, BasePolicy):
            raise InputError(
                "policy: a model stores its policy, which must be a BasePolicy,"
                f" got {type(getattr(self.policy, 'policy', self.policy)).__name__}"
            )
        sizes = (self.policy.dim, self.feature_map.dim, self.moments.dim)
        groups = self.feature_map.groups()
        # Moments may lack arms that came later, but nothing that is shared.
        has_moments = groups.shared <= self.moments.dim <= groups.dim
        if self.policy.dim != self.feature_map.dim or not has_moments:
            raise InputError(
                f"policy, feature_map and moments must have the same features, got {sizes}"
            )

    # -- serving --

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.feature_map.names

    def decide(
        self, context: Any = None, arms: Any = None, *, id: str | None = None
    ) -> Decision:
        """Choose an action, and remember the decision until `learn` gets its reward.

        A randomised policy draws anew for every decision, even if no reward came in between.

        Parameters
        ----------
        context : mapping of str to value, or row of a frame
            Values of the raw columns that all offered actions share, one value per column.
        arms : list of labels; or list of rows, columns or frame
            Labels of the offered arms, by default all active arms. If the model has no labelled arms, `arms`
            has the columns that differ between actions, as a list of mappings, a mapping of lists, or a
            frame.
        id : str, optional
            Identifier under which the reward will be reported, by default a random one. A repeated call with
            the id of a decision that waits for its reward returns the same decision.
        """
        with self._lock:
            name = self.ledger.new_id(id)
            if name in self.ledger.open:
                return self.ledger.open[name].decision
            labels, columns = self._offered(context, arms)
            features = self._mapped(columns)
            draw = self._draw() if self.policy.randomised else None
            choice = self.policy.decide(features, draw=draw)
            place = choice.action
            expected = (choice.means + self.baseline).tolist()
            actions: Sequence[Any] = labels or range(len(expected))
            scores = dict(zip(actions, expected, strict=True))
            decision = Decision(
                id=name,
                action=actions[place],
                propensity=float(choice.propensities[place]),
                scores=scores,
                version=self.identity,
            )
            kept = {key: serving.plain(values) for key, values in columns.items()}
            if labels:  # what all arms share is kept once
                kept = {
                    key: values[0]
                    for key, values in kept.items()
                    if key != self.schema.arm
                }
            self.ledger.add(OpenDecision(decision, place, kept, labels))
            return decision

    def decide_many(self, contexts: Any, arms: Any = None) -> Any:
        """Make a decision for every row of `contexts`, a data frame or a list of mappings.

        The same `arms` are offered in every row of `contexts`. The result is a list of decisions, or a data
        frame if `contexts` is one. The data frame has the columns id, action, propensity, scores (a mapping
        of actions to expected rewards) and version.
        """
        made = [self.decide(context, arms) for context in serving.rows_of(contexts)]
        names = ("id", "action", "propensity", "scores", "version")
        columns = {
            name: [getattr(decision, name) for decision in made] for name in names
        }
        return serving.like(contexts, columns, otherwise=made)

    def learn(self, decision: Decision | str, reward: float) -> bool:
        """Learn the reward of a decision; rewards may come late and in any order.

        Parameters
        ----------
        decision : Decision or str
            The decision or its id.
        reward : float
            Reward of the decision.

        Returns
        -------
        bool
            False if the model has already learned this reward. A different reward for the same decision
            raises InputError.
        """
        return self.learn_many([(decision, reward)]) == 1

    def learn_many(self, rewards: Iterable[tuple[Decision | str, float]]) -> int:
        """Learn many pairs (decision or its id, reward), all or none, and return how many were new."""
        pairs = list(rewards)
        with self._lock:
            owed = self.ledger.all_owed(pairs)
            for pending, reward in owed:
                labels = (
                    {str(self.schema.arm): list(pending.labels)}
                    if pending.labels
                    else {}
                )
                self.update({**pending.columns, **labels}, pending.place, reward)
                self.ledger.close(pending, reward)
            return len(owed)

    def _offered(
        self, context: Any, arms: Any
    ) -> tuple[tuple[str, ...], dict[str, list[Any]]]:
        """Return labels of the offered arms, none for feature rows, and the raw columns of the actions."""
        if self.arms is None:
            return (), self._columns(context, arms)
        labels = self.arms.active if arms is None else self.arms.offerable(arms)
        return labels, self._columns(
            {**serving.one_context(context), str(self.schema.arm): list(labels)}
        )

    def _columns(self, context: Any, arms: Any = None) -> dict[str, list[Any]]:
        """Raw columns with one value per offered action; of labelled arms, also their labels."""
        known = {column.name: column.width for column in self.feature_map.columns}
        vectors = [name for name, width in known.items() if width is not None]
        columns = serving.offered_columns(context, arms, vectors=vectors)
        if self.schema.ranking is not None and self.schema.position in known:
            columns = self._at_one_position(columns)
        serving.require_columns("context", list(known), columns)
        if self.schema.missing:
            columns = without_values(columns, self.schema.missing)
        wanted = (*known, self.feature_map.arm)
        return {name: columns[name] for name in wanted if name in columns}

    def _at_one_position(self, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the columns of items of a ranking, all at the first position unless it is given."""
        position = str(self.schema.position)
        if position in columns:
            return columns
        categories = next(
            column.categories
            for column in self.feature_map.columns
            if column.name == position
        )
        first = min(map(float, categories or ("0",)))
        items = len(next(iter(columns.values()), ()))
        return {**columns, position: [int(first)] * items}

    def _mapped(self, columns: dict[str, list[Any]]) -> Array:
        """Features (K, p) of raw columns with one value per action; unknown categories are counted."""
        for column in self.feature_map.columns:
            unknown = (
                column.unknown(columns.get(column.name, ()))
                if column.categories
                else ()
            )
            if unknown and column.name not in self.unknown_categories:
                known = (
                    f"none of the {len(column.categories or ())} categories of the logs"
                )
                warnings.warn(
                    UNKNOWN.format(column.name, sorted(unknown)[0], known), stacklevel=3
                )
            if unknown:
                self.unknown_categories.setdefault(column.name, Counter()).update(
                    unknown
                )
        return self.feature_map.design(columns)

    def add_arm(self, label: Any, features: Mapping[str, Any] | None = None) -> None:
        """Add a new arm, which starts at the mean of all arms with their spread as its uncertainty.

        Parameters
        ----------
        label : str
            Label of the new arm, which no present or retired arm may have.
        features : mapping of str to value, optional
            Features of the new arm, by the columns of the catalogue (the table of arm features of the log).
        """
        if not isinstance(label, str) or not label:
            raise InputError(f"label must be a text that is not empty, got {label!r}")
        with self._lock:
            table, known = self._arms("add_arm")
            grown = known.with_arm(label, features)
            more = getattr(self.policy, "with_arm", None)
            if more is None:
                raise InputError(
                    f"policy {self.policy_name!r} cannot take new arms; auto-isd can"
                )
            own = grown.catalogue[-1]
            self.policy = more(own if own.size else None)
            self.feature_map, self.arms = grown, table.with_arm(label)
            self._identity = None

    def retire_arm(self, label: str) -> None:
        """Never choose an arm again, but keep its label and what was learned from it."""
        with self._lock:
            table, _ = self._arms("retire_arm")
            self.arms = table.without(label)
            self._identity = None

    def _arms(self, what: str) -> tuple[ArmTable, ArmFeatures]:
        if self.arms is None or not isinstance(self.feature_map, ArmFeatures):
            raise InputError(
                f"{what}: this model is of feature rows, it has no labelled arms"
            )
        return self.arms, self.feature_map

    def _draw(self) -> float:
        """Return the number in [0, 1) that draws the next decision, another one for every decision."""
        return Draws(int(self.identity, 16)).at(self.ledger.made).random()

    def round_of(
        self, context: Any = None, arms: Any = None
    ) -> tuple[tuple[str, ...], Array]:
        """Return the labels of the K offered arms and their p features, an array (K, p).

        The parameters are those of `decide`. If the model has no labelled arms, the tuple of labels is empty.
        """
        labels, columns = self._offered(context, arms)
        return labels, self._mapped(columns)

    def features(self, offered: Any) -> Array:
        """Return the p features of the K offered actions of one round, as an array (K, p).

        The argument `offered` is a mapping of raw columns, a list of rows, or a data frame. A column in a
        mapping has one value per action, or one value for all actions. If the model has labelled arms,
        `offered` can have a column of labels; without this column all active arms are offered.
        """
        with self._lock:
            columns = self._columns(offered)
            if self.feature_map.arm not in (None, *columns):
                _, columns = self._offered(offered, None)
            return self._mapped(columns)

    def select(self, offered: Any) -> int:
        """Return the index of the action to play among the offered actions.

        The argument `offered` has any form that the method `features` takes.
        """
        with self._lock:
            return self.policy.select(self.features(offered))

    def select_many(self, rounds: Iterable[Any]) -> np.ndarray[Any, Any]:
        """Return the indices (N,) of the actions to play in N rounds.

        Each of the rounds has any form that the method `features` takes.
        """
        offers = list(rounds)
        if not offers:
            raise InputError("rounds is empty: at least one is needed")
        with self._lock, lock_of(self.policy):
            features = [self.features(offered) for offered in offers]
            sizes = np.array([len(rows) for rows in features])
            actions = np.empty(len(features), dtype=np.int64)
            for size in np.unique(sizes):
                places = np.flatnonzero(sizes == size)
                actions[places] = self.policy.select_many(
                    np.stack([features[place] for place in places])
                )
        return actions

    def propensities(self, offered: Any) -> Array:
        """Return the probability (K,) with which each of the K offered actions is the next choice."""
        with self._lock:
            return self.policy.propensities(self.features(offered))

    def scores(self, offered: Any) -> Scores:
        """Return expected rewards (K,) and confidence widths (K,) of the K offered actions."""
        with self._lock:
            scores = self.policy.scores(self.features(offered))
        return Scores(scores.mean + self.baseline, scores.width, scores.propensities)

    def update(self, offered: Any, action: int, reward: float) -> None:
        """Learn the reward of the action that was played.

        The argument `action` is the index of the played action among the offered actions. A reward of which
        less is better is given as it is, as in the log.
        """
        with self._lock:
            features = self.features(offered)
            action, last = whole_number("action", action, 0), len(features) - 1
            if action > last:
                raise InputError(
                    f"action must be one of the {last + 1} offered, 0 to {last}, got {action}"
                )
            gain = self.schema.learned_reward(reward_number(reward)) - self.baseline
            self.policy.update(features[action], gain, offered=features, action=action)

    def update_from(
        self,
        source: Any,
        schema: SchemaLike = None,
        *,
        windows: int | None = None,
        every: Any = None,
        exploration: float | None = None,
        horizon: int | None = None,
        engine: Any = "local",
        address: str | None = None,
        strict: bool = False,
        keep_going: bool = False,
        progress: Progress | None = None,
    ) -> Update:
        """Return a new model that also has the rounds of a new log, as further windows (periods of the log).

        The features stay those of the model, unless the coefficient of a feature can no longer be estimated.
        The new policy learns from all logged rounds, and forgets online rewards that are not in the new log.
        Decisions that wait for a reward can still be rewarded.

        Parameters
        ----------
        source : path, table or Log
            Log of the new rounds, as `open_log` takes it, none of which the model has learned.
        schema : Schema, mapping, path of a TOML file or None
            Roles of the columns, by default those of the model.
        windows : int, optional
            Number of windows (periods) into which the new rounds are cut.
        every : str or number, optional
            Length of the new windows (periods), if `windows` is not given. By default new windows are as
            long as the old windows of the model.
        exploration, horizon :
            As in `fit_logs`. By default the exploration is that of the model before the update.
        engine, address, strict, keep_going, progress :
            As in `Log.moments`.

        >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(5000, 2))
        >>> log = pa.table({"reward": x.sum(axis=1) + rng.normal(size=5000), "x0": x[:, 0], "x1": x[:, 1]})
        >>> update = ib.fit_logs(log.slice(0, 4000)).update_from(log.slice(4000))
        >>> update.model.moments.windows, update.model.moments.rounds, update.alarm
        (10, 5000, False)
        """
        from invariant_bandits.model.update import update_model

        return update_model(
            self,
            source,
            schema,
            windows=windows,
            every=every,
            exploration=exploration,
            horizon=horizon,
            engine=engine,
            address=address,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
        )

    # -- explaining --

    @cached_property
    def decomposition(self) -> InvariantSubspaceDecomposition:
        """Decomposition of the features into stable and drifting directions."""
        if self.fit is not None:
            return self.fit
        return decomposed(self.moments, self.feature_map)

    @property
    def identity(self) -> str:
        """Hash of the log and the features, twelve hexadecimal digits; learning does not change the hash."""
        with self._lock:
            if self._identity is None:
                fitted = {
                    "features": self.feature_map,
                    "arms": self.arms,
                    "moments": self.moments,
                }
                settings, arrays = storage.to_state(fitted)
                text = json.dumps([self.policy_name, self.version, settings])
                self._identity = storage.digest("model", text, arrays)[:12]
            return self._identity

    def arm_evidence(self) -> tuple[ArmEvidence, ...]:
        """Return what the log says of its arms: of all together or, of many coefficients, arm by arm."""
        from invariant_bandits.decomposition.effects import arm_evidence

        features = self._arms("arm_evidence")[1]
        if isinstance(features, PooledLevels):
            features = features.population
        places = new_places(self.moments, features)
        moments = self.moments.padded(places) if len(places) else self.moments
        odds = (
            self.log_odds.padded(places)
            if self.log_odds is not None and len(places)
            else self.log_odds
        )
        statistics = ArmStatistics.from_moments(features, moments, odds)
        known = getattr(unwrapped(self.policy), "prior", None)
        return arm_evidence(features, statistics, known)

    def effects(self, *, by_window: bool = False) -> pandas.DataFrame:
        """List every effect on the reward, with its value before and after a drift. Needs pandas.

        Effects that drift come first in the list. Effects are in units of the reward, or probabilities if the
        reward is 0 or 1. The effects of a labelled arm are its level (expected reward in the mean context)
        and what one standard deviation of each column adds to the expected reward. If the model has no
        labelled arms, an effect is what one standard deviation of a feature adds to the expected reward, or
        of a mixture of features if drift is only known of the mixture. The name of the effect then is the
        mixture, such as "age − 0.5·hour". The columns `last` and `last_error` have the estimate in the last
        window (period) of the log and its standard error.

        Parameters
        ----------
        by_window : bool
            Whether the result has one row per effect and window (period of the log) instead of one row per
            effect. With `by_window=True` each row has the effect's value in one window and its 95 % interval.

        >>> import numpy as np, pandas as pd, invariant_bandits as ib
        >>> rng = np.random.default_rng(0)
        >>> hour, arm = rng.normal(size=8000), rng.choice(["a", "b"], size=8000)
        >>> slope = np.where(arm == "a", np.repeat([1.0, -1.0], 4000), 0.5)            # it breaks half-way
        >>> log = pd.DataFrame({"hour": hour, "arm": arm, "reward": slope * hour + rng.normal(size=8000)})
        >>> model = ib.fit_logs(log)
        >>> model.effects().loc[0, ["arm", "effect", "verdict", "changed"]].tolist()
        ['a', 'hour', 'drifts', '5']
        >>> model.effects().loc[0, ["before", "after"]].astype(float).round(1).tolist()
        [1.0, -1.0]
        """
        from invariant_bandits.decomposition.effects import (
            effect_paths,
            effect_rows,
            window_rows,
        )

        rows = window_rows if by_window else effect_rows
        return require("pandas", "effects").DataFrame(
            rows(effect_paths(self), self.moments.edges)
        )

    def plot(self, axes: Any = None, *, most: int = 6, theme: str = "light") -> Any:
        """Draw each effect over the windows (periods) of the log with 95 % intervals. Needs matplotlib.

        Parameters
        ----------
        axes : matplotlib Axes, or array of them, optional
            Where to draw, one effect per Axes, by default in a new figure.
        most : int
            Number of effects in a new figure, drifting effects first.
        theme : "light" or "dark"
            Colour theme of the figure.

        Returns
        -------
        array of Axes
        """
        from invariant_bandits import plotting
        from invariant_bandits.decomposition.effects import effect_paths

        shown = effect_paths(self)[: most if axes is None else np.size(axes)]
        return plotting.curves(shown, self.moments.edges, axes=axes, theme_name=theme)

    def _repr_html_(self) -> str:
        """What a notebook shows: the drifting effects in words and as curves."""
        from invariant_bandits import plotting
        from invariant_bandits.decomposition.effects import effect_paths

        paths, edges = effect_paths(self), self.moments.edges
        drifting = [path for path in paths if path.drifts]
        found = f"{len(drifting)} of {len(paths)} effects drift"
        lines = [f"{path.title}: {path.in_words(edges)}" for path in drifting[:NAMED]]
        words = "\n".join([repr(self), found, *lines])
        return plotting.notebook_html(
            words, lambda: self.plot(most=max(min(len(drifting), 6), 3))
        )

    @property
    def shared_slopes(self) -> str | None:
        """Sentence that says which columns of the context cannot change the choice and what to do about it.

        None if every column can: arms then have slopes (coefficients of columns) of their own.
        """
        return self.feature_map.silent_context()

    def explain(self) -> Any:
        """Return the policy's beliefs about drift, or the summary of the log if the policy has no beliefs.

        If columns of the context cannot change the choice, the result says so first.
        """
        with self._lock:
            explanation = self.policy.explain(list(self.names))
            if explanation is None:
                explanation = self.decomposition.summary()
        if self.shared_slopes is None:
            return explanation
        caution = in_sentence(self.shared_slopes)
        if isinstance(explanation, Belief):
            return replace(explanation, caution=caution)
        return f"{caution}\n\n{explanation}"

    def __repr__(self) -> str:
        features, rounds = self.feature_map.dim, self.moments.rounds
        return (
            f"Model({self.policy_name}, {features} features, {rounds:,} logged rounds)"
        )

    # -- storing --

    @staticmethod
    def state_schema(
        settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """What a model with these settings must hold, if its arrays have these names."""
        fitted = storage.schema_of(
            Model, [name for name in names if not name.startswith(POLICY)]
        )
        policy = base.state_schema(
            settings["policy"], list(storage.under(dict.fromkeys(names), POLICY))
        )
        return replace(fitted, parts={**fitted.parts, POLICY: policy})

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one file with a checksum, replacing `path` atomically."""
        storage.replace_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of a file that holds the model."""
        with self._lock:
            policy, policy_arrays = base.to_state(self.policy)
            settings, arrays = storage.to_state(self)
        settings["policy"] = policy
        arrays |= storage.prefixed(POLICY, policy_arrays)
        self.state_schema(settings, arrays).check(arrays)
        return storage.encode(KIND, arrays, settings)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a file written by `save`; a damaged, foreign or newer file raises FileError."""
        return cls.from_bytes(storage.contents(path), str(path))

    @classmethod
    def from_bytes(cls, content: bytes | bytearray, name: str) -> Self:
        """Return the model that the content of a file holds.

        The argument `name` is the name of the file in error messages.
        """
        arrays, settings = storage.decode(content, KIND, name, cls.state_schema)
        try:
            policy = base.from_state(
                settings.pop("policy"), storage.under(arrays, POLICY)
            )
            own = {
                key: array
                for key, array in arrays.items()
                if not key.startswith(POLICY)
            }
            return storage.from_state(cls, settings, own, policy=policy)
        except Exception as error:
            raise storage.not_whole(name, KIND, error) from None


def load(path: str | PathLike[str]) -> Any:
    """Read a file that `save` wrote and return its policy, Model or WindowedMoments.

    Parameters
    ----------
    path : str or PathLike
        Path of the file. A truncated, altered, foreign or newer file raises FileError.

    >>> import pathlib, tempfile, invariant_bandits as ib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "policy.bin")
    ...     ib.save(ib.LinUCB(2), path)
    ...     _ = path.write_bytes(path.read_bytes()[:-1])
    ...     ib.load(path)
    Traceback (most recent call last):
    invariant_bandits.storage.FileError: ...
    """
    readers: dict[str | None, Any] = {
        KIND: Model.from_bytes,
        MOMENTS: WindowedMoments.from_bytes,
    }
    return readers.get(storage.kind_of(path), base.from_bytes)(
        storage.contents(path), str(path)
    )


def save(
    thing: BasePolicy | Model | WindowedMoments, path: str | PathLike[str]
) -> None:
    """Write a policy, a Model or WindowedMoments to a file, replacing an old file atomically.

    >>> import tempfile, invariant_bandits as ib
    >>> policy = ib.LinUCB(2)
    >>> policy.update([1.0, 0.0], 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ib.save(policy, f"{folder}/policy.bin")
    ...     ib.load(f"{folder}/policy.bin")
    LinUCB(dim=2, memory=Forever(), rounds=1)
    """
    stored = (
        thing.to_bytes()
        if isinstance(thing, Model | WindowedMoments)
        else base.to_bytes(thing)
    )
    storage.replace_file(path, stored)


def new_places(moments: WindowedMoments, features: FeatureMap) -> Array:
    """Where, in the features of moments, those of arms come in that the moments do not know."""
    groups = features.groups()
    more = groups.dim - moments.dim
    return np.full(more, groups.own_dim - more)


def decomposed(
    moments: WindowedMoments, features: FeatureMap
) -> InvariantSubspaceDecomposition:
    """What is stable and what drifts in a log of these moments."""
    mean = moments.counts @ moments.feature_mean / moments.rounds
    decomposition = InvariantSubspaceDecomposition(
        feature_names=features.names,
        intercept=not features.has_levels,
        missing=missing_columns(features, features.names, mean),
    )
    # The findings of the fit say whether it converged.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return decomposition.fit(moments)
