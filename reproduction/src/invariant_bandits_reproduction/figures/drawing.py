"""Figures of the experiments: regret over rounds, over a setting, and its distribution, in one look
throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.checks import Array
from invariant_bandits.plotting import THEMES, canvas
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.figures.experiment import Panel
from invariant_bandits_reproduction.regret_claims import Results, Sample

PALETTE = {
    "light": {
        "grey": "#5f6b76",
        "black": "#1f2933",
        "blue": "#0072b2",
        "sky": "#3a9bd1",
        "green": "#00795a",
        "orange": "#d55e00",
        "gold": "#b07d00",
        "pink": "#b3477f",
        "violet": "#6a51a3",
    },
    "dark": {
        "grey": "#9aa4ae",
        "black": "#e6edf3",
        "blue": "#56b4e9",
        "sky": "#9ad3f5",
        "green": "#2fc99a",
        "orange": "#ff9e4a",
        "gold": "#e6c24a",
        "pink": "#f0a3cb",
        "violet": "#b9a5e8",
    },
}
"""Theme -> colour -> its code."""
LOOKS = {
    "LinUCB": ("grey", "s", "-"),
    "LinUCB, exploration 0.3": ("black", "h", ":"),
    "LinUCB, warm on all logs": ("gold", "X", ":"),
    "Greedy": ("black", "v", ":"),
    "SW-linUCB": ("violet", "P", "--"),
    "D-linUCB": ("pink", "X", "--"),
    "ISD-linUCB, all known": ("sky", "^", ":"),
    "ISD-linUCB, oracle subspaces": ("green", "D", "-."),
    "ISD-linUCB, estimated": ("blue", "o", "-"),
    "ISD-linUCB, estimated, restarted": ("green", "D", "-."),
    "ISD-linUCB, estimated, restarted and": ("blue", "o", "-"),
    "ISD-linUCB, joint set": ("violet", "s", "-."),
    "Restart-linUCB": ("violet", "P", "--"),
    "ISD-linUCB, published recipe": ("gold", "v", "--"),
    "AutoISD": ("orange", "*", "-"),
    "AutoISD, caution None": ("pink", "*", ":"),
}
"""How the name of a policy begins -> colour, marker and style of its line; distinct in grey print."""
WIDTH = 6.6
"""Width of a printed figure in inches: a page with margins."""


def look(policy: str, theme_name: str) -> dict[str, Any]:
    """Colour, marker and line style of a policy, the same in every figure; distinct in grey print."""
    best = max(
        (name for name in LOOKS if policy.startswith(name)), key=len, default=who.LINUCB
    )
    colour, marker, style = LOOKS[best]
    size = 8 if marker == "*" else 5
    return {
        "color": PALETTE[theme_name][colour],
        "marker": marker,
        "ls": style,
        "ms": size,
    }


def over_setting(axis: Any, results: Results, panel: Panel, theme_name: str) -> None:
    """Mean regret of each policy over the setting's values, with two standard errors."""
    cells, policies = panel.cells, panel.policies
    numbered = any(isinstance(x, str) for x in cells)
    places = np.array(list(range(len(cells)) if numbered else cells), dtype=float)
    for shift, policy in enumerate(policies):
        points = panel.points(results, policy)
        mean = np.array([point.mean for point in points])
        error = np.array([2.0 * point.standard_error for point in points])
        nudge = (
            (shift - (len(policies) - 1) / 2) * 0.012 * (places.max() - places.min())
        )
        style = {"lw": 1.5, "elinewidth": 1.0, "capsize": 2, **look(policy, theme_name)}
        axis.errorbar(places + nudge, mean, yerr=error, label=policy, **style)
    axis.set_xticks(places, [f"{x:,}" if isinstance(x, int) else str(x) for x in cells])
    axis.set_ylabel("cumulative regret")


def over_setting_figure(
    panel: Panel, label: str, columns: int = 3
) -> Callable[[Results, str], Figure]:
    """What draws one panel of `over_setting` from results in a theme; label: of the setting's axis."""

    def draw(results: Results, theme_name: str) -> Figure:
        with panels(theme_name, 1) as (figure, (axis,)):
            over_setting(axis, results, panel, theme_name)
            axis.set(xlabel=label, ylim=(0.0, None))
            legend(figure, axis, columns)
        return figure

    return draw


def plain_log_axis(axis: Any) -> None:
    """Make the regret's axis logarithmic, with plain numbers and no labels between them."""
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")


def over_rounds(
    axis: Any, sample: Sample, cell: str, policies: Sequence[str], theme_name: str
) -> None:
    """Mean regret of each policy over the rounds, with a band of two standard errors."""
    rounds = sample.rounds(cell)
    for policy in policies:
        paths = sample.regret(cell, policy)
        mean = paths.mean(axis=0)
        error = 2.0 * paths.std(axis=0, ddof=1) / np.sqrt(len(paths))
        style = look(policy, theme_name)
        axis.plot(
            rounds,
            mean,
            lw=1.6,
            label=policy,
            markevery=(len(rounds) // 6, len(rounds) // 4),
            **style,
        )
        axis.fill_between(
            rounds, mean - error, mean + error, color=style["color"], alpha=0.18, lw=0
        )
    axis.set(xlabel="round t", ylabel="cumulative regret")


def distributions(
    axis: Any, groups: Mapping[str, Array], policy: str, theme_name: str
) -> None:
    """Every repetition of a policy as a dot beside a box (quartiles, median)."""
    rng = np.random.default_rng(0)
    colour = look(policy, theme_name)["color"]
    ink = THEMES[theme_name]["ink"]
    for index, values in enumerate(groups.values()):
        jitter = rng.uniform(-0.28, 0.28, len(values))
        axis.plot(
            index + jitter,
            values,
            ls="",
            marker="o",
            ms=2.2,
            alpha=0.35,
            color=colour,
            mew=0,
        )
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        axis.vlines([index - 0.33, index + 0.33], low, high, color=ink, lw=0.9)
        axis.hlines([low, high], index - 0.33, index + 0.33, color=ink, lw=0.9)
        axis.hlines(middle, index - 0.33, index + 0.33, color=ink, lw=2.0)
    axis.set_xticks(range(len(groups)), list(groups))


@contextmanager
def panels(
    theme_name: str, count: int, height: float = 3.1, **options: Any
) -> Iterator[tuple[Figure, list[Any]]]:
    """A figure at print width with `count` axes side by side, within its theme."""
    with canvas(
        None, theme_name, WIDTH, height, 1, count, squeeze=False, **options
    ) as (grid, colours):
        axes = list(grid.flat)
        for axis in axes:
            axis.grid(axis="y", color=colours["faint"], lw=0.5, alpha=0.6)
            axis.set_axisbelow(True)
        yield axes[0].figure, axes


def legend(figure: Figure, axis: Any, columns: int = 3) -> None:
    """One legend above all panels."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        handlelength=2.6,
    )
