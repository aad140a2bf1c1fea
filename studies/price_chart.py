"""The picture of what randomised decisions cost and what their log is worth; drawing only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.checks import InputError
from invariant_bandits.plotting import theme

LOOKS = {
    "uniform": ("stable", "o", "-", "uniform floor"),
    "inverse-gap": ("varies", "s", "--", "inverse gap, sharpness"),
}


def price_chart(rows: Mapping[str, Sequence[tuple[str, float, float]]], *, theme_name: str = "light") -> Figure:
    """Price against half width on logarithmic axes, a line per kind: (label, price, half width), both positive."""
    if not any(rows.values()):
        raise InputError("rows is empty: there is nothing to draw")
    with theme(theme_name) as colours:
        figure = plt.figure(figsize=(7.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for kind, points in rows.items():
            colour, marker, style, words = LOOKS[kind]
            ordered = sorted(points, key=lambda point: point[1])
            prices, widths = [point[1] for point in ordered], [point[2] for point in ordered]
            axis.plot(prices, widths, marker=marker, ls=style, lw=1.4, color=colours[colour], label=words)
            for label, price, wide in ordered:
                axis.annotate(label, (price, wide), xytext=(5, 5), textcoords="offset points", fontsize=8.0)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
        axis.set_xlabel("regret per round that randomising adds")
        axis.set_ylabel("half width of a later evaluation")
        axis.grid(color=colours["faint"], lw=0.5, alpha=0.6)
        axis.legend(frameon=False)
    return figure
