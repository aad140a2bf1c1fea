"""Files written by version 0.1 load, and decide as they did when they were written."""

import json
from pathlib import Path

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.testing import play

FOLDER = Path(__file__).parent / "data" / "version_0_1"
DECISIONS = json.loads((FOLDER / "decisions.json").read_text())


def of_kind(suffix):
    return [name for name in DECISIONS if name.endswith(suffix)]


def test_every_file_has_its_decisions():
    assert sorted(DECISIONS) == sorted(path.name for path in FOLDER.iterdir() if path.name != "decisions.json")
    assert (len(of_kind(".policy")), len(of_kind(".model"))) == (45, 6)


@pytest.mark.parametrize("name", of_kind(".policy"))
def test_a_policy_decides_as_before_and_can_be_stored_anew(name, tmp_path):
    policy = ib.load(FOLDER / name)
    ib.save(policy, tmp_path / "again")
    assert "".join(map(str, play(policy, 200, seed=1))) == DECISIONS[name]
    assert "".join(map(str, play(ib.load(tmp_path / "again"), 200, seed=1))) == DECISIONS[name]


def offered_rounds():
    """100 rounds of four actions with the noise of their rewards, as when the files were written."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        columns = {f"x{j}": rng.normal(size=4).round(3).tolist() for j in range(3)}
        yield columns | {"kind": rng.choice(["a", "b", "c"], 4).tolist()}, float(rng.normal())


@pytest.mark.parametrize("name", of_kind(".model"))
def test_a_model_decides_as_before(name):
    model, chosen = ib.Model.load(FOLDER / name), []
    for offered, noise in offered_rounds():
        chosen.append(model.select(offered))
        model.update(offered, chosen[-1], noise + offered["x0"][chosen[-1]])
    assert "".join(map(str, chosen)) == DECISIONS[name]
    assert model.decomposition.split_.dim == len(model.names)
