"""Pictures of a fitted decomposition and of regret; drawing only.

Every figure comes in a light theme (print, bright screens) and a dark one. Blue means stable, orange
drifting; the pair stays apart for colour-blind readers and in grey print, where drifting lines are also
dashed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from invariant_bandits import plotting
from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.effects import direction_effects
from invariant_bandits.decomposition.estimator import (
    InvariantSubspaceDecomposition,
    readable_directions,
)
from invariant_bandits.plotting import (
    PATH_COLOURS,
    PATH_STYLES,
    canvas,
    curves,
    literal,
    one_line_each,
)
from invariant_bandits.storage import replace_file

Fit: TypeAlias = InvariantSubspaceDecomposition

COLUMNS = 4
ROW_HEIGHT = 1.75
LONGEST_NAME = 26
WINDOWS_SHOWN = 4
MOST_ARMS = 8
MOST_FEATURES = 24
UNSTAMPED: dict[str, Any] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
SERIES_MARKERS = ("o", "s", "D", "^", "P", "v")
MOST_SERIES = len(SERIES_MARKERS)
SERIES_ORDER = (5, 4, 2, 0, 1, 3)
"""Of PATH_COLOURS: grey first, for what the others are compared with."""


def save(
    figure: Figure,
    stem: str | Path,
    formats: Sequence[str] = ("png", "svg", "pdf"),
    *,
    description: str | None = None,
) -> list[Path]:
    """Write a figure as `stem`.png, .svg and .pdf; returns the paths.

    description: text that a PNG stores beside its pixels.
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    for path in paths:
        drawn = io.BytesIO()
        suffix = path.suffix[1:]
        metadata = dict(UNSTAMPED.get(suffix, {}))
        if description is not None and suffix == "png":
            metadata["Description"] = description
        # The same picture is the same file.
        with plt.rc_context({"svg.hashsalt": "invariant-bandits", "pdf.fonttype": 42}):
            figure.savefig(
                drawn,
                format=suffix,
                bbox_inches="tight",
                metadata=metadata,
            )
        replace_file(path, drawn.getvalue())
    plt.close(figure)
    return paths


def overview(fit: Fit, *, theme_name: str = "light", edges: Any = None) -> Figure:
    """Covariances before and after, coefficient paths, and the stable share of every feature, on one page.

    edges: times that bound the windows (m + 1,), for the axis of the paths.
    """
    directions = min(fit.n_features_in_, 12)
    features = min(fit.n_features_in_, MOST_FEATURES)
    above = max(3.6, 0.8 + 0.16 * features)
    below = ROW_HEIGHT * -(-directions // COLUMNS) + 0.3
    with plotting.theme(theme_name) as colours:
        figure = plt.figure(figsize=(10.0, above + below + 0.3), layout="constrained")
        top, bottom = np.asarray(figure.subfigures(2, 1, height_ratios=[above, below]))
        left, right = top.subfigures(1, 2, width_ratios=[2.1, 1.0])
        _draw_covariances(left, fit, colours)
        _draw_stability(right.subplots(), fit, features, colours)
        columns = min(COLUMNS, directions)
        axes = bottom.subplots(
            -(-directions // columns), columns, squeeze=False, sharex=True
        )
        curves(
            direction_effects(fit)[:directions], edges, axes=axes, theme_name=theme_name
        )
        hidden = (
            f" ({directions} of {fit.n_features_in_} shown)"
            if directions < fit.n_features_in_
            else ""
        )
        bottom.suptitle(
            "What one standard deviation along each direction adds to the reward, with 95 % intervals"
            + hidden,
            x=0.01,
            ha="left",
            fontsize=9.0,
        )
        for figure_part in (top, bottom, left, right):
            figure_part.set_facecolor(colours["paper"])
        split = fit.split_
        title = f"{split.residual_dim} of {split.dim} dimensions drift"
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def regret_chart(
    rows: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    theme_name: str = "light",
    looks: Mapping[str, tuple[str, str]] | None = None,
) -> Figure:
    """Mean (dot) and worst run (end of the whisker) per row and policy, on a logarithmic axis.

    rows: row -> policy -> (mean, worst), both positive; policies differ in shape as well as colour:
    `looks`, policy -> (colour, marker), or six built-in ones in turn.
    """
    policies = list(dict.fromkeys(name for row in rows.values() for name in row))
    if looks is None:
        if not 1 <= len(policies) <= MOST_SERIES:
            raise InputError(
                f"rows must hold 1 to {MOST_SERIES} policies, got {len(policies)}"
            )
        colours_of = [PATH_COLOURS[theme_name][index] for index in SERIES_ORDER]
        looks = dict(
            zip(policies, zip(colours_of, SERIES_MARKERS, strict=True), strict=False)
        )
    step = 0.72 / len(policies)
    tall = 1.1 + 0.12 * (1 + len(policies)) * len(rows)
    with canvas(None, theme_name, 7.4, tall) as (axis, colours):
        for k, name in enumerate(policies):
            colour, marker = looks[name]
            lines = np.array(
                [line for line, row in enumerate(rows.values()) if name in row]
            )
            mean, worst = np.array(
                [row[name] for row in rows.values() if name in row]
            ).T
            height = lines + (k - (len(policies) - 1) / 2) * step
            axis.hlines(height, mean, worst, color=colour, lw=1.3, alpha=0.75)
            axis.plot(worst, height, ls="", marker="|", ms=6, color=colour)
            size = 9 if marker == "*" else 5.5
            axis.plot(
                mean,
                height,
                ls="",
                marker=marker,
                ms=size,
                color=colour,
                label=literal(name),
            )
        for edge in np.arange(1, len(rows)) - 0.5:
            axis.axhline(edge, color=colours["faint"], lw=0.6)
        axis.set(
            xscale="log",
            xlabel="cumulative regret: mean (mark) and worst run (end of line)",
        )
        axis.xaxis.set_major_formatter("{x:g}")
        one_line_each(axis, list(rows), colours)
        figure: Figure = axis.figure
        figure.legend(
            loc="outside upper left",
            ncols=3,
            frameon=False,
            handletextpad=0.2,
            columnspacing=1.4,
        )
    return figure


def arm_rewards(
    mean: Array, error: Array, plays: Array, labels: Sequence[str], *, edges: Any = None
) -> Figure:
    """Mean reward (A, m) of the most played arms over the windows, with 95 % intervals.

    error: standard errors (A, m); plays (A,): rounds of each arm; edges: times that bound the windows.
    """
    shown = np.argsort(-plays, kind="stable")[:MOST_ARMS]
    time = np.arange(1, mean.shape[1] + 1) if edges is None else edges[:-1]
    palette = PATH_COLOURS["light"]
    with canvas(None, "light", 8.4, 3.4) as (axis, colours):
        for order, arm in enumerate(sorted(shown)):
            colour = palette[order % len(palette)]
            style = PATH_STYLES[order // len(palette)]
            bars = {"yerr": 1.96 * error[arm], "marker": "o", "ms": 3.5, "lw": 1.4}
            axis.errorbar(
                time,
                mean[arm],
                **bars,
                color=colour,
                ls=style,
                label=literal(labels[arm], 24),
            )
        most = f", the {len(shown)} most played" if len(shown) < len(mean) else ""
        axis.set(
            ylabel="mean reward",
            xlabel="window" if edges is None else "begin of the window",
        )
        limits = plotting.readable_range(mean, 1.96 * error, zero=False)
        axis.set(ylim=limits, title=f"Mean reward by arm over the windows{most}")
        axis.grid(color=colours["faint"], lw=0.5, alpha=0.6)
        axis.legend(
            loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8
        )
        figure: Figure = axis.figure
    return figure


def _draw_covariances(figure: Any, fit: Fit, colours: dict[str, str]) -> None:
    m = len(fit.window_covariances_)
    shown = np.unique(np.linspace(0, m - 1, min(WINDOWS_SHOWN, m)).round().astype(int))
    palette = LinearSegmentedColormap.from_list(
        "signed", ["#9a6dd7", colours["paper"], "#1b9e77"]
    )
    axes = figure.subplots(2, len(shown), squeeze=False)
    basis = readable_directions(fit)
    image = None
    for column, window in enumerate(shown):
        raw = fit.window_covariances_[window]
        for row, matrix in enumerate((raw, basis.T @ raw @ basis)):
            root = np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
            axis = axes[row, column]
            image = axis.imshow(
                matrix / np.outer(root, root), cmap=palette, vmin=-1.0, vmax=1.0
            )
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(True)
        axes[0, column].set_title(f"window {window + 1}")
        for block, varies in zip(fit.blocks_, fit.varies_, strict=True):
            frame = colours["varies"] if varies else colours["stable"]
            corner = (block[0] - 0.5, block[0] - 0.5)
            axes[1, column].add_patch(
                Rectangle(corner, len(block), len(block), fill=False, ec=frame, lw=1.8)
            )
    axes[0, 0].set_ylabel("features as logged")
    axes[1, 0].set_ylabel("in the found basis")
    bar = figure.colorbar(image, ax=axes, shrink=0.75, pad=0.01)
    bar.set_label("correlation within the window")
    bar.outline.set_visible(False)


def _draw_stability(
    axis: Any, fit: Fit, features: int, colours: dict[str, str]
) -> None:
    share = fit.feature_stability_
    order = np.argsort(share, kind="stable")[:features]
    names = fit.names(fit.n_features_in_)
    line = np.arange(len(order))
    axis.barh(line, share[order], color=colours["stable"], height=0.72)
    axis.barh(
        line,
        1.0 - share[order],
        left=share[order],
        color=colours["varies"],
        height=0.72,
        alpha=0.85,
    )
    labels = [literal(names[j], LONGEST_NAME) for j in order]
    axis.set_yticks(line, labels, fontsize=9.0 if len(order) <= 14 else 7.5)
    axis.invert_yaxis()
    axis.set_xlim(0.0, 1.0)
    axis.set_xticks([0.0, 0.5, 1.0], ["0", "50 %", "100 %"])
    axis.tick_params(length=0)
    axis.spines[["left", "bottom"]].set_visible(False)
    hidden = (
        f"\n{features} of {len(names)} shown, the least stable"
        if features < len(names)
        else ""
    )
    axis.set_title(
        f"share of each feature: stable | drifting{hidden}", fontsize=8.5, loc="right"
    )
