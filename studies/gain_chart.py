"""Pictures of the real-data study; drawing only."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.checks import InputError
from invariant_bandits.plotting import literal, one_line_each, theme

Gains = Mapping[str, Mapping[str, tuple[float, float]]]


def gain_chart(
    data: Mapping[str, Gains], *, ours: tuple[str, ...], reference: str, theme_name: str = "light"
) -> Figure:
    """One row of panels per data set, one panel per stretch of play, one line per policy.

    data: data set -> stretch -> policy -> (mean gain, half length of its bar); ours: policies drawn as filled squares;
    reference: the policy whose mean is the dashed line.
    """
    if not data or any(reference not in here for stretches in data.values() for here in stretches.values()):
        raise InputError(f"data must hold {reference!r}, the reference, in every stretch of every data set")
    columns = max(len(stretches) for stretches in data.values())
    policies = max(len(here) for stretches in data.values() for here in stretches.values())
    with theme(theme_name) as colours:
        figure = plt.figure(figsize=(10.0, len(data) * (0.9 + 0.22 * policies)), layout="constrained")
        panels = figure.subplots(len(data), columns, squeeze=False, sharey="row")
        for row, (title, stretches) in zip(panels, data.items(), strict=True):
            for axis, (stretch, here) in zip(row, stretches.items(), strict=False):
                names = list(here)
                axis.axvline(here[reference][0], color=colours["stable"], lw=0.9, ls="--")
                for place, name in enumerate(names):
                    mean, half = here[name]
                    colour = colours["stable" if name in ours else "ink"]
                    axis.hlines(place, mean - half, mean + half, color=colour, lw=1.4)
                    axis.plot(mean, place, marker="s" if name in ours else "o", ms=4.5, color=colour)
                axis.set_title(literal(f"{title}, {stretch}", 80))
                one_line_each(axis, names, colours)
            for axis in row[len(stretches) :]:
                axis.set_visible(False)
    return figure
