"""The files of examples/ run, and what they add is known everywhere: an environment, a policy, an estimator, a log format."""

import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import testing
from invariant_bandits.evaluation.estimators import ESTIMATORS
from invariant_bandits.logs.formats.registry import FORMATS
from invariant_bandits.policies.registry import POLICIES
from invariant_bandits.simulation.cells import grid_of
from invariant_bandits.simulation.episodes import ENVIRONMENTS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(capsys):
    """Runs an example as a script: what it printed, and its names; what it registered is forgotten afterwards."""
    before = {
        registry: {entry.name for entry in registry}
        for registry in (POLICIES, ESTIMATORS, FORMATS, ENVIRONMENTS)
    }

    def run(name):
        names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out, SimpleNamespace(**names)

    yield run
    for registry, names in before.items():
        for name in {entry.name for entry in registry} - names:
            registry.remove(name)


def means(printed):
    """Policy -> mean of a printed summary."""
    rows = re.findall(
        r"^(\S+) +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+$", printed, re.MULTILINE
    )
    return {name: float(mean) for name, mean in rows}


def test_an_environment_without_a_true_split(run):
    printed, own = run("own_environment")
    found = means(printed)
    assert found["auto-isd"] < 0.5 * min(found["linucb"], found["sw-linucb"])
    result = ib.simulate(["uniform"], own.News(logged=500), 20, replications=1, seed=0)
    assert result.settings["regret"] == "against the largest expected reward"
    assert "realised" not in result.summary()
    grid = grid_of(
        {
            "environment": {"kind": "news", "day": [100, 250]},
            "policies": {"linucb": {}},
            "horizon": 20,
        }
    )
    assert [cell.name for cell in grid.cells] == ["day=100", "day=250"]


@dataclass(frozen=True)
class Given:
    """Draws what it was given."""

    parts: dict

    def draw(self, horizon, rng):
        return SimpleNamespace(**self.parts)


OFFERED = np.random.default_rng(0).normal(size=(4, 2, 3))
REWARDS = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 1.0], [0.0, 0.0]])


class First:
    """Plays the first action; takes nothing but what Policy asks for."""

    def select(self, features):
        return 0

    def update(self, features, reward):
        self.last = reward


def test_without_expected_rewards_regret_is_measured_by_what_was_realised_and_the_result_says_so(
    tmp_path,
):
    world = Given({"offered": OFFERED, "rewards": REWARDS})
    result = ib.simulate(
        {"first": First, "linucb": "linucb"}, world, 4, replications=1, seed=0
    )
    assert result.regret["first"].tolist() == [[0.0, 1.0, 1.0, 1.0]]
    assert result.settings["regret"] in result.summary()
    assert "realised" in result.summary()
    result.save(tmp_path / "result.parquet")
    assert (
        ib.SimulationResult.load(tmp_path / "result.parquet").summary()
        == result.summary()
    )


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"offered": OFFERED}, "must draw offered .* and rewards"),
        (
            {"offered": OFFERED[:3], "rewards": REWARDS[:3]},
            r"offered must have shape \(4, K, p\)",
        ),
        (
            {"offered": OFFERED, "rewards": REWARDS[:, :1]},
            r"rewards must have shape \(4, 2\)",
        ),
        (
            {"offered": OFFERED, "rewards": REWARDS, "means": REWARDS[0]},
            r"means must have shape \(4, 2\)",
        ),
    ],
)
def test_an_episode_that_cannot_be_played_is_refused(parts, words):
    with pytest.raises(ib.InputError, match=words):
        ib.simulate({"first": First}, Given(parts), 4, replications=1, seed=0)


def test_a_policy_from_scratch_plays_and_is_compared(run):
    printed, own = run("own_policy")
    found = means(printed)
    assert set(found) == {"gradient", "gradient,rate=0.02", "linucb"}
    assert found["gradient,rate=0.02"] != found["gradient"]
    logs = ib.simulation.PaperWorld().log(1000, np.random.default_rng(0))
    feedback = ib.evaluation.Feedback.from_arrays(
        logs.offered, logs.actions, logs.rewards, propensities=logs.propensities
    )
    compared = ib.compare(
        feedback, {"by name": "gradient,rate=0.02", "by class": own.Gradient}
    )
    assert compared.verdict("by class").startswith(("yes", "no", "unclear", "cannot"))


def test_a_policy_of_ones_own_lists_its_options(run):
    run("own_policy")
    grid = grid_of(
        {"policies": {"gradient": {"rate": 0.02, "epsilon": 0.0}}, "horizon": 20}
    )
    made = (
        grid.cells[0]
        .policies["gradient"]
        .build(
            ib.simulation.PaperEpisodes(logged=50)
            .draw(5, np.random.default_rng(0))
            .past
        )
    )
    assert (made.rate, made.epsilon, made.weights.shape) == (0.02, 0.0, (10,))
    with pytest.raises(
        ib.InputError, match="has no option 'speed'; it has epsilon, rate, seed"
    ):
        grid_of({"policies": {"gradient": {"speed": 1}}})


def test_the_past_gives_a_constructor_what_it_needs_by_name():
    class Planner(First):
        needs = ("horizon", "dim", "actions")

        def __init__(self, horizon, dim, patience=3, *, actions):
            self.known = horizon, dim, patience, actions

    noted = []
    world = ib.simulation.PaperEpisodes(logged=100)
    ib.simulate(
        {"planner": Planner},
        world,
        7,
        1,
        0,
        observe=lambda policy, _: noted.append(policy.known) or {},
    )
    assert noted == [(7, 10, 3, 5)]


def test_the_laws_name_what_a_policy_lacks(run):
    run("own_policy")
    with pytest.raises(
        AssertionError,
        match="Gradient must be a BasePolicy",
    ):
        testing.check_policy("gradient")


def test_a_model_names_what_a_policy_lacks(run):
    run("own_policy")
    logs = ib.simulation.PaperWorld().log(400, np.random.default_rng(0))
    table = {f"x{j}": column for j, column in enumerate(logs.features.T)} | {
        "reward": logs.rewards
    }
    with pytest.raises(
        ib.InputError,
        match="a model stores its policy, which must be a BasePolicy, got Gradient",
    ):
        ib.fit_logs(pa.table(table), policy="gradient", windows=4)


def test_an_estimator_of_ones_own(run):
    printed, _ = run("own_estimator")
    (plain, low, high), (cut, *_) = (
        map(float, re.findall(r"-?[\d.]+\d", line)) for line in printed.splitlines()
    )
    assert low < cut < high
    assert cut == pytest.approx(plain, rel=0.1)


def test_a_log_format_of_ones_own(run):
    printed, _ = run("own_log_format")
    assert (
        printed == "at nine o'clock: B\n"
    )  # the best banner of three, by 10 points over 1,000 visits each


def test_results_bear_the_names_that_were_asked_for():
    asked = ["LinUCB", "d-linucb", "linucb,exploration=0.3"]
    result = ib.simulate(
        asked, ib.simulation.PaperEpisodes(logged=100), 5, replications=1, seed=0
    )
    assert list(result.regret) == asked
