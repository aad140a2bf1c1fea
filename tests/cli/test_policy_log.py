"""`evaluate --policy-log`: the value of the policy that wrote another log."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from invariant_bandits.cli.app import app

WORTH = {"a": 0.1, "b": 0.2, "c": 0.6}


def write_log(path, chances, seed, rounds=3000):
    rng = np.random.default_rng(seed)
    labels = rng.choice(list(chances), size=rounds, p=list(chances.values()))
    lines = [
        f"{label},{int(rng.random() < WORTH.get(label, 0.5))},{chances[label]}"
        for label in labels
    ]
    path.write_text("\n".join(["arm,click,propensity", *lines]))
    return path


@pytest.fixture
def random_log(tmp_path):
    return write_log(tmp_path / "random.csv", dict.fromkeys("abc", 1 / 3), 0)


def test_it_says_what_the_policy_earned_and_would_have_earned(tmp_path, random_log):
    own = write_log(tmp_path / "own.csv", {"a": 0.1, "b": 0.1, "c": 0.8}, 1)
    said = CliRunner().invoke(
        app, ["evaluate", str(random_log), "--policy-log", str(own), "--json"]
    )
    assert said.exit_code == 0
    answer = json.loads(said.stdout)
    assert 0.45 < answer["earned"]["value"] < 0.57
    assert answer["estimates"]["DR"]["holds_earned"]
    assert answer["estimates"]["SNIPS"]["holds_earned"]


def test_arms_that_the_log_does_not_have_leave_no_answer(tmp_path, random_log):
    own = write_log(tmp_path / "own.csv", {"a": 0.5, "new": 0.5}, 2)
    said = CliRunner().invoke(
        app, ["evaluate", str(random_log), "--policy-log", str(own)]
    )
    assert said.exit_code == 3
    assert "% of what the policy plays is not an arm of the other log" in " ".join(
        said.output.split()
    )
