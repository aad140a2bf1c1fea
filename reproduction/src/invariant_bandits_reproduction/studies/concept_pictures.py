"""The drawings of docs/concepts: schematic where the idea counts, simulated where a number is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.plotting import theme

SEED = 7
WIDTH, HEIGHT = 7.4, 2.8
WINDOWS, ROUNDS = 6, 40
DRIFT = (0.4, 1.1, 0.7, 1.6, 0.2, 1.2)
"""Coefficients of the drifting feature in the windows; the stable one has 1."""


def _figure(columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    figure = plt.figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.subplots(1, columns, **options)


def draw_windows(theme_name: str) -> Figure:
    """Two coefficients over time, cut into windows: one stays, one moves; dots are regressions."""
    rng = np.random.default_rng(SEED)
    with theme(theme_name) as colours:
        figure, axis = _figure()
        for window, drifting in enumerate(DRIFT):
            features = rng.normal(size=(ROUNDS, 2))
            rewards = features @ np.array([1.0, drifting]) + 0.5 * rng.normal(
                size=ROUNDS
            )
            estimate = np.linalg.lstsq(features, rewards, rcond=None)[0]
            middle, begin = window + 0.5, window
            if window % 2:
                axis.axvspan(begin, begin + 1, color=colours["faint"], alpha=0.35, lw=0)
            for value, truth, name in zip(
                estimate, (1.0, drifting), ("stable", "varies"), strict=True
            ):
                axis.plot(
                    [begin, begin + 1],
                    [truth, truth],
                    color=colours[name],
                    lw=1.4,
                    alpha=0.6,
                )
                axis.plot(middle, value, "o", color=colours[name], ms=6)
            axis.text(middle, 2.02, f"window {window + 1}", ha="center", fontsize=8)
        axis.text(WINDOWS + 0.05, 1.0, "stable", color=colours["stable"], va="center")
        axis.text(
            WINDOWS + 0.05,
            DRIFT[-1] + 0.12,
            "drifting",
            color=colours["varies"],
            va="center",
        )
        axis.set(
            xlim=(0, WINDOWS + 0.7), ylim=(-0.05, 2.15), xticks=[], ylabel="coefficient"
        )
        axis.set_xlabel("logged time →")
    return figure


def draw_split(theme_name: str) -> Figure:
    """Coefficient vectors of the windows end on a line: one coordinate in turned axes is constant."""
    angle = np.deg2rad(28.0)
    invariant = np.array([np.cos(angle), np.sin(angle)])
    residual = np.array([-np.sin(angle), np.cos(angle)])
    with theme(theme_name) as colours:
        figure, (left, right) = _figure(2)
        for drifting in DRIFT:
            end = 1.2 * invariant + (drifting - 0.6) * residual
            arrow = {
                "arrowstyle": "-|>",
                "color": colours["ink"],
                "lw": 1.0,
                "alpha": 0.75,
            }
            left.annotate("", end, (0.0, 0.0), arrowprops=arrow)
        for direction, name in ((invariant, "stable"), (residual, "varies")):
            left.plot(*np.outer([-0.9, 1.9], direction).T, color=colours[name], lw=1.4)
        left.text(1.9, 0.75, "invariant", color=colours["stable"], ha="right", va="top")
        left.text(-0.85, 0.9, "residual", color=colours["varies"], ha="left", va="top")
        left.set(xlabel="coefficient of feature 1", ylabel="coefficient of feature 2")
        left.set(
            xlim=(-0.9, 2.0),
            ylim=(-0.8, 1.7),
            aspect="equal",
            title="one arrow per window",
        )
        places = np.arange(1, WINDOWS + 1)
        right.plot(
            places,
            np.full(WINDOWS, 1.2),
            "o-",
            color=colours["stable"],
            label="along the invariant direction",
        )
        right.plot(
            places,
            np.array(DRIFT) - 0.6,
            "o-",
            color=colours["varies"],
            label="along the residual direction",
        )
        right.set(
            xlabel="window", ylim=(-0.6, 2.1), title="the same in the new directions"
        )
        right.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def draw_exploration(theme_name: str) -> Figure:
    """Probabilities of five actions without a floor, with a uniform one, and by inverse gaps."""
    means = np.array([0.30, 0.26, 0.22, 0.12, 0.05])
    gaps = (means.max() - means) / 0.45
    inverse = 1.0 / (len(means) + 40.0 * gaps)
    inverse[0] = 1.0 - inverse[1:].sum()
    uniform = np.full(len(means), 0.2 / len(means))
    uniform[0] += 0.8
    with theme(theme_name) as colours:
        figure, axes = _figure(3, sharey=True)
        panels = {
            "certain": np.eye(len(means))[0],
            "floor 0.2": uniform,
            "inverse gap": inverse,
        }
        for axis, (title, probabilities) in zip(axes, panels.items(), strict=True):
            axis.bar(range(5), probabilities, color=colours["stable"])
            for index, value in enumerate(probabilities):
                axis.text(index, value + 0.02, f"{value:.2f}", ha="center", fontsize=8)
            axis.set(
                title=title,
                xticks=range(5),
                xticklabels=[f"{mean:.2f}" for mean in means],
            )
            axis.set(ylim=(0, 1.12), xlabel="expected reward of the action")
        axes[0].set_ylabel("probability")
    return figure


def draw_verdicts(theme_name: str) -> Figure:
    """Four intervals of a gain, and what `evaluate` says of each."""
    cases = (
        ("yes", 0.054, 0.040, "stable"),
        ("no", -0.046, 0.030, "varies"),
        ("no difference can be seen", 0.008, 0.030, "ink"),
        ("cannot be known", None, None, "ink"),
    )
    with theme(theme_name) as colours:
        figure, axis = _figure()
        axis.axvline(0.0, color=colours["ink"], lw=0.8)
        for index, (words, value, half, name) in enumerate(reversed(cases)):
            if value is None or half is None:
                axis.text(
                    0.0,
                    index,
                    "  too few rounds where policy and log agree",
                    va="center",
                    fontsize=8.5,
                )
            else:
                axis.errorbar(
                    value,
                    index,
                    xerr=half,
                    fmt="o",
                    color=colours[name],
                    capsize=4,
                    lw=2.0,
                )
            axis.text(-0.245, index, words, va="center", color=colours[name])
        axis.set(xlim=(-0.25, 0.15), ylim=(-0.6, 3.6), yticks=[])
        axis.set_xlabel("gain per round against the log, 95 % interval")
        axis.spines["left"].set_visible(False)
        axis.set_xticks([-0.05, 0.0, 0.05, 0.1])
    return figure


PICTURES: Mapping[str, Callable[[str], Figure]] = {
    "windows": draw_windows,
    "split": draw_split,
    "exploration": draw_exploration,
    "verdicts": draw_verdicts,
}
