"""Charts of plain numbers in a light and a dark theme, for results and reports.

Every figure comes in a light theme (print, bright screens) and a dark one. Blue means stable or gained,
orange drifting or lost; the pair stays apart for colour-blind readers and in grey print.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, escape_control_chars, one_of
from invariant_bandits.optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEMES = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1f2933",
        "faint": "#d5dbe1",
        "stable": "#0072b2",
        "varies": "#d55e00",
    },
    "dark": {
        "paper": "#0d1117",
        "ink": "#e6edf3",
        "faint": "#3d444d",
        "stable": "#56b4e9",
        "varies": "#ff9e4a",
    },
}
PATH_STYLES = ("-", "--", "-.", ":")
PATH_COLOURS = {
    "light": ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#1f2933", "#8a949e"),
    "dark": ("#56b4e9", "#ff9e4a", "#2fc99a", "#e6a3cb", "#e6edf3", "#7d8590"),
}


@contextmanager
def theme(name: str) -> Iterator[dict[str, str]]:
    """Matplotlib settings for one theme; yields its colours."""
    colours = THEMES[one_of("theme", name, tuple(THEMES))]
    ink = colours["ink"]
    paper = colours["paper"]
    settings: Any = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.edgecolor": colours["faint"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.linewidth": 0.8,
        "figure.dpi": 120,
        "savefig.dpi": 160,
        "svg.fonttype": "path",
        "svg.hashsalt": "invariant-bandits",  # the same picture is the same file
    }
    with require("matplotlib", "plot").rc_context(settings):
        yield colours


@contextmanager
def canvas(
    axes: Any,
    theme_name: str,
    width: float,
    height: float,
    rows: int = 1,
    columns: int = 1,
    **options: Any,
) -> Iterator[tuple[Any, dict[str, str]]]:
    """Where to draw within a theme, and its colours: the caller's axes, or those of a new figure (inches);
    options: of its subplots.
    """
    with theme(theme_name) as colours:
        if axes is None:
            plt = require("matplotlib.pyplot", "plot")
            axes = plt.figure(figsize=(width, height), layout="constrained").subplots(
                rows, columns, **options
            )
        yield axes, colours


def one_line_each(axis: Any, names: Sequence[str], colours: Mapping[str, str]) -> None:
    """Lay out an axis with one line per name, the first above."""
    axis.set_yticks(range(len(names)), [literal(name) for name in names])
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=colours["faint"], lw=0.5, alpha=0.6)
    axis.set_axisbelow(True)


def difference_chart(
    rows: Mapping[str, tuple[float, float, float] | None],
    *,
    axes: Any = None,
    theme_name: str = "light",
    words: str = "gain per round over what the log did, with its interval",
) -> Any:
    """Differences with their intervals, one line per name: (value, low, high), or None if nothing is known;
    the axes, those given or new ones.

    Those above zero for certain are blue dots, those below orange squares, the others grey diamonds.
    """
    with canvas(axes, theme_name, 7.4, 0.9 + 0.34 * len(rows)) as (axis, colours):
        looks = {
            1: (colours["stable"], "o"),
            0: ("#8a949e", "D"),
            -1: (colours["varies"], "s"),
        }
        axis.axvline(0.0, color=colours["ink"], lw=0.8)
        for line, row in enumerate(rows.values()):
            if row is None:
                axis.text(
                    0.0,
                    line,
                    " cannot be known",
                    va="center",
                    fontsize=8.0,
                    color=looks[0][0],
                )
                continue
            value, low, high = row
            colour, marker = looks[int(low > 0.0) - int(high < 0.0)]
            axis.hlines(line, low, high, color=colour, lw=1.8)
            axis.plot([low, high], [line, line], ls="", marker="|", ms=8, color=colour)
            axis.plot(value, line, ls="", marker=marker, ms=6.5, color=colour)
        one_line_each(axis, list(rows), colours)
        axis.set_xlabel(words)
    return axis


def shares_chart(
    shares: Mapping[str, float], *, axes: Any = None, theme_name: str = "light"
) -> Any:
    """Probabilities as bars with their numbers, one line per name; the axes, those given or new ones."""
    with canvas(axes, theme_name, 7.4, 0.9 + 0.34 * len(shares)) as (axis, colours):
        axis.barh(
            range(len(shares)),
            list(shares.values()),
            height=0.62,
            color=colours["stable"],
        )
        for line, share in enumerate(shares.values()):
            axis.text(
                share + 0.01,
                line,
                f"{100.0 * share:.1f} %",
                va="center",
                color=colours["ink"],
            )
        one_line_each(axis, list(shares), colours)
        axis.set(xlim=(0.0, 1.12), xlabel="probability")
        axis.set_xticks([0.0, 0.5, 1.0], ["0", "50 %", "100 %"])
    return axis


def regret_paths(
    rounds: Array,
    paths: Mapping[str, tuple[Array, Array]],
    *,
    axes: Any = None,
    theme_name: str = "light",
    words: str = "regret",
) -> Any:
    """Means over time with bands of two standard errors: name -> (means (R,), errors (R,)) at the rounds
    (R,); the axes, those given or new ones.
    """
    with canvas(axes, theme_name, 7.4, 4.2) as (axis, colours):
        for index, (name, (mean, error)) in enumerate(paths.items()):
            turn, shade = divmod(index, len(PATH_COLOURS[theme_name]))
            colour = PATH_COLOURS[theme_name][shade]
            style = PATH_STYLES[turn % len(PATH_STYLES)]
            axis.fill_between(
                rounds,
                mean - 2.0 * error,
                mean + 2.0 * error,
                color=colour,
                alpha=0.2,
                lw=0,
            )
            axis.plot(rounds, mean, color=colour, ls=style, lw=1.6, label=literal(name))
        limits = (float(np.min(rounds)), float(np.max(rounds)))
        axis.set(xlim=limits, ylim=(0.0, None), xlabel="round", ylabel=words)
        axis.grid(color=colours["faint"], lw=0.5, alpha=0.6)
        axis.legend(frameon=False)
    return axis


def curves(
    paths: Sequence[Any],
    edges: Any = None,
    *,
    axes: Any = None,
    theme_name: str = "light",
) -> Array:
    """One panel per effect over the windows with its interval, drifting ones orange and dashed; the axes.

    A value beyond the frame, of a window that knows too little, is a triangle at its edge.

    Parameters
    ----------
    paths : sequence of EffectPath
    edges : array, shape (m + 1,), optional
        Times that bound the windows; windows are numbered if they are not given.
    axes : Axes or array of Axes, optional
        Where to draw; a new figure if not given.
    """
    columns = max(min(3, len(paths)), 1)
    rows = -(-max(len(paths), 1) // columns)
    with canvas(
        axes,
        theme_name,
        width=3.4 * columns,
        height=0.3 + 2.1 * rows,
        rows=rows,
        columns=columns,
        squeeze=False,
        sharex=True,
    ) as (axes, colours):
        flat = np.atleast_1d(axes).ravel()
        for axis, path in zip(flat, paths, strict=False):
            colour = colours["varies" if path.drifts else "stable"]
            time = window_times(len(path.values), edges)
            axis.axhline(0.0, color=colours["faint"], lw=0.8, zorder=0.5)
            axis.fill_between(time, path.low, path.high, color=colour, alpha=0.22, lw=0)
            low, high = readable_range(path.values, path.high - path.values)
            inside = np.where(
                (path.values >= low) & (path.values <= high), path.values, np.nan
            )
            axis.plot(
                time,
                inside,
                color=colour,
                ls="--" if path.drifts else "-",
                marker="o",
                ms=3,
            )
            for edge, marker in ((low, "v"), (high, "^")):
                beyond = path.values < low if marker == "v" else path.values > high
                if beyond.any():
                    at_edge = np.full(beyond.sum(), edge)
                    axis.plot(
                        time[beyond], at_edge, marker, color=colour, clip_on=False
                    )
            axis.set_title(
                f"{literal(path.title, 40)}\n{literal(path.change_in_words(edges), 48)}",
                fontsize=8.0,
            )
            axis.set_ylim(low, high)
            axis.set_ylabel(path.axis_label)
            if path.unit != "reward":
                axis.yaxis.set_major_formatter(lambda value, _: f"{100.0 * value:.3g}")
        for axis in flat[len(paths) :]:
            axis.set_visible(False)
        for column in np.atleast_2d(axes).T:
            lowest = [axis for axis in column if axis.get_visible()][-1:]
            for axis in lowest:
                few_times(axis, edges)
                axis.tick_params(labelbottom=True)
    return flat


def window_times(windows: int, edges: Any) -> Any:
    """Where the windows stand on the axis (m,): their middles in time, or their numbers from 1."""
    if edges is None or len(edges) != windows + 1:
        return np.arange(1, windows + 1)
    edges = np.asarray(edges)
    return edges[:-1] + np.diff(edges) / 2


def few_times(axis: Any, edges: Any) -> None:
    """Few ticks on the axis of time: dates, numbers, or whole numbers of windows, and its name."""
    if edges is not None and np.asarray(edges).dtype.kind == "M":
        dates = require("matplotlib.dates", "plot")
        locator = dates.AutoDateLocator(minticks=2, maxticks=4)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        return
    ticker = require("matplotlib.ticker", "plot")
    axis.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=edges is None))
    axis.set_xlabel("window" if edges is None else "time")


def readable_range(
    values: Array, errors: Array, *, zero: bool = True
) -> tuple[float, float]:
    """Return limits that hold all bands of median width, and `zero` if wanted.

    A window that knows nothing must not flatten the others.
    """
    known = np.isfinite(values) & np.isfinite(errors)
    if not known.any():
        return -1.0, 1.0
    values = values[known]
    errors = errors[known]
    sure = errors <= 4.0 * np.median(errors)
    low = float((values - 1.05 * errors)[sure].min())
    high = float((values + 1.05 * errors)[sure].max())
    margin = 0.08 * (high - low) or 1.0
    low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    return low - margin, high + margin


def svg_of(figure: Figure) -> str:
    """A figure as SVG; closes the figure."""
    buffer = io.StringIO()
    # Names in a script that the font lacks are boxes; the table has them.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(
            buffer,
            format="svg",
            bbox_inches="tight",
            metadata={"Date": None, "Creator": None},
        )
    require("matplotlib.pyplot", "plot").close(figure)
    return buffer.getvalue()


def notebook_html(words: str, plot: Callable[[], Any] | None = None) -> str:
    """What a notebook shows of a result: its words as they stand, and a picture if matplotlib is there.

    plot: draws on new axes and returns them.
    """
    parts = [f"<pre>{escape(escape_control_chars(words))}</pre>"]
    if plot is not None and find_spec("matplotlib") is not None:
        drawing = svg_of(np.ravel(plot())[0].figure)
        parts.append(drawing[drawing.index("<svg") :])
    return "\n".join(parts)


class ShownInNotebooks:
    """A result that a notebook shows as its words and its picture."""

    plot: Any

    def _repr_html_(self) -> str:
        return notebook_html(str(self), self.plot)


def literal(name: str, most: int = 60) -> str:
    """A name as it is, in one line, cut in the middle beyond `most` characters: nothing in it is a formula.

    >>> print(literal(r"$\\frac$ of\tsales"), literal("a name that goes on and on", most=12))
    \\$\\frac\\$ of sales a name…nd on
    """
    line = " ".join(
        "".join(sign if sign.isprintable() else " " for sign in name).split()
    )
    if len(line) > most:
        line = f"{line[: most // 2]}…{line[len(line) - (most - most // 2 - 1) :]}"
    return line.replace("$", r"\$")
