"""README's pictures show the numbers beside them, and these are the numbers of the present code."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from invariant_bandits.plotting import THEMES
from invariant_bandits.simulation.loop import SimulationResult
from invariant_bandits_reproduction.figures.experiment import EXPERIMENTS, cells_of
from invariant_bandits_reproduction.studies.experiment_pictures import (
    FIRST,
    PICTURED,
    as_text,
    digest,
    first_regrets,
    numbers_of,
    played_again,
    rounded,
)

FIGURES = Path(__file__).parents[3] / "docs" / "figures"
REMEDY = "README's pictures are of other code: run `make figures`"


def stored(name):
    return json.loads((FIGURES / f"{name}.json").read_text())


def cell_named(name, cell):
    return {each.name: each for each in EXPERIMENTS.find(name).cells}[cell]


@pytest.mark.parametrize("name", PICTURED)
@pytest.mark.parametrize("theme", THEMES)
def test_a_picture_was_drawn_from_the_numbers_beside_it(name, theme):
    with Image.open(FIGURES / f"{name}-{theme}.png") as picture:
        written = picture.info.get("Description")
    assert written == digest((FIGURES / f"{name}.json").read_text()), REMEDY


@pytest.mark.parametrize("name", PICTURED)
def test_the_numbers_are_those_of_every_point_of_the_figure(name):
    numbers = stored(name)
    experiment = EXPERIMENTS.find(name)
    shown = [
        (cell, policy, panel.right_only)
        for panel in experiment.panels
        for policy in panel.policies
        for cell in panel.cells.values()
    ]
    assert shown == [
        (point["cell"], point["policy"], point["right_dimensions_only"])
        for point in numbers["points"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURED)
def test_the_first_repetitions_of_every_cell_are_those_of_the_present_code(name):
    numbers = stored(name)
    of_cell = {}
    for row in numbers["first_repetitions"]:
        of_cell.setdefault(row["cell"], {})[row["policy"]] = row["regret"]
    assert of_cell
    for cell, regrets in of_cell.items():
        played = played_again(cell_named(name, cell), numbers["seed"], FIRST)
        for policy, regret in regrets.items():
            assert first_regrets(played, policy) == pytest.approx(regret, abs=2e-3), (
                f"{cell}, {policy}: {REMEDY}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["dimension-3", "dimension-10"])
def test_two_cells_of_the_first_picture_are_whole_those_of_the_present_code(cell):
    numbers = stored("dimension")
    played = played_again(
        cell_named("dimension", cell), numbers["seed"], numbers["replications"]
    )
    points = [point for point in numbers["points"] if point["cell"] == cell]
    assert len(points) == 3
    for point in points:
        finals = played.regret[point["policy"]][:, -1]
        error = finals.std(ddof=1) / len(finals) ** 0.5
        assert finals.mean() == pytest.approx(point["mean"], abs=2e-3), REMEDY
        assert error == pytest.approx(point["standard_error"], abs=2e-3), REMEDY


def test_numbers_are_means_errors_and_counts_of_the_results():
    experiment = EXPERIMENTS.find("dimension")
    rng = np.random.default_rng(0)
    results = {
        cell.name: SimulationResult(
            {policy: rng.uniform(1, 9, (5, 1)) for policy in cell.policies},
            np.array([1]),
        )
        for cell in cells_of([experiment])
    }
    numbers = numbers_of(experiment, results, seed=3, replications=5)
    assert json.loads(as_text(numbers)) == numbers
    point = numbers["points"][0]
    finals = results[point["cell"]].regret[point["policy"]][:, 0]
    assert point["mean"] == rounded(float(finals.mean()))
    assert point["standard_error"] == rounded(float(finals.std(ddof=1) / 5**0.5))
    assert point["repetitions"] == 5
    assert digest(as_text(numbers)) != digest(as_text(numbers | {"seed": 4}))
