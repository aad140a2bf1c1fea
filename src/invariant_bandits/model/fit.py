"""From a log to a Model: read, make it estimable, decompose, start a policy that knows it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from threadpoolctl import threadpool_limits

from invariant_bandits.checks import Array, InputError, probability
from invariant_bandits.decomposition.arm_statistics import (
    CHUNK,
    ArmLayout,
    ArmStatistics,
    LogitSums,
    LogOdds,
    Rounds,
    fit_levels,
    fit_logistic,
    logistic_bias,
    sum_logit,
)
from invariant_bandits.decomposition.estimator import exactness_findings
from invariant_bandits.logs.aggregation import SMALLEST_WEIGHT, LogitWeights
from invariant_bandits.logs.arm_coding import has_binary_rewards
from invariant_bandits.logs.arm_features import (
    ArmFeatures,
    SharedSlopesWarning,
    in_sentence,
)
from invariant_bandits.logs.arm_moments import ArmSample
from invariant_bandits.logs.arms import SOURCES
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.feature_maps import FeatureMap, FeatureOptions
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.missing_rewards import missing_rewards_note
from invariant_bandits.logs.pruning import prune
from invariant_bandits.logs.read import read_arm_sample
from invariant_bandits.logs.reader import rare_categories
from invariant_bandits.logs.scan import LogMoments, Progress, open_scan
from invariant_bandits.logs.schema import SchemaLike, named_features, with_fields
from invariant_bandits.logs.spill import RoundSpool
from invariant_bandits.logs.survey import MOST_LEVELS
from invariant_bandits.logs.wide_columns import reduction_notes
from invariant_bandits.model.model import Model, decomposed
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.pooled_arms import PooledArms
from invariant_bandits.policies.randomised import unwrapped
from invariant_bandits.policies.registry import Contender, find_policy

SHORT, LONG = 0.25, 1.5
"""Shares of the usual rounds of a window: a first or last one below the first joins its neighbour, unless
that is above the second, such as one that was joined before.
"""
CONSTANT = 1e-12
"""Relative variance of rewards that are all equal, up to rounding."""


FIXED_ARMS = (
    "the log has no context, so every round offers the same arms, and the reward of the arm that is played"
    " says nothing of the others: if the arms' values may change, fit with caution=None (--caution none)."
    " With five simulated arms and 2,000 rounds that cost 9 standard deviations of the noise in all where"
    " nothing had changed, and saved 300 where half of the arms had"
)
"""Note of a model of AutoISD whose tests are limited; the numbers are those of docs/studies/constants.md."""


def read_log_odds(
    log: Log,
    features: ArmFeatures,
    theta: Array,
    spool: RoundSpool | None = None,
    **how: Any,
) -> LogOdds:
    """What the windows of a log of clicks say of log-odds.

    Parameters
    ----------
    log : Log
        Opened.
    features : ArmFeatures
        As learned from it, or before.
    theta : array, shape (p,)
        What to expand about, such as that of `logistic_start`.
    spool : RoundSpool, optional
        Rounds that were kept when the log was read with the same windows.
    how :
        How to cut and read it: windows, every, edges, engine, address.
    """
    scan = open_scan(log, keep_going=True, **how)
    read = scan.moments(features, LogitWeights.at(features, theta), spool)
    return LogOdds(theta, read.moments)


class LogisticStart(NamedTuple):
    """A ridge fit to a sample of the log's clicks.

    Attributes
    ----------
    theta : array, shape (p,)
        Coefficients.
    bias : array, shape (p,)
        By how much a fit to the whole log overstates them (`logistic_bias`).
    """

    theta: Array
    bias: Array


def logistic_start(sample: ArmSample, features: ArmFeatures) -> LogisticStart:
    """Fit the coefficients of clicks to a sample of the log."""
    layout = ArmLayout.of_features(features)
    if not layout.shared:
        fitted = fit_logistic(partial(_sum_by_arm, sample, layout), layout)
        return LogisticStart(fitted.theta, np.zeros(layout.dim))
    crossed = (
        None
        if features.catalogue is None
        else features.catalogue[:, : features.crossed]
    )
    parts = [
        slice(first, first + CHUNK) for first in range(0, len(sample.rewards), CHUNK)
    ]

    def rounds() -> Iterator[tuple[Array, Array, Array]]:
        for part in parts:
            phi = layout.features(sample.contexts[part], sample.arms[part], crossed)
            yield phi, sample.rewards[part], np.zeros(len(phi), dtype=np.int64)

    fitted = fit_logistic(lambda theta: sum_logit(rounds(), theta, 1), layout)
    # The bias falls with the number of rounds.
    bias = sample.share * logistic_bias(rounds(), fitted, layout)
    return LogisticStart(fitted.theta, bias)


def _sum_by_arm(sample: ArmSample, layout: ArmLayout, theta: Array) -> LogitSums:
    """One pass over rounds of arms that share nothing: Σhφφᵀ has one block per arm."""
    information = np.zeros((1, layout.dim, layout.dim))
    gradient = np.zeros((1, layout.dim))
    likelihood = variance = 0.0
    for arm in range(layout.arms):
        rows, own = np.flatnonzero(sample.arms == arm), layout.arm(arm)
        rounds = (
            sample.contexts[rows],
            sample.rewards[rows],
            np.zeros(len(rows), dtype=np.int64),
        )
        sums = sum_logit([rounds], theta[own], 1)
        information[0, own, own] = sums.information[0]
        gradient[0, own] = sums.gradient[0]
        likelihood = likelihood + sums.log_likelihood
        variance = variance + sums.variance
    return LogitSums(
        theta=theta,
        information=information,
        gradient=gradient,
        log_likelihood=likelihood,
        variance=variance,
    )


def fit_logs(
    source: Any,
    schema: SchemaLike = None,
    *,
    policy: str = "auto-isd",
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | FeatureMap | Sequence[str] | None = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    delta: float = 0.01,
    exploration: float | None = None,
    caution: float | None = 0.0,
    horizon: int | None = None,
    progress: Progress | None = None,
    catalogue: Any = None,
    arms: Sequence[str] | None = None,
    arm_model: str | None = None,
    keep_going: bool = False,
    **fields: Any,
) -> Model:
    """Read a log and fit a model to it.

    The log is cut into windows (periods), as in `Log.moments`. A window with hardly any rounds is joined to
    its neighbour, and so is a first or last window with less than a quarter of the usual rounds. Features
    whose coefficient no window can estimate are left out. The attributes `notes` and `dropped` of the model
    list joined windows and left-out features.

    Parameters
    ----------
    policy : str
        Name of a registered policy. The policy starts with what it can learn from the logged rounds, unless
        its name ends in "-cold".
    delta : float
        Probability η with which the confidence bounds of the policy may fail.
    exploration : float, optional
        Factor on the confidence widths of policies such as LinUCB, by default the policy's own factor. The
        policy AutoISD has the parameter `caution` instead of `exploration`.
    caution : float or None
        Share of its expected gain that the policy AutoISD may spend on tests of rarely played actions, or
        None for no limit. A `caution` of None suits a few fixed arms whose values may change.
    horizon : int, optional
        Number of rounds that the model will decide, for policies that plan ahead.
    features : FeatureOptions, FeatureMap or list of str, optional
        How columns become features, or a list of the names or patterns of the feature columns.
    catalogue, arms :
        Features and labels of the arms, for a log with labelled arms, as in `open_log`.
    arm_model : "own", "shared", "pooled" or "auto", optional
        Which coefficients the arms of the log share. With `arm_model="own"` every arm has its own coefficient
        for every feature. With `arm_model="shared"` every arm has its own level, and all arms share the
        coefficients of features. With `arm_model="pooled"`, meant for thousands of arms, all arms share the
        coefficients of features, and the arms' levels are shrunk towards their mean. With `arm_model="auto"`
        arms get as many coefficients as the log can estimate. A SharedSlopesWarning names the columns that
        cannot change the choice because all arms share their coefficients.
    source, schema, windows, every, edges, engine, address, strict, keep_going, progress :
        As in `Log.moments`.
    fields :
        Fields of Schema by keyword, such as reward="clicked", arm="banner", time="served",
        propensity="p"; None says that the log has no such column.

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
    start = PolicyStart(
        name=policy,
        exploration=exploration,
        delta=delta,
        horizon=horizon,
        caution=caution,
    )
    start.contender()  # a policy that is not known is refused before the log is read
    schema, known = named_features(with_fields(schema, fields), features)
    options = None if isinstance(known, FeatureMap) else known or FeatureOptions()
    raw = (
        known
        if options is None
        else replace(options, standardise="none", drop_collinear=False)
    )
    with threadpool_limits(
        1, user_api="blas"
    ):  # of narrow matrices, threads only wait for each other
        log = open_log(source, schema, catalogue=catalogue, arms=arms)
        log.schema.require_action()
        log.schema.require_direction()
        if arm_model is not None and options is not None:
            raw = replace(options, arm_model=arm_model)
        how = {
            "windows": windows,
            "every": every,
            "edges": edges,
            "engine": engine,
            "address": address,
        }
        scan = open_scan(
            log,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
            keep_rounds=True,
            **how,
        )
        read = scan.moments(raw)
        if not keep_going:
            require_different_rewards(read.moments, read.schema.reward)
        unequal = missing_rewards_note(log)
        gaps = complementary_gaps(read)
        rare = rare_categories(log, read.feature_map)
        reductions = reduction_notes(read.feature_map.columns)
        unequal_notes = [unequal] if unequal else []
        notes = (*log.notes, *unequal_notes, *gaps, *rare, *reductions)
        if (
            isinstance(read.feature_map, ArmFeatures)
            and read.feature_map.coding == "pooled"
        ):
            model = pooled_model(read, start, notes)
        else:
            model = model_of_log(log, read, start, options, how, notes)
    if model.shared_slopes is not None:
        warnings.warn(
            in_sentence(model.shared_slopes), SharedSlopesWarning, stacklevel=2
        )
    return model


def model_of_log(
    log: Log,
    read: LogMoments,
    start: PolicyStart,
    options: FeatureOptions | None,
    how: dict[str, Any],
    notes: tuple[str, ...],
) -> Model:
    """Make the model of a log whose moments were read; `how` is how `open_scan` cut and read it."""
    moments, join, joined = join_short_ends(read.moments)
    fields: dict[str, Any] = {
        "schema": read.schema,
        "quality": read.quality,
        "notes": (*notes, *joined),
    }
    if read.of_arms is not None:
        if read.of_arms.rewards_are_binary:
            learned = read.of_arms.features
            start_at = logistic_start(
                read.sample or read_arm_sample(log, learned), learned
            )
            odds = read_log_odds(log, learned, start_at.theta, read.spool, **how)
            unbiased = join(odds.moments).residual_after(start_at.bias)
            fields["log_odds"] = replace(odds, moments=unbiased)
        coding = f"coefficients: {read.of_arms.features.coding}, {read.coding_reason}"
        fields |= {"arms": log.arms, "dropped": read.dropped}
        fields["notes"] = (*fields["notes"], coding, SOURCES[log.arms.source])
    return model_of(moments, read.feature_map, start, options=options, **fields)


def require_different_rewards(moments: WindowedMoments, column: str) -> None:
    """Raise InputError if every reward of a log is the same, because nothing can be learned from it."""
    whole = moments.chosen.grouped(np.array([0]))
    mean = float(whole.mean[0, -1])
    variance = float(whole.scatter[0, -1, -1]) / max(moments.rounds, 1)
    if variance <= CONSTANT * max(mean * mean, CONSTANT):
        what = f"every reward of the log is {mean:.6g} (column {column!r}): nothing can be learned from it"
        how = "name another column (--reward COLUMN) or, if rows repeat a decision, say which reward counts"
        raise InputError(
            f"{what}; {how} (--repeated max); --keep-going goes on all the same"
        )


GAPS_APART, LEAST_GAP = 0.002, 0.02
"""Share of the rows by which the gaps of two columns may fail to complement each other, and the least gap."""


def complementary_gaps(read: LogMoments) -> list[str]:
    """Notes of two columns of one kind, one of which is missing in as many rows as the other is there."""
    features, missing = read.feature_map, read.quality.imputed
    columns = {
        column.name: column for column in features.columns if column.name in missing
    }
    # Missing values are counted in rows, also in those that repeat a decision.
    rows = max(read.quality.rounds + read.quality.merged, 1)
    notes = []
    for first, second in combinations(columns, 2):
        shares = missing[first] / rows, missing[second] / rows
        complement = abs(sum(shares) - 1.0) < GAPS_APART and min(shares) > LEAST_GAP
        words = [set(columns[name].categories or ()) for name in (first, second)]
        alike = (
            not any(words)
            or len(words[0] & words[1]) >= 0.5 * min(map(len, words)) > 0.0
        )
        if complement and alike:
            gaps = f"{100 * shares[0]:.2g} % of the rows and {second!r} in the other {100 * shares[1]:.2g} %"
            notes.append(
                f"{first!r} is missing in {gaps}: if the column was renamed, say --rename {first}={second}"
            )
    return notes


def pooled_model(read: LogMoments, start: PolicyStart, notes: tuple[str, ...]) -> Model:
    """The model of a log of thousands of arms: levels, and a policy over what arms share.

    Its moments are those of [1, shared features] and of rewards less the levels of their arms.
    """
    features = read.feature_map
    sample = read.sample
    table = read.arms
    assert isinstance(features, ArmFeatures)
    assert sample is not None
    assert table is not None
    if find_policy(start.name).kind is not AutoISD:
        raise InputError(
            f"policy {start.name!r} takes at most {MOST_LEVELS} arms; auto-isd takes more"
        )
    parts = [
        slice(first, first + CHUNK) for first in range(0, len(sample.rewards), CHUNK)
    ]
    clicks, windows = has_binary_rewards(read.moments), read.moments.windows

    def rounds() -> Iterator[Rounds]:
        for part in parts:
            phi = features.cross(sample.contexts[part], sample.arms[part])
            phi[:, 0] = 1.0
            yield phi, sample.rewards[part], sample.arms[part], sample.windows[part]

    levels = fit_levels(
        rounds, dim=features.dim, arms=len(table), windows=windows, clicks=clicks
    )
    moments, odds = (WindowedMoments.empty(features.dim, windows) for _ in range(2))
    for phi, rewards, arms, window in rounds():
        moments.update(
            phi, rewards - (0.0 if clicks else levels.fitted[arms]), window=window
        )
        if clicks:
            linear = phi @ levels.theta
            expected = special.expit(linear + levels.fitted[arms])
            root = np.sqrt(np.maximum(expected * (1.0 - expected), SMALLEST_WEIGHT))
            odds.update(
                phi * root[:, None],
                root * linear + (rewards - expected) / root,
                window=window,
            )
    moments, join, joined = join_short_ends(replace(moments, edges=read.moments.edges))
    about = f"coefficients: {features.coding}, {read.coding_reason}"
    sampled = f"an even sample of {len(sample.rewards):,} of {read.quality.rounds:,} rounds was read"
    words = (
        *notes,
        *joined,
        about,
        SOURCES[table.source],
        *([sampled] if sample.share < 1.0 else []),
    )
    fields: dict[str, Any] = {
        "schema": read.schema,
        "quality": read.quality,
        "dropped": read.dropped,
    }
    fields |= {
        "notes": words,
        "log_odds": LogOdds(levels.theta, join(odds)) if clicks else None,
    }
    shared = model_of(moments, features.population, start, **fields)
    policy = PooledArms(unwrapped(shared.policy), levels)
    fields |= {"notes": shared.notes, "moments": shared.moments, "arms": table}
    return Model(policy, start.name, features, **fields)


def join_short_ends(
    moments: WindowedMoments,
) -> tuple[
    WindowedMoments, Callable[[WindowedMoments], WindowedMoments], tuple[str, ...]
]:
    """Moments whose first and last window have joined their neighbours if they are short, what does the same
    to other moments of these windows, and a note of it.

    A log rarely begins and ends with a whole week: a window of a few rounds at its end is not evidence of a
    period of its own.
    """
    counts = moments.counts
    starts = list(range(moments.windows))
    notes = []
    usual = float(np.median(counts[1:-1])) if len(counts) > 2 else 0.0
    for end, beside, at, name in ((-1, -2, -1, "last"), (0, 1, 1, "first")):
        if (
            len(starts) > 2
            and 0.0 < counts[end] < SHORT * usual
            and counts[beside] < LONG * usual
        ):
            starts.pop(at)
            about = f"{int(counts[end]):,} rounds, others {int(usual):,}"
            notes.append(
                f"the {name} window has few rounds ({about}): it was joined to its neighbour"
            )
    if not notes:
        return moments, lambda same: same, ()
    return (
        moments.regrouped(np.array(starts)),
        lambda same: same.regrouped(np.array(starts)),
        tuple(notes),
    )


class PolicyStart(NamedTuple):
    """Which policy a model starts with, and how.

    Attributes
    ----------
    name : str
        As the caller asked for it.
    exploration : float or None
        Factor on the widths; the policy's own default if not given.
    delta : float
        Probability η with which the confidence bounds of the policy may fail.
    horizon : int or None
        How many rounds will be served.
    caution : float or None
        Of policies that have it; None for no limit.
    """

    name: str
    exploration: float | None
    delta: float
    horizon: int | None = None
    caution: float | None = 0.0

    def contender(self) -> Contender:
        """The policy as a log is fitted with it: it has learned the logged rounds, if it can."""
        entry = find_policy(self.name)
        delta = probability("delta", self.delta)
        forgets = any(
            map(entry.takes, ("window", "discount", "every"))
        )  # needs rounds, not moments
        options = {
            "exploration": self.exploration,
            "delta": delta,
            "warm": not forgets or None,
        }
        if self.exploration is not None:
            entry.check({"exploration": self.exploration})
        if self.caution != 0.0:
            entry.check({"caution": self.caution})
        options = {
            name: value
            for name, value in options.items()
            if value is not None and entry.takes(name)
        }
        if entry.takes("caution"):
            options["caution"] = self.caution
        return Contender(entry.name, options)


def caution_of(model: Model) -> float | None:
    """The caution that a model's policy was given beside its name; 0 where it has none."""
    if not find_policy(model.policy_name).takes("caution"):
        return 0.0
    caution: float | None = unwrapped(model.policy).caution
    return caution


def model_of(
    moments: WindowedMoments,
    features: FeatureMap | ArmFeatures,
    start: PolicyStart,
    *,
    options: FeatureOptions | None = None,
    log_odds: LogOdds | None = None,
    dropped: tuple[Dropped, ...] = (),
    notes: tuple[str, ...] = (),
    **fields: Any,
) -> Model:
    """Make the model of moments that were read: find what is usable, start the policy.

    Parameters
    ----------
    moments : WindowedMoments
        Of the features that `features` encodes or, without `options`, of its standardised features.
    features, options : FeatureMap or ArmFeatures, FeatureOptions or None
        What the features are, and what `prune` still learns from the moments.
    start : PolicyStart
        The policy.
    log_odds : LogOdds or None
        If rewards of labelled arms are 0 or 1.
    dropped, notes, fields :
        Further fields of the model.
    """
    past: dict[str, Any]
    if isinstance(
        features, ArmFeatures
    ):  # they have levels of their own and no baseline to take off
        linear = ArmStatistics.from_moments(features, moments)
        clicks = partial(ArmStatistics.from_moments, features, moments, log_odds)
        past = {"arm_statistics": clicks if log_odds else lambda: linear}
        noise = float(np.sqrt(linear.noise_variance))
        fit = None
        baseline = 0.0
        notes = (
            *notes,
            *exactness_findings(linear.noise_variance, moments, levels=True),
        )
    else:
        pruned = prune(moments, features, options)
        moments = pruned.moments
        features = pruned.feature_map
        baseline = 0.0
        dropped, notes = (*dropped, *pruned.dropped), (*notes, *pruned.notes)
        if not find_policy(
            start.name
        ).keeps_baseline:  # features and rewards count from the means of the log
            baseline = float(moments.counts @ moments.reward_mean) / moments.rounds
            mean = moments.counts @ moments.feature_mean / moments.rounds
            moments = moments.rescaled(
                np.arange(moments.dim), mean, np.ones(moments.dim)
            )
            features = features.shifted(mean)
        fit = decomposed(moments, features)
        noise, past = fit.noise_scale_, {"decomposition": fit}
    past |= {
        "noise_scale": max(noise, 1e-12),
        "delta": start.delta,
        "horizon": start.horizon,
    }
    past["suggested_window"] = max(moments.rounds // moments.windows, 1)
    policy = start.contender()(Past(moments=moments, baseline=baseline, **past))
    if isinstance(features, ArmFeatures) and not features.columns:
        limited = getattr(unwrapped(policy), "caution", None) is not None
        notes = (*notes, FIXED_ARMS) if limited else notes
    fields |= {
        "dropped": dropped,
        "notes": tuple(dict.fromkeys(notes)),
        "fit": fit,
        "log_odds": log_odds,
    }
    return Model(
        policy, start.name, features, moments=moments, baseline=baseline, **fields
    )
