"""What a model of labelled arms says about its log: which arms there are, what they earn, and what of it drifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.charts import PATH_COLOURS, PATH_STYLES, literal, theme
from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.decomposition.summary import p_value_words
from invariant_bandits.extras import needed
from invariant_bandits.fitting import arm_prior_of
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.model import Model
from invariant_bandits.reports import html
from invariant_bandits.reports.html import Cell, Mark
from invariant_bandits.reports.sections import Section, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 8
SCALES = {"identity": "in units of the reward", "logit": "in the log-odds of a reward of 1"}
EFFECTS = (
    "What an arm earns is its level plus its slopes times the context, which is standardised on the log. Estimate:"
    " over the whole log, ± one standard error; drift: standard deviation between windows beyond sampling error;"
    " p-value: how likely estimates that differ so much between windows would be without drift. An effect is said to"
    " drift if that still holds for all of them together (Holm, 5 %)."
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


def effects(model: Model, prior: ArmPrior) -> list[NamedEffect]:
    """Every coefficient of every arm that was played, drifting ones first, then by their p-values."""
    features = features_of(model)
    names = ("level", *features.context_names[1:])
    found = sorted(prior.effects, key=lambda one: (not one.drifts, np.nan_to_num(one.p_value, nan=2.0)))
    return [NamedEffect(features.labels[one.arm], names[one.coefficient], *one[2:]) for one in found]


def features_of(model: Model) -> ArmFeatures:
    """What context and label become; only of models of labelled arms."""
    assert isinstance(model.feature_map, ArmFeatures)
    return model.feature_map


def headline(model: Model) -> str:
    """The finding in one sentence."""
    found = effects(model, arm_prior_of(model))
    drifting = [one for one in found if one.drifts]
    untold = sum(np.isnan(one.p_value) for one in found)
    rest = f", {untold} have too few clicks to tell" if untold else ""
    named = ", ".join(f"{one.arm} × {one.of}" for one in drifting[:4]) + (", …" if len(drifting) > 4 else "")
    arms, moments = model.arms, model.moments
    assert arms is not None
    return (
        f"{len(drifting)} of {len(found)} effects drift{f' ({named})' if drifting else ''}{rest}; {len(arms)} arms,"
        f" {len(arms.active)} of them active; {moments.rounds:,} logged rounds in {moments.windows} windows, policy"
        f" {model.policy_name}, fitted by invariant-bandits {model.version}."
    )


def sections(model: Model, *, pictures: bool = False) -> list[Section]:
    """The arms and their effects."""
    prior = arm_prior_of(model)
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
        told = mean[place][np.isfinite(mean[place])] if place < len(mean) else np.zeros(0)
        shown = f"{round(float(told[-1]), 12):.4g}" if len(told) else "?"
        mark = Mark(state, "good" if state == "active" else "unsure")
        rows.append([label, mark, number(plays), first, last, number(shown)])
    return ("arm", "", "plays", "first use", "last use", "mean reward, last window"), rows


def _effects(found: list[NamedEffect]) -> tuple[tuple[str, ...], list[list[Cell]]]:
    rows: list[list[Cell]] = [
        [
            one.arm,
            one.of,
            _verdict(one),
            number(f"{one.estimate:+.3g} ± {one.error:.2g}"),
            number(f"{one.drift:.2g}"),
            number("" if np.isnan(one.p_value) else p_value_words(float(np.log(max(one.p_value, 1e-300))))),
        ]
        for one in found
    ]
    return ("arm", "effect", "verdict", "estimate", "drift", "p-value"), rows


def _verdict(one: NamedEffect) -> Mark:
    if np.isnan(one.p_value):
        return Mark("cannot tell", "unsure")
    return Mark("drifts", "bad") if one.drifts else Mark("stable", "good")


def rewards_over_windows(model: Model) -> tuple[Array, Array]:
    """Mean reward (A, m) of every arm of the log in every window, its standard error; NaN where it was not played."""
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
        figure: Figure = needed("matplotlib.pyplot", "plot").figure(figsize=(8.4, 3.4), layout="constrained")
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
    drawing = html.svg_of(chart(model))
    caption = "Gaps: windows in which an arm was not played. Bars: 95 % intervals of the mean, whatever the contexts."
    return html.picture(drawing, "arms", "Mean reward of every arm over the windows", caption)
