"""The command for stored moments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.cli.common import Force, check_target, console
from invariant_bandits.cli.compiling import say_when_compiling


def decompose(
    moments: Annotated[Path, typer.Argument(help="A file written by WindowedMoments.save.")],
    plot: Annotated[Path | None, typer.Option(help="Also draw the overview here (.png, .svg or .pdf).")] = None,
    metric: Annotated[str, typer.Option(help="euclidean or whitened.")] = "euclidean",
    covariances: Annotated[str, typer.Option(help="auto, offered or chosen.")] = "auto",
    alpha: Annotated[float, typer.Option(help="Level of the tests that call a block varying.")] = 0.002,
    windows: Annotated[int | None, typer.Option(help="Merge the windows into this many first.")] = None,
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    force: Force = False,
) -> None:
    """Say what is stable and what drifts in stored moments."""
    from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
    from invariant_bandits.moments.windowed import WindowedMoments

    if plot is not None:
        check_target(plot, "--plot", "picture", force=force, reads=[moments])
        if not plot.suffix:
            plot = plot.with_suffix(".png")
            check_target(plot, "--plot", "picture", force=force, reads=[moments])
    stored = WindowedMoments.load(moments)
    if windows is not None:
        stored = stored.coarsen(windows)
    fit = InvariantSubspaceDecomposition(metric=metric, covariances=covariances, alpha=alpha)
    say_when_compiling()
    with console.status("fitting"):
        fit.fit(stored)
    console.print(fit.summary(), highlight=False)
    if plot is not None:
        from invariant_bandits.reports import plots

        plots.save(plots.overview(fit, theme_name=theme), plot.with_suffix(""), [plot.suffix.lstrip(".")])
        console.print(f"picture: {plot}")


COMMANDS = (decompose,)
