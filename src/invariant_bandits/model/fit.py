"""From a log to a Model: read, make it estimable, decompose, start a policy that knows it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from threadpoolctl import threadpool_limits

from invariant_bandits.checks import Array, InputError, in_sentence, probability
from invariant_bandits.decomposition.arm_deviations import Rounds, fit_levels
from invariant_bandits.decomposition.arm_statistics import (
    CHUNK,
    ArmLayout,
    ArmStatistics,
    LogitSums,
    LogOdds,
    fit_logistic,
    logistic_bias,
    sum_logit,
)
from invariant_bandits.decomposition.estimator import exactness_findings
from invariant_bandits.features.arm_maps import (
    ArmCoefficients,
    PooledLevels,
    SharedSlopesWarning,
)
from invariant_bandits.features.arm_moments import ArmSample
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.features.maps import FeatureMap, FeatureOptions
from invariant_bandits.features.sharing import (
    MOST_DENSE_COEFFICIENTS,
    has_binary_rewards,
    needs_blocks,
)
from invariant_bandits.features.wide_columns import reduction_notes
from invariant_bandits.logs.aggregation import SMALLEST_WEIGHT
from invariant_bandits.logs.arms import SOURCES
from invariant_bandits.logs.category_effects import category_notes, with_codes
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.missing_rewards import (
    MissingWeights,
    missing_rewards_note,
)
from invariant_bandits.logs.pruning import prune
from invariant_bandits.logs.reader import rare_categories
from invariant_bandits.logs.scan import (
    LogMoments,
    Progress,
    Scan,
    open_scan,
    read_arm_sample,
)
from invariant_bandits.logs.schema import SchemaLike, named_features, with_fields
from invariant_bandits.logs.survey import MOST_LEVELS
from invariant_bandits.logs.windows import join_short_ends
from invariant_bandits.model.model import Model, decomposed
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.pooled_arms import PooledArms
from invariant_bandits.policies.registry import PolicySpec, find_policy
from invariant_bandits.policies.wrapper import unwrapped

UNRELATED_ARMS = (
    "the catalogue does not relate the arms, because they have more than"
    f" {MOST_DENSE_COEFFICIENTS} own coefficients: a new arm starts from the mean of all arms"
)
"""What a model of many own coefficients leaves out of a catalogue."""
CONSTANT = 1e-12
"""Relative variance of rewards that are all equal, up to rounding."""


FIXED_ARMS = (
    "the log has no context, so every round offers the same arms, and the reward of the arm that is played"
    " says nothing of the others: if the arms' values may change, fit with caution=None (--caution none)."
    " With five simulated arms and 2,000 rounds that cost 9 standard deviations of the noise in all where"
    " nothing had changed, and saved 300 where half of the arms had"
)
"""Note of a model of AutoISD whose tests are limited; the numbers are those of docs/studies/constants.md."""


def read_log_odds(scan: Scan, features: ArmCoefficients, theta: Array) -> LogOdds:
    """Return what the windows of a log of clicks say of log-odds.

    Parameters
    ----------
    scan : Scan
        Of the log; it reads the rounds that its first pass kept.
    features : ArmCoefficients
        As learned from the log, or before.
    theta : array, shape (p,)
        What to expand about, such as that of `logistic_start`.
    """
    return LogOdds(theta, scan.click_moments(features, theta).of_features())


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


def logistic_start(sample: ArmSample, features: ArmCoefficients) -> LogisticStart:
    """Fit the coefficients of clicks to a sample of the log."""
    layout = ArmLayout.of_features(features)
    if not layout.shared:
        fitted = fit_logistic(partial(_sum_by_arm, sample, layout), layout)
        return LogisticStart(fitted.theta, np.zeros(layout.dim))
    parts = [
        slice(first, first + CHUNK) for first in range(0, len(sample.rewards), CHUNK)
    ]

    def rounds() -> Iterator[tuple[Array, Array, Array]]:
        for part in parts:
            phi = layout.features(
                sample.contexts[part], sample.arms[part], features.explaining
            )
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
    weight_missing: Sequence[str] = (),
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
    weight_missing : sequence of str
        Columns on which it depends whether a reward is missing. Rounds with a reward then stand for all
        rounds with the same values of these columns, so that coefficients hold for all rounds of the log.
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
    # A policy that is not known is refused before the log is read.
    spec = fitted_spec(policy, exploration=exploration, delta=delta, caution=caution)
    schema, known = named_features(with_fields(schema, fields), features)
    known = known or FeatureOptions()
    options = known if isinstance(known, FeatureOptions) else None
    raw = known
    if options is not None:
        raw = replace(options, standardise="none", drop_collinear=False)
    with threadpool_limits(
        1, user_api="blas"
    ):  # of narrow matrices, threads only wait for each other
        log = open_log(source, schema, catalogue=catalogue, arms=arms)
        log.schema.require_action()
        log.schema.require_direction()
        if arm_model is not None and options is not None:
            raw = replace(options, arm_model=arm_model)
        weights = MissingWeights(log, weight_missing) if weight_missing else None
        scan = open_scan(
            log,
            windows=windows,
            every=every,
            edges=edges,
            engine=engine,
            address=address,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
            keep_rounds=True,
            fit_levels=fit_levels,
            weights=weights,
        )
        read = scan.moments(raw)
        if not keep_going:
            require_different_rewards(read.moments, read.schema.reward)
        unequal = missing_rewards_note(log) if weights is None else weights.note
        gaps = complementary_gaps(read)
        rare = rare_categories(log, read.feature_map)
        coded = category_notes(read.serving)
        reduced = reduction_notes(read.feature_map.columns)
        unequal_notes = [unequal] if unequal else []
        notes = (*log.notes, *unequal_notes, *gaps, *rare, *coded, *reduced)
        if isinstance(read.feature_map, PooledLevels):
            if weight_missing:
                raise InputError(
                    f"weight_missing needs arms whose levels are not pooled, got {len(log.arms)} arms"
                )
            model = pooled_model(read, read.feature_map, spec, horizon, notes)
        else:
            model = model_of_log(scan, read, spec, horizon, options, notes)
            if isinstance(model.feature_map, ArmCoefficients) and read.serving:
                model.feature_map = with_codes(model.feature_map, read.serving)
    if model.shared_slopes is not None:
        warnings.warn(
            in_sentence(model.shared_slopes), SharedSlopesWarning, stacklevel=2
        )
    return model


def model_of_log(
    scan: Scan,
    read: LogMoments,
    spec: PolicySpec,
    horizon: int | None,
    options: FeatureOptions | None,
    notes: tuple[str, ...],
) -> Model:
    """Make the model of a log from the moments that a scan has read."""
    log = scan.log
    ends = join_short_ends(read.moments.counts)
    fields: dict[str, Any] = {
        "schema": read.schema,
        "quality": read.quality,
        "notes": (*notes, *ends.notes),
    }
    if read.of_arms is not None:
        learned = read.of_arms.features
        if read.of_arms.rewards_are_binary:
            start_at = logistic_start(
                read.sample or read_arm_sample(log, learned), learned
            )
            odds = read_log_odds(scan, learned, start_at.theta)
            unbiased = ends.join(odds.moments).residual_after(start_at.bias)
            fields["log_odds"] = replace(odds, moments=unbiased)
        fields["sample"] = read.sample
        coding = f"coefficients: {read.sharing}"
        fields |= {"arms": log.arms, "dropped": read.dropped}
        fields["notes"] = (*fields["notes"], coding, SOURCES[log.arms.source])
        groups = learned.groups()
        if learned.traits.names and needs_blocks(groups.arms, groups.own):
            fields["notes"] = (*fields["notes"], UNRELATED_ARMS)
    moments = ends.join(read.moments)
    return model_of(moments, read.feature_map, spec, horizon, options=options, **fields)


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


def pooled_model(
    read: LogMoments,
    features: PooledLevels,
    spec: PolicySpec,
    horizon: int | None,
    notes: tuple[str, ...],
) -> Model:
    """The model of a log of thousands of arms: levels, and a policy over what arms share.

    Its moments are those of [1, shared features] and of rewards less the levels of their arms.
    """
    sample = read.sample
    table = read.arms
    assert sample is not None
    assert table is not None
    if spec.registered().kind is not AutoISD:
        raise InputError(
            f"policy {spec.name!r} takes at most {MOST_LEVELS} arms; auto-isd takes more"
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
            phi, rewards - (0.0 if clicks else levels.fitted[arms, 0]), window=window
        )
        if clicks:
            linear = phi @ levels.theta
            expected = special.expit(linear + levels.fitted[arms, 0])
            root = np.sqrt(np.maximum(expected * (1.0 - expected), SMALLEST_WEIGHT))
            odds.update(
                phi * root[:, None],
                root * linear + (rewards - expected) / root,
                window=window,
            )
    ends = join_short_ends(moments.counts)
    moments = ends.join(replace(moments, edges=read.moments.edges))
    about = f"coefficients: {read.sharing}"
    sampled = f"an even sample of {len(sample.rewards):,} of {read.quality.rounds:,} rounds was read"
    words = (
        *notes,
        *ends.notes,
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
        "log_odds": LogOdds(levels.theta, ends.join(odds)) if clicks else None,
    }
    shared = model_of(moments, features.population, spec, horizon, **fields)
    policy = PooledArms(unwrapped(shared.policy), levels)
    fields |= {"notes": shared.notes, "moments": shared.moments, "arms": table}
    return Model(policy, spec.name, features, **fields)


def fitted_spec(
    name: str, *, exploration: float | None, delta: float, caution: float | None
) -> PolicySpec:
    """Return the policy as a log is fitted with it: it learns the logged rounds first, if it can.

    Parameters
    ----------
    name : str
        As the caller asked for it.
    exploration : float or None
        Factor on the widths; the policy's own default if not given.
    delta : float
        Probability η with which the confidence bounds of the policy may fail.
    caution : float or None
        Of policies that have it; None for no limit.
    """
    table = PolicySpec(name).table()
    asked: dict[str, Any] = {}
    if exploration is not None:
        asked["exploration"] = exploration
    if caution != 0.0:
        asked["caution"] = caution
    PolicySpec(find_policy(name).name, asked).check()
    known: dict[str, Any] = {"delta": probability("delta", delta), "caution": caution}
    # A policy that forgets needs the rounds themselves, of which a model keeps moments only.
    if not table & {"window", "discount", "every"}:
        known["warm"] = True
    options = {option: value for option, value in known.items() if option in table}
    return PolicySpec(name, {**options, **asked})


def caution_of(model: Model) -> float | None:
    """The caution that a model's policy was given beside its name; 0 where it has none."""
    if not find_policy(model.policy_name).takes("caution"):
        return 0.0
    caution: float | None = unwrapped(model.policy).caution
    return caution


def model_of(
    moments: WindowedMoments,
    features: FeatureMap,
    spec: PolicySpec,
    horizon: int | None = None,
    *,
    options: FeatureOptions | None = None,
    log_odds: LogOdds | None = None,
    sample: ArmSample | None = None,
    dropped: tuple[Dropped, ...] = (),
    notes: tuple[str, ...] = (),
    **fields: Any,
) -> Model:
    """Make the model of moments that were read: find what is usable, start the policy.

    Parameters
    ----------
    moments : WindowedMoments
        Of the features that `features` encodes or, without `options`, of its standardised features.
    features, options : FeatureMap, FeatureOptions or None
        What the features are, and what `prune` still learns from the moments.
    spec : PolicySpec
        The policy.
    horizon : int or None
        How many rounds will be served.
    log_odds : LogOdds or None
        If rewards of labelled arms are 0 or 1.
    sample : ArmSample or None
        Rounds of labelled arms, which tell where the noise is larger.
    dropped, notes, fields :
        Further fields of the model.
    """
    past: dict[str, Any]
    if isinstance(
        features, ArmCoefficients
    ):  # they have levels of their own and no baseline to take off
        linear = ArmStatistics.from_moments(features, moments)
        if sample is not None and log_odds is None:
            linear = linear.with_unequal_noise(sample)
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
        if not spec.keeps_baseline:  # features and rewards count from the log's means
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
        "delta": spec.options.get("delta"),
        "horizon": horizon,
    }
    past["suggested_window"] = max(moments.rounds // moments.windows, 1)
    policy = spec.build(Past(moments=moments, baseline=baseline, **past))
    if not features.columns:
        limited = getattr(unwrapped(policy), "caution", None) is not None
        notes = (*notes, FIXED_ARMS) if limited else notes
    fields |= {
        "dropped": dropped,
        "notes": tuple(dict.fromkeys(notes)),
        "fit": fit,
        "log_odds": log_odds,
    }
    return Model(
        policy, spec.name, features, moments=moments, baseline=baseline, **fields
    )
