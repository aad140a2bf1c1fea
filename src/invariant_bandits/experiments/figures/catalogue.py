"""All experiments, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterable

from invariant_bandits.checks import InputError
from invariant_bandits.experiments.cells import Cell
from invariant_bandits.experiments.figures import (
    coverage,
    dimension,
    dimension_comparison,
    fast_rotation,
    hedge,
    logged_rounds,
    logged_rounds_comparison,
    lower_bound,
    projection_error,
    residual_dimension,
    violated_invariance,
)
from invariant_bandits.experiments.figures.experiment import Experiment

EXPERIMENTS = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        residual_dimension,
        dimension,
        logged_rounds,
        projection_error,
        dimension_comparison,
        logged_rounds_comparison,
        fast_rotation,
        violated_invariance,
        lower_bound,
        coverage,
        hedge,
    )
}


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names, all of them if there is none."""
    names = list(names)
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise InputError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {', '.join(unknown)}")
    return [EXPERIMENTS[name] for name in dict.fromkeys(names or EXPERIMENTS)]


def cells_of(experiments: Iterable[Experiment]) -> list[Cell]:
    """Their cells, each once: experiments that look at the same worlds share them."""
    cells: dict[str, Cell] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            if cells.setdefault(cell.name, cell) != cell:
                raise InputError(f"two different cells are called {cell.name!r}")
    return list(cells.values())
