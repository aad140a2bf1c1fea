"""From a log with labelled arms to statistics per window and arm, and to a bounded sample of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, whole_number
from invariant_bandits.logs.arm_features import ArmFeatures, chosen_coding, crossings, matched_features
from invariant_bandits.logs.arm_moments import ArmMoments, telling_rounds
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.collinearity import Dropped, collinear_features
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.passes import Pass, Progress
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import reader_of
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema, SchemaLike
from invariant_bandits.logs.summary import LogitWeights
from invariant_bandits.logs.times_seen import lots
from invariant_bandits.logs.windows import windows_of
from invariant_bandits.moments.windowed import WindowedMoments

SAMPLE_ROUNDS = 200_000
CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class ArmLogMoments:
    """Statistics per window and arm that were read from a log, and everything needed to say where they came from.

    Parameters
    ----------
    moments : ArmMoments
        Of contexts and rewards, per window and arm.
    arms : ArmTable
        The arms, and when each was offered.
    schema : Schema
        What the columns mean.
    quality : QualityReport
        Rows read, rounds used, and what was wrong.
    dropped : tuple of Dropped
        Features of the context that were left out and why.
    edges : array, shape (windows + 1,), or None
        Times that bound the windows; None if they are equal shares of the rows.
    coding_reason : str
        Why arms have coefficients of their own, or share slopes.
    """

    moments: ArmMoments
    arms: ArmTable
    schema: Schema
    quality: QualityReport
    dropped: tuple[Dropped, ...]
    edges: Array | None
    coding_reason: str

    @property
    def features(self) -> ArmFeatures:
        """Context and label → φ(x, a)."""
        return self.moments.features


def read_arm_moments(
    source: Any,
    schema: SchemaLike = None,
    *,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | ArmFeatures | None = None,
    logit_at: Any = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> ArmLogMoments:
    """Statistics per window and arm of a log with labels, of any size, in bounded memory.

    Parameters
    ----------
    features : FeatureOptions, ArmFeatures or None
        What to make of the context and of the arms, or features that were learned before.
    logit_at : array, shape (p,), or (arms, d) for arms with coefficients of their own, optional
        For rewards that are 0 or 1: coefficients θ⁰ on the logit scale; needs learned `features`. With π = σ(φᵀθ⁰) and
        h = π(1−π), contexts become √h·z and rewards √h·(φᵀθ⁰ + (r−π)/h), so that `gram` is Σ h z zᵀ and `cross` is
        Σ h z zᵀθ⁰ + Σ z(r−π).
    source, schema, windows, every, edges, engine, address, strict, keep_going, progress :
        As in `read_moments`.

    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> hour, banner = rng.uniform(0, 24, 400), rng.choice(["A", "B"], 400)
    >>> table = pa.table({"hour": hour, "banner": banner, "click": (rng.random(400) < 0.3).astype(int)})
    >>> read = read_arm_moments(table, windows=2)
    >>> read.features.names
    ('A', 'A × hour', 'B', 'B × hour')
    >>> read.moments.gram.shape, read.moments.rewards_are_binary
    ((2, 2, 2, 2), True)
    """
    log = open_log(source, schema)
    arms = log.arms
    cut = windows_of(log, windows, every, edges)
    through = Pass(log, cut, engine, address, progress)
    reason = "as learned before"
    if logit_at is not None:
        if not isinstance(features, ArmFeatures):
            raise InputError("logit_at needs features that were learned before")
        known = features
        total = through.over(reader_of(log, known, offered=False), _logit_weights(known, logit_at))
        cells, dropped = total.moments, list[Dropped]()
    else:
        options = features if isinstance(features, ArmFeatures) else features or FeatureOptions()
        reader, total = through.learning(options)
        if isinstance(options, ArmFeatures):
            known, dropped = options, []
        else:
            known, dropped, reason = _learned(log, reader.feature_map, options, total.moments)
        cells = _finished(total.moments, known)
    if strict:
        total.report.refuse_problems()
    total.report.require_rounds(keep_going)
    moments = ArmMoments(cells, known, cut.edges)
    return ArmLogMoments(moments, arms, log.schema, total.report, tuple(dropped), cut.edges, reason)


def _learned(
    log: Log, expanding: FeatureMap, options: FeatureOptions, cells: WindowedMoments
) -> tuple[ArmFeatures, list[Dropped], str]:
    """(features, what was left out of the context, why arms share slopes or not), from cells of [1, expanded]."""
    labels, names = log.arms.labels, expanding.expanded_names
    matched = matched_features(names, labels, str(log.schema.arm))
    owned = {name for group in matched.values() for name in group}
    pooled = cells.regrouped(np.arange(0, cells.windows, len(labels)))
    plain = np.array([0, *(j + 1 for j, name in enumerate(names) if name not in owned)])
    shared = pooled.rescaled(plain, np.zeros(len(plain)), np.ones(len(plain)))
    dropped = [one for one in collinear_features(shared, [("", *names)[j] for j in plain]) if one.name]
    gone = {one.name for one in dropped}
    kept = np.array([j for j, name in enumerate(names) if name not in gone], dtype=np.int64)
    shift, scale = _standardisation(pooled, kept, [[names.index(name) for name in one] for one in matched.values()])
    context = replace(expanding, kept=kept, shift=shift, scale=scale)
    catalogue = log.catalogue
    width = 1 + len(kept) - len(owned) + len(matched)
    told = telling_rounds(cells)
    coding, why = chosen_coding(options.arm_model, len(labels), width, told)
    if catalogue is None or not catalogue.names:
        return ArmFeatures(context, labels, coding, matched=matched), dropped, why
    return (
        ArmFeatures(
            context,
            labels,
            coding,
            catalogue.features_of(labels),
            catalogue.names,
            matched,
            catalogue.shift,
            catalogue.scale,
            crossings(len(labels), width - 1, len(catalogue.names), told) if coding == "shared" else 0,
        ),
        dropped,
        why,
    )


def _standardisation(pooled: WindowedMoments, kept: Array, groups: list[list[int]]) -> tuple[Array, Array]:
    """(mean, standard deviation) of the kept features, each (q,); a group has one mean and one deviation."""
    whole = pooled.chosen.grouped(np.array([0]))
    mean, variance = whole.mean[0, 1:-1].copy(), np.diagonal(whole.covariance()[0])[1:-1].copy()
    for group in groups:
        middle = mean[group].mean()
        variance[group] = (variance[group] + (mean[group] - middle) ** 2).mean()
        mean[group] = middle
    deviation = np.sqrt(variance[kept])
    return mean[kept], np.where(deviation > 0.0, deviation, 1.0)


def _finished(cells: WindowedMoments, features: ArmFeatures) -> WindowedMoments:
    """Cells of [1, x] from cells of [1, what the context map expands to]."""
    context = features.context
    kept = np.arange(cells.dim - 1) if context.kept is None else context.kept
    shift = np.zeros(len(kept)) if context.shift is None else context.shift
    scale = np.ones(len(kept)) if context.scale is None else context.scale
    return cells.rescaled(np.append(0, kept + 1), np.append(0.0, shift), np.append(1.0, scale))


def _logit_weights(features: ArmFeatures, coefficients: Any) -> LogitWeights:
    """θ⁰ as one weight per arm and entry of the whole context."""
    theta = finite_array("logit_at", np.ravel(coefficients), (features.dim,))
    weights = np.zeros((len(features.labels), 1 + features.context.dim))
    for arm, own in enumerate(weights):
        np.add.at(own, features.entries[arm], features.factors[arm] * theta)
    return LogitWeights(features, weights)


@dataclass(frozen=True, eq=False)
class ArmSample:
    """Rounds spread evenly over a log.

    Parameters
    ----------
    contexts : array, shape (n, d)
        z of the chosen arm, the leading 1 included.
    arms : array of int, shape (n,)
        Place of the chosen arm.
    rewards : array, shape (n,)
        Its reward.
    share : float
        Which share of the rows of the log was taken; 1 if all were.
    """

    contexts: Array
    arms: Array
    rewards: Array
    share: float


def read_arm_sample(
    source: Any, features: ArmFeatures, schema: SchemaLike = None, *, most: int = SAMPLE_ROUNDS
) -> ArmSample:
    """At most about `most` rounds spread over the whole log: all of them, or those whose row falls on a fixed lot.

    Which rows are taken depends on their place in the log alone, so the sample is the same every time.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    features : ArmFeatures
        As learned by `read_arm_moments`.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    most : int
        How many rounds.
    """
    log = open_log(source, schema)
    share = min(1.0, whole_number("most", most, 1) / max(log.survey(rows=True).total_rows or 1, 1))
    reader, report = reader_of(log, features, offered=False), QualityReport()
    parts: list[tuple[Array, Array, Array]] = []
    for task in log.survey().tasks:
        for rounds in reader.rounds(task, report):
            taken = rounds.where(lots(task.position - task.first_row + rounds.rows) < share)
            assert taken.arm is not None
            z = features.own_contexts(features.finish(taken.features), taken.arm)
            parts.append((z, taken.arm, taken.rewards))
    report.require_rounds()
    contexts, arms, rewards = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ArmSample(contexts, arms, rewards, share)


def with_features(rounds: Rounds, features: ArmFeatures) -> Iterator[Rounds]:
    """Rounds of contexts and arms as rounds of φ(x, a), chosen and offered, a bounded number of them at a time."""
    counts = rounds.offered_counts
    most = int(np.max(counts)) if counts is not None else 1
    step = max(1, CELLS_AT_ONCE // (features.dim * most))
    for start in range(0, len(rounds), step):
        part = rounds.between(start, min(start + step, len(rounds)))
        whole = features.finish(part.features)
        assert part.arm is not None
        phi = features.crossed_with(whole, part.arm)
        if part.offered_counts is None or part.offered_arms is None:
            yield replace(part, features=phi)
            continue
        offered = features.crossed_with(np.repeat(whole, part.offered_counts, axis=0), part.offered_arms)
        yield replace(part, features=phi, offered=offered)
