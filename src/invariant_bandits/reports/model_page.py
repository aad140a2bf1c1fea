"""What a fitted model says about its log: sections for the report and for `inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.summary import p_value_words
from invariant_bandits.logs.features import ArmFeatures
from invariant_bandits.model.fit import arm_prior
from invariant_bandits.model.model import Model
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.optional import require
from invariant_bandits.plotting import PATH_COLOURS, PATH_STYLES, literal, theme
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.randomised import unwrapped
from invariant_bandits.reports import findings, page
from invariant_bandits.reports.page import WIDTH, Cell, Mark, Section, as_page, as_text, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_LINES = 8
SCALES = {"identity": "in units of the reward", "logit": "in the log-odds of a reward of 1"}
EFFECTS = (
    "What an arm earns is its level plus its slopes times the context, which is standardised on the log."
    " Estimate: over the whole log, ± one standard error; drift: standard deviation between windows beyond"
    " sampling error; p-value: how likely estimates that differ so much between windows would be without"
    " drift. An effect is said to drift if that still holds for all of them together (Holm, 5 %)."
)


@dataclass(frozen=True)
class NamedEffect:
    """One coefficient of an arm by its names; see `Effect`."""

    arm: str
    of: str
    estimate: float
    error: float
    drift: float
    p_value: float
    drifts: bool


def effects(model: Model, prior: DriftPrior) -> list[NamedEffect]:
    """Every coefficient of every arm that was played, drifting ones first, then by their p-values."""
    features = features_of(model)
    names = ("level", *features.context_names[1:])
    ordered = sorted(
        prior.effects, key=lambda effect: (not effect.drifts, np.nan_to_num(effect.p_value, nan=2.0))
    )
    return [
        NamedEffect(features.labels[effect.arm], names[effect.coefficient], *effect[2:]) for effect in ordered
    ]


def features_of(model: Model) -> ArmFeatures:
    """What context and label become; only of models of labelled arms."""
    assert isinstance(model.feature_map, ArmFeatures)
    return model.feature_map


def headline_arm_page(model: Model) -> str:
    """The finding in one sentence."""
    all_effects = effects(model, arm_prior(model))
    drifting = [effect for effect in all_effects if effect.drifts]
    untold = sum(np.isnan(effect.p_value) for effect in all_effects)
    rest = f", {untold} have too few clicks to tell" if untold else ""
    named = ", ".join(f"{effect.arm} × {effect.of}" for effect in drifting[:4]) + (
        ", …" if len(drifting) > 4 else ""
    )
    arms, moments = model.arms, model.moments
    assert arms is not None
    return (
        f"{len(drifting)} of {len(all_effects)} effects drift{f' ({named})' if drifting else ''}{rest};"
        f" {len(arms)} arms, {len(arms.active)} of them active; {moments.rounds:,} logged rounds in"
        f" {moments.windows} windows, policy {model.policy_name}, fitted by invariant-bandits"
        f" {model.version}."
    )


def sections_arm_page(model: Model, *, pictures: bool = False) -> list[Section]:
    """The arms and their effects."""
    prior = arm_prior(model)
    words = [EFFECTS, f"Estimates are {SCALES[prior.link]}."]
    assert model.arms is not None
    return [
        Section("Arms", [], *_arms(model), _picture(model) if pictures else ""),
        Section("Stable and drifting", words, *_effects(effects(model, prior))),
    ]


def _arms(model: Model) -> tuple[tuple[str, ...], list[list[Cell]]]:
    assert model.arms is not None
    mean, _ = rewards_over_windows(model)
    rows: list[list[Cell]] = []
    for place, (label, plays, first, last, state) in enumerate(model.arms.rows()):
        known = mean[place][np.isfinite(mean[place])] if place < len(mean) else np.zeros(0)
        shown = f"{round(float(known[-1]), 12):.4g}" if len(known) else "?"
        mark = Mark(state, "good" if state == "active" else "unsure")
        rows.append([label, mark, number(plays), first, last, number(shown)])
    return ("arm", "", "plays", "first use", "last use", "mean reward, last window"), rows


def _effects(effects_shown: list[NamedEffect]) -> tuple[tuple[str, ...], list[list[Cell]]]:
    rows: list[list[Cell]] = [
        [
            effect.arm,
            effect.of,
            _verdict(effect),
            number(f"{effect.estimate:+.3g} ± {effect.error:.2g}"),
            number(f"{effect.drift:.2g}"),
            number(
                "" if np.isnan(effect.p_value) else p_value_words(float(np.log(max(effect.p_value, 1e-300))))
            ),
        ]
        for effect in effects_shown
    ]
    return ("arm", "effect", "verdict", "estimate", "drift", "p-value"), rows


def _verdict(effect: NamedEffect) -> Mark:
    if np.isnan(effect.p_value):
        return Mark("cannot tell", "unsure")
    return Mark("drifts", "bad") if effect.drifts else Mark("stable", "good")


def rewards_over_windows(model: Model) -> tuple[Array, Array]:
    """Mean reward (A, m) of every arm of the log in every window, its standard error; NaN where it was not
    played.
    """
    features, sums = features_of(model), model.moments.chosen
    own = features.width if features.coding == "own" else 1
    added = (features.dim - model.moments.dim) // own  # arms that came later are not in the moments
    levels = np.arange(len(features.labels) - added) * own
    whole = sums.products()
    plays = np.diagonal(whole, axis1=1, axis2=2)[:, levels].T
    played = np.where(plays > 0.5, plays, np.nan)
    return whole[:, levels, -1].T / played, np.sqrt(sums.covariance()[:, -1, -1] / played)


def _around(low: Array, high: Array) -> tuple[float, float]:
    """Limits of an axis that hold all bars; some room if there is none between them."""
    ends = float(low.min()), float(high.max())
    return ends if ends[1] > ends[0] else (ends[0] - 1.0, ends[1] + 1.0)


def chart(model: Model, *, theme_name: str = "light") -> Figure:
    """Mean reward of the most played arms over the windows, with 95 % intervals."""
    assert model.arms is not None
    mean, error = rewards_over_windows(model)
    plays = np.array([arm.plays for arm in model.arms.arms[: len(mean)]])
    shown = np.argsort(-plays, kind="stable")[:MOST_LINES]
    edges = model.moments.edges
    time: Any = np.arange(1, mean.shape[1] + 1) if edges is None else edges[:-1]
    with theme(theme_name) as colours:
        figure: Figure = require("matplotlib.pyplot", "plot").figure(figsize=(8.4, 3.4), layout="constrained")
        axis = figure.subplots()
        for order, place in enumerate(sorted(shown)):
            axis.errorbar(
                time,
                mean[place],
                1.96 * error[place],
                marker="o",
                ms=3.5,
                lw=1.4,
                color=PATH_COLOURS[theme_name][order % len(PATH_COLOURS[theme_name])],
                ls=PATH_STYLES[order // len(PATH_COLOURS[theme_name])],
                label=literal(model.arms.labels[place], 24),
            )
        usual = error <= 4.0 * np.nanmedian(error)  # a window with one play must not flatten the others
        axis.set_ylim(*_around(mean[usual] - 2.2 * error[usual], mean[usual] + 2.2 * error[usual]))
        axis.grid(color=colours["faint"], lw=0.5, alpha=0.6)
        axis.set_ylabel("mean reward")
        axis.set_xlabel("window" if edges is None else "begin of the window")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
        rest = len(mean) - len(shown)
        words = f"Mean reward by arm over the windows{f', the {len(shown)} most played' if rest else ''}"
        axis.set_title(words)
    return figure


def _picture(model: Model) -> str:
    drawing = page.svg_of(chart(model))
    caption = (
        "Gaps: windows in which an arm was not played. Bars: 95 % intervals of the mean, whatever the"
        " contexts."
    )
    return page.picture(drawing, "arms", "Mean reward of every arm over the windows", caption)


BLOCKS = (
    "The reward model has two parts. Along stable directions one coefficient fits all windows, along"
    " drifting ones it does not. p-value: how likely coefficients that differ so much would be if they were"
    " all equal; drift: standard deviation of the coefficient between windows beyond sampling error; in"
    " reward: what such a drift changes in the reward of an action one standard deviation away; error:"
    " standard error within one window."
)
FEATURES = (
    "Stable share: how much of the feature lies in the stable part, 0 to 100 %. Coefficients: reward per"
    " unit of the feature, ± one standard error; a drifting feature should be judged by the last window."
)


def report(model: Model) -> str:
    """The HTML page, self-contained."""
    return as_page(title(model), headline(model), sections(model, pictures=True))


def text(model: Model, *, columns: bool = True, width: int = WIDTH) -> str:
    """The same for a terminal of this width; without the list of columns where it has just been shown."""
    shown = sections(model)
    return as_text(title(model), headline(model), shown if columns else shown[:-1], width)


def title(model: Model) -> str:
    """What the page is about."""
    return f"What lasts and what changed: {model.schema.reward}"


def headline(model: Model) -> str:
    """The finding in one sentence."""
    if model.arms is not None:
        return headline_arm_page(model)
    split = model.decomposition.split_
    return (
        f"{split.invariant_dim} of {split.dim} dimensions are stable, {split.residual_dim} drift;"
        f" {model.moments.rounds:,} logged rounds in {model.moments.windows} windows, policy"
        f" {model.policy_name}, fitted by invariant-bandits {model.version}."
    )


def sections(model: Model, *, pictures: bool = False) -> list[Section]:
    """Everything there is to say, the most important first."""
    parts = [
        Section("Read this first", warnings(model)),
        *(
            _of_features(model, pictures)
            if model.arms is None
            else sections_arm_page(model, pictures=pictures)
        ),
        _expected_value(model),
        _quality(model),
        Section("Windows", [], *_windows(model.moments)),
    ]
    policy = unwrapped(model.policy)
    if isinstance(policy, AutoISD):
        parts.insert(3, _exploration(policy))
    if isinstance(policy, AutoISD) and policy.rounds:
        parts.insert(
            1, Section("What the policy believes now", str(policy.explain(model.names)).splitlines())
        )
    return [*parts, Section("Columns", [], ("role", "column", "why"), model.schema.rows())]


def _of_features(model: Model, pictures: bool) -> list[Section]:
    fit = model.decomposition
    return [
        Section("Stable and drifting", [BLOCKS], *blocks_table(fit), _overview(model) if pictures else ""),
        Section("Features", [FEATURES], *_features(fit)),
    ]


def warnings(model: Model) -> list[str]:
    """What to be careful about; a sentence that nothing was found if so."""
    cautions = [*(model.decomposition.findings_ if model.arms is None else ()), *model.notes]
    if model.quality.left_out:
        share = model.quality.left_out / max(model.quality.left_out + model.quality.rounds, 1)
        cautions.append(
            f"{model.quality.left_out:,} rounds ({100 * share:.2g} %) were left out, see data quality"
        )
    if model.quality.imputed:
        cautions.append(f"missing values were filled in: {_filled_in(model)}")
    split = None if model.arms is not None else model.decomposition.split_
    if split is not None and split.residual_dim == 0:
        cautions.append("no drift was found: either there is none, or the log is too short to show it")
    if split is not None and split.invariant_dim == 0:
        cautions.append("nothing is stable: what was learned long ago does not help, only recent rounds do")
    cautions += [f"left out: {words}" for words in model.dropped]
    return [f"{words[0].upper()}{words[1:]}." for words in cautions] or ["Nothing speaks against this fit."]


def _filled_in(model: Model) -> str:
    """How often which column was missing, and by what it was replaced."""
    columns = {column.name: column for column in model.feature_map.columns}
    rows, words = max(model.quality.rows, 1), []
    for name, count in sorted(model.quality.imputed.items(), key=lambda pair: -pair[1]):
        column = columns.get(name)
        filler = (
            f", by {column.filler[0]:.4g}"
            if column is not None and column.filler and column.width is None and column.categories is None
            else ""
        )
        mark = "" if column is None or column.marks_missing else ", too rare for a feature that marks it"
        words.append(f"{name} in {count:,} rows ({100 * count / rows:.2g} %{filler}{mark})")
    return "; ".join(words)


def blocks_table(fit: InvariantSubspaceDecomposition) -> tuple[tuple[str, ...], list[list[Cell]]]:
    """Headings and rows of the table of all blocks."""
    rows: list[list[Cell]] = [
        [
            number(str(block.number)),
            Mark("drifts", "bad") if block.drifts else Mark("stable", "good"),
            number(str(block.dim)),
            number(p_value_words(block.log_p_value)),
            number(f"{block.drift:.3g}"),
            number(f"{block.drift_in_reward:.3g}"),
            number(f"{block.error:.3g}"),
            block.main_features,
        ]
        for block in findings.blocks(fit)
    ]
    return ("block", "verdict", "dim", "p-value", "drift", "in reward", "error", "main features"), rows


def _features(fit: InvariantSubspaceDecomposition) -> tuple[tuple[str, ...], list[list[Cell]]]:
    rows: list[list[Cell]] = [
        [
            feature.name,
            number(f"{100.0 * feature.stable_share:.0f} %"),
            number(f"{feature.coefficient:+.3g} ± {feature.error:.2g}"),
            number(
                "silent"
                if feature.last_error is None
                else f"{feature.last_coefficient:+.3g} ± {feature.last_error:.2g}"
            ),
        ]
        for feature in findings.features(fit)
    ]
    return ("feature", "stable share", "all windows", "last window"), rows


def _expected_value(model: Model) -> Section:
    value = model.value
    words = [] if model.arms is not None else [_explained(model.decomposition, model.moments)]
    if value is None:
        return Section(
            "Expected value", [*words, "What the policy would have earned was not asked for when fitting."]
        )
    if not value["known"]:
        reason = str(value["reason"])
        return Section("Expected value", [*words, f"{reason[0].upper()}{reason[1:]}."])
    words.append(
        f"Fitted on {value['fitted_rounds']:,} rounds and evaluated once on the {value['played_rounds']:,}"
        f" after them, the last of the log, which earned {value['logged']} per round. Gain: per round over"
        " what the log did, with its 95 % interval."
    )
    rows: list[list[Cell]] = [
        [
            line["policy"],
            line["estimator"],
            number("?" if line["gain"] is None else f"{line['gain']:+.3g}"),
            number("?" if line["gain"] is None else f"{line['low']:+.3g} to {line['high']:+.3g}"),
            line["verdict"],
        ]
        for line in value["lines"]
    ]
    return Section(
        "Expected value", words, ("policy", "by", "gain", "interval", "would it have helped?"), rows
    )


def _explained(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> str:
    total = float(moments.reward_square.sum())
    if total <= 0.0:
        return "Rewards are constant within every window: there is nothing to explain."
    fixed, _ = fit.paths_.weighted_mean()
    freedom = np.maximum(moments.counts - moments.dim - 1, 0.0)
    each = (
        1.0 - float(fit.window_noise_ @ freedom / freedom.sum()) * float((moments.counts - 1).sum()) / total
    )
    shares = (each, _share(fixed, moments) / total, _share(fit.component_, moments) / total)
    return (
        f"Share of the variance of rewards within windows that the features explain: {_percent(shares[0])}"
        f" with coefficients of each window's own, {_percent(shares[1])} with the same ones in all windows,"
        f" {_percent(shares[2])} by the stable part alone."
    )


def _share(coefficients: Array, moments: WindowedMoments) -> float:
    """Sum of squares that fixed coefficients (p,) explain within windows: Σ 2γᵀc_i − γᵀG_iγ."""
    gram, cross = moments.gram.sum(axis=0), moments.cross.sum(axis=0)
    return float(2.0 * coefficients @ cross - coefficients @ gram @ coefficients)


def _percent(share: float) -> str:
    return f"{100.0 * max(share, 0.0):.3g} %"


def _exploration(policy: AutoISD) -> Section:
    """How AutoISD will explore, and the rehearsal that decided it."""
    reason = policy.explain().no_alarm_because
    alarm = (
        f"No alarm can be given: {reason}."
        if reason
        else "An alarm will say if what was stable moves after all."
    )
    rehearsal = policy.rehearsal
    if rehearsal is None:
        words = f"Exploration {policy.exploration:g}, tests {policy.tests}; it was not rehearsed."
        return Section("How it will explore", [words, alarm])
    words = (
        f"Rehearsed on {rehearsal.sets} sets of offered actions, {rehearsal.rounds:,} rounds a time, against"
        " worlds drawn from the policy's own doubts: regret (lower is better) by exploration and by when"
        " neglected actions are tested. Candidates that fell behind played fewer worlds."
    )
    rows: list[list[Cell]] = [
        [
            Mark("plays", "good") if i == rehearsal.chosen else "",
            number(f"{trial.exploration:g}"),
            trial.tests,
            number(f"{trial.regret:.3g} ± {trial.error:.2g}"),
            number(str(trial.worlds)),
        ]
        for i, trial in enumerate(rehearsal.trials)
    ]
    return Section(
        "How it will explore", [words, alarm], ("", "exploration", "tests", "regret", "worlds"), rows
    )


def _quality(model: Model) -> Section:
    quality = model.quality
    words = [f"{quality.rows:,} rows read, {quality.rounds:,} rounds used, {quality.left_out:,} left out."]
    rows: list[list[Cell]] = []
    for reason, problem in sorted(quality.problems.items(), key=lambda pair: -pair[1].count):
        where = ", ".join(f"{file} row {row}" for file, row in problem.examples[:2])
        rows.append(
            [reason, number(f"{problem.count:,}"), "kept" if quality.is_kept(reason) else "left out", where]
        )
    if not rows:
        words.append("No row had a problem.")
    return Section(
        "Data quality", words, ("problem", "rounds", "what became of them", "first (rows from 0)"), rows
    )


def _windows(moments: WindowedMoments) -> tuple[tuple[str, ...], list[list[Cell]]]:
    rows: list[list[Cell]] = [
        [
            number(str(window.number)),
            "" if window.begins is None else _moment(window.begins),
            number(f"{window.rounds:,}"),
            number(f"{window.mean_reward:.4g}"),
            number(f"{window.sd_reward:.3g}"),
        ]
        for window in findings.windows(moments)
    ]
    return ("window", "begins", "rounds", "mean reward", "sd"), rows


def _moment(time: Any) -> str:
    return (
        str(time.astype("datetime64[s]")).replace("T", " ")
        if isinstance(time, np.datetime64)
        else f"{time:g}"
    )


def _overview(model: Model) -> str:
    from invariant_bandits.reports import plots

    fit = model.decomposition
    stable = f"{fit.split_.invariant_dim} of {fit.split_.dim} dimensions are stable"
    drawing = page.svg_of(plots.overview(fit, edges=model.moments.edges))
    caption = (
        "Above: correlations of the features in a few windows, as logged and in the found basis, and the"
        " stable share of each feature. Below: the coefficient along each direction over the windows;"
        " drifting ones are dashed."
    )
    return page.picture(drawing, "overview", f"Overview: {stable}", caption)
