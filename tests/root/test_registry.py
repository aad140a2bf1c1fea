"""A new policy, estimator, log format or environment is one file; everything else knows it without being
touched.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import invariant_bandits as ib
import policy_laws
from invariant_bandits import cli, testing
from invariant_bandits.evaluation.estimators import ESTIMATORS
from invariant_bandits.policies.registry import POLICIES
from invariant_bandits.simulation import cells
from invariant_bandits.simulation.cells import grid_of
from invariant_bandits.simulation.episodes import ENVIRONMENTS
from invariant_bandits_reproduction.studies import online_study

POLICY = '''
"""LinUCB whose exploration fades."""

import invariant_bandits as ib


@ib.register_policy("linucb-decaying")
class DecayingLinUCB(ib.LinUCB):
    """Exploration falls from its first value as 1/(1 + rounds/horizon)."""

    options = {**ib.LinUCB.options, "horizon": ib.Option(100), "first": ib.Option(1.0)}

    def refresh_radii(self, volume):
        self.exploration = self.first / (1.0 + self.rounds / self.horizon)
        super().refresh_radii(volume)
'''

ESTIMATOR = '''
"""IPS with its weights cut at 10."""

import numpy as np

import invariant_bandits as ib
from invariant_bandits.evaluation.estimators import importance_weights, support
from invariant_bandits.evaluation.intervals import estimated


@ib.register_estimator("clipped IPS", rank=4)
def clipped_ips(feedback, target, *, confidence=0.95):
    """Biased, but never ruled by one round."""
    weights = np.minimum(importance_weights(feedback, target), 10.0)
    effective, reasons = support(weights)
    gains, ones = weights * feedback.rewards, np.ones(feedback.rounds)
    return estimated(gains, ones, effective_sample=effective, confidence=confidence, reasons=reasons)
'''

ENVIRONMENT = '''
"""A world without logs that matter: the paper's, asleep."""

from dataclasses import dataclass

import invariant_bandits as ib


@ib.register_environment("sleepy")
@dataclass(frozen=True)
class SleepyEpisodes:
    """The paper's episodes without any drift."""

    logged: int = 400

    def draw(self, horizon, rng):
        return ib.simulation.PaperEpisodes(ib.simulation.PaperWorld(blocks=(2, 1), varying=None), logged=self.logged).draw(horizon, rng)
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module into a temporary folder and imports it; what it registers is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = {
        registry: {entry.name for entry in registry}
        for registry in (POLICIES, ESTIMATORS, ENVIRONMENTS)
    }

    def write(name, text):
        assert len(text.strip().splitlines()) <= 30
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for registry, names in before.items():
        for name in {entry.name for entry in registry} - names:
            registry.remove(name)
    for name in ("own_policy", "own_estimator", "own_environment"):
        sys.modules.pop(name, None)


def logged_feedback(rounds=800, seed=0):
    rng = np.random.default_rng(seed)
    offered = rng.normal(size=(rounds, 3, 4))
    actions = rng.integers(3, size=rounds)
    rewards = offered[np.arange(rounds), actions] @ [1.0, -1.0, 0.5, 0.0] + rng.normal(
        size=rounds
    )
    return ib.evaluation.Feedback.from_arrays(
        offered, actions, rewards, propensities=np.full(rounds, 1 / 3)
    )


def log_file(folder, rounds=800):
    feedback = logged_feedback(rounds)
    columns = {
        "round": np.repeat(np.arange(rounds), 3),
        "chosen": (np.arange(3) == feedback.actions[:, None]).reshape(-1),
        "reward": np.repeat(feedback.rewards, 3),
        "propensity": np.full(3 * rounds, 1 / 3),
    }
    features = {f"x{j}": feedback.offered[:, j] for j in range(4)}
    pq.write_table(pa.table(columns | features), folder / "log.parquet")
    return folder / "log.parquet"


GRID = """
replications = 2
horizon = 20
[environment]
logged = 400
[policies.linucb-decaying]
first = 0.3
[policies.linucb]
"""


@pytest.fixture
def run_command(monkeypatch, capsys, tmp_path):
    """Run the command in this process and a temporary folder: (exit code, standard output and error)."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["invariant-bandits", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, "".join(capsys.readouterr())

    return call


# -- a policy --


def test_a_new_policy_is_simulated_compared_stored_and_obeys_the_laws(module, tmp_path):
    own = module("own_policy", POLICY)
    result = ib.simulate(
        ["linucb-decaying", "linucb"],
        ib.simulation.PaperEpisodes(logged=400),
        30,
        replications=2,
        seed=1,
    )
    assert list(result.regret) == ["linucb-decaying", "linucb"]
    assert not np.array_equal(result.regret["linucb-decaying"], result.regret["linucb"])
    compared = ib.compare(logged_feedback(), ["linucb-decaying", "uniform"])
    assert compared.verdict("linucb-decaying").startswith("yes, by")
    policy = own.DecayingLinUCB(4, horizon=50)
    testing.play(policy, 40, seed=0)
    ib.save(policy, tmp_path / "policy")
    loaded = ib.load(tmp_path / "policy")
    assert type(loaded) is own.DecayingLinUCB
    assert loaded.exploration == policy.exploration == 1.0 / 1.8
    assert testing.play(loaded, 50, seed=1) == testing.play(policy, 50, seed=1)
    testing.check_policy("linucb-decaying")
    assert any(
        words.startswith("linucb-decaying") for words in policy_laws.registered_makers()
    )


def test_a_new_policy_is_known_to_grids_and_models(module, tmp_path):
    module("own_policy", POLICY)
    grid = grid_of(
        {
            "horizon": 20,
            "environment": {"logged": 400},
            "policies": {"linucb-decaying": {"first": 0.3}},
        }
    )
    (result,) = cells.run(grid.cells, tmp_path, replications=2, seed=0).values()
    assert result.regret["linucb-decaying"].shape[0] == 2
    with pytest.raises(
        ib.InputError,
        match="'linucb-decaying' has no option 'last'; it has delta, exploration",
    ):
        grid_of({"policies": {"linucb-decaying": {"last": 0.3}}})
    model = ib.fit_logs(log_file(tmp_path), policy="linucb-decaying")
    assert model.policy.rounds == 800  # it has learned the log
    model.save(tmp_path / "model")
    assert type(ib.Model.load(tmp_path / "model").policy) is type(model.policy)


def test_a_changed_policy_of_ones_own_makes_its_stored_cells_stale(module, tmp_path):
    module("own_policy", POLICY)
    grid = grid_of({"policies": {"linucb-decaying": {}}})
    assert "own_policy" in grid.cells[0].modules()


@pytest.mark.system
def test_the_command_takes_ones_own_file_and_without_it_says_what_is_known(
    tmp_path, module, run_command
):
    log = log_file(tmp_path)
    (tmp_path / "own_policy.py").write_text(POLICY)
    (tmp_path / "grid.toml").write_text(GRID)
    options = ["--policy", "linucb-decaying"]
    code, said = run_command("fit", log, "-o", tmp_path / "n", *options)
    assert code == 2
    assert "policy must be one of affine-linucb, auto-isd" in said
    assert not (tmp_path / "n").exists()
    program = "from invariant_bandits.cli import main; main()"
    fit = ["--plugin", "own_policy.py", "fit", log, "-o", tmp_path / "m", *options]
    fitted = subprocess.run(
        [sys.executable, "-c", program, *map(str, fit)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(ib.__file__).parents[1])},
    )
    assert fitted.returncode == 0, fitted.stdout + fitted.stderr
    assert "policy linucb-decaying" in " ".join(fitted.stdout.split())
    assert (
        "linucb-decaying  " in fitted.stdout
    )  # the expected value is the fitted policy's
    code, said = run_command(
        "--plugin", "own_policy", "simulate", "grid.toml", "--jobs", 1
    )
    assert code == 0, said
    assert "linucb-decaying" in said
    _, said = run_command(
        "--plugin", "own_policy", "evaluate", log, *options, "--jobs", 1
    )
    assert "linucb-decaying against what the log did: yes, by" in said


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ("nothing_there", "--plugin: there is no module 'nothing_there'"),
        ("gone.py", "--plugin: there is no module 'gone.py'"),
    ],
)
def test_a_plugin_that_is_not_there_is_named(plugin, message, run_command):
    code, said = run_command("--plugin", plugin, "inspect", "model")
    assert code == 2
    assert message in said


def test_names_are_checked_and_those_of_others_refused():
    with pytest.raises(ib.InputError, match="lower case words joined by hyphens"):
        ib.register_policy("My Policy")
    with pytest.raises(
        ib.InputError,
        match=r"policy 'linucb' is registered already, by invariant_bandits\.policies",
    ):
        ib.register_policy("linucb")(type("Mine", (ib.LinUCB,), {}))


# -- an estimator --


def test_a_new_estimator_is_asked_by_compare(module):
    module("own_estimator", ESTIMATOR)
    result = ib.compare(logged_feedback(), ["frozen"])
    assert [line.estimator for line in result.lines] == [
        "DR",
        "SNIPS",
        "IPS",
        "replay",
        "clipped IPS",
    ]
    plain, clipped = (
        result.line("frozen", name).value for name in ("IPS", "clipped IPS")
    )
    assert clipped.value == plain.value  # weights are 3 or 0 here: nothing is cut
    assert "clipped IPS" in result.summary()
    only = ib.compare(logged_feedback(), ["frozen"], estimators=["clipped IPS"])
    assert [line.estimator for line in only.lines] == ["clipped IPS"]


def test_an_unknown_estimator_is_refused_with_those_there_are():
    with pytest.raises(
        ib.InputError,
        match="estimator must be one of DR, IPS, SNIPS, direct, exact, replay",
    ):
        ib.compare(logged_feedback(), ["frozen"], estimators=["magic"])


# -- an environment --


def test_a_new_environment_enters_grids_and_the_online_study(module, tmp_path):
    own = module("own_environment", ENVIRONMENT)
    grid = grid_of(
        {
            "horizon": 10,
            "environment": {"kind": "sleepy", "logged": [300, 400]},
            "policies": {"linucb": {}},
        }
    )
    assert [cell.environment for cell in grid.cells] == [
        own.SleepyEpisodes(300),
        own.SleepyEpisodes(400),
    ]
    assert grid.cells[0].settings()["environment"] == {"kind": "sleepy", "logged": 300}
    row = online_study.row("sleepy", own.SleepyEpisodes(), horizon=20, drifts=False)
    outcome = online_study.run((row,), replications=2, seed=0, jobs=1)
    played = set(online_study.CONTENDERS) - {
        online_study.ISD_ORACLE,
        online_study.AUTO_FREE,
    }
    assert set(outcome.values["sleepy"]) == played
