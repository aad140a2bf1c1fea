"""Pictures of README and of the site that show experiments, each beside the numbers that it shows.

docs/figures/NAME.json holds the mean, the standard error and the repetitions of every point, the regret of
the first repetitions, and the seed. The pictures store the digest of that file, so that a test can compare
the pictures with the numbers and the numbers with the present code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from invariant_bandits.plotting import THEMES
from invariant_bandits.reports import plots
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.loop import SimulationResult
from invariant_bandits.storage import replace_file
from invariant_bandits_reproduction import run
from invariant_bandits_reproduction.figures.experiment import Experiment, chosen
from invariant_bandits_reproduction.regret_claims import Results

PICTURED = ("dimension", "logged-rounds", "violated-invariance")
"""Experiments whose figures README shows."""
DIGITS = 3
"""Decimals of a regret that are stored; a page shows one."""
FIRST = 2
"""Repetitions whose regrets are stored one by one: few enough to be played again in a test."""


def numbers_of(
    experiment: Experiment, results: Results, *, seed: int, replications: int
) -> dict[str, Any]:
    """Return everything that the figure of an experiment shows, as plain data."""
    points = experiment.points(results)
    shown = dict.fromkeys((point.cell, point.policy) for point in points)
    return {
        "experiment": experiment.name,
        "seed": seed,
        "replications": replications,
        "points": [
            {
                "cell": point.cell,
                "policy": point.policy,
                "right_dimensions_only": point.right_only,
                "mean": rounded(point.mean),
                "standard_error": rounded(point.standard_error),
                "repetitions": point.repetitions,
            }
            for point in points
        ],
        "first_repetitions": [
            {
                "cell": cell,
                "policy": policy,
                "regret": first_regrets(results[cell], policy),
            }
            for cell, policy in shown
        ],
    }


def rounded(value: float) -> float | None:
    """Return a regret as it is stored; None stands for a mean over no repetition."""
    return None if value != value else round(value, DIGITS)


def first_regrets(result: SimulationResult, policy: str) -> list[float]:
    """Return the regret of a policy at the horizon in the first repetitions."""
    return [
        round(float(regret), DIGITS) for regret in result.regret[policy][:FIRST, -1]
    ]


def as_text(numbers: Mapping[str, Any]) -> str:
    """Return JSON with one line per point, so that a change of one number is a change of one line."""
    entries = []
    for name, value in numbers.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            entries.append(f"{json.dumps(name)}: [\n{rows}\n ]")
        else:
            entries.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(entries) + "\n}\n"


def digest(text: str) -> str:
    """Return what a picture stores of its numbers."""
    return f"numbers sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def played_again(cell: Cell, seed: int, replications: int) -> SimulationResult:
    """Play the first repetitions of a stored cell with the present code."""
    return cell.play(replications, cell.seed(seed), 1, lambda *_: None)


def write_pictures(results: Path, figures: Path) -> list[Path]:
    """Draw the pictures from the folder of a run into `figures`, with their numbers; returns the paths."""
    found = run.read(results, resamples=2)
    figures.mkdir(parents=True, exist_ok=True)
    paths = []
    for experiment in chosen(PICTURED):
        numbers = numbers_of(
            experiment,
            found.results,
            seed=found.run.seed,
            replications=found.run.replications,
        )
        text = as_text(numbers)
        paths.append(figures / f"{experiment.name}.json")
        replace_file(paths[-1], text.encode())
        for theme in THEMES:
            paths += plots.save(
                experiment.draw(found.results, theme),
                figures / f"{experiment.name}-{theme}",
                ["png"],
                description=digest(text),
            )
    return paths
