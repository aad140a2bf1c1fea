"""The experiments are those of the paper: their worlds, horizons and policies, read back from the cells."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import invariant_bandits
from invariant_bandits.policies.memory import FOREVER, Restart, SlidingWindow
from invariant_bandits.policies.registry import POLICIES, PolicySpec
from invariant_bandits.simulation import cells
from invariant_bandits.simulation.cells import Cell, grid_of
from invariant_bandits.simulation.episodes import PaperEpisodes, build_policy
from invariant_bandits.simulation.loop import SimulationResult, play
from invariant_bandits_reproduction import contenders
from invariant_bandits_reproduction.figures import changing, epochs, guarantees
from invariant_bandits_reproduction.figures.experiment import (
    PublishedResult,
    cells_of,
    chosen,
)
from invariant_bandits_reproduction.figures.stationary import CODE, PRINTED

PUBLISHED_SEEDS = {
    "dimension-3": 11509275548041198532,
    "lower-bound-1": 3625748503073508419,
}


def drawn(cell, seed=0):
    return cell.environment.draw(cell.horizon, np.random.default_rng(seed))


@pytest.mark.parametrize("p_res", [2, 4, 6, 8])
def test_the_residual_experiment_plants_ten_dimensions_of_which_so_many_drift(p_res):
    cell = CODE.residual[p_res]
    episode = drawn(cell)
    assert (episode.dim, episode.horizon, len(episode.logs.rewards)) == (10, 100, 2000)
    assert episode.logs.split.residual_dim == p_res
    assert episode.offered.shape[1] == 5
    assert cell.environment.world.regimes == 5


@pytest.mark.parametrize("p", range(3, 11))
def test_the_dimension_experiment_always_drifts_in_two(p):
    episode = drawn(CODE.dimension[p])
    assert (episode.dim, episode.horizon, len(episode.logs.rewards)) == (p, 100, 2000)
    assert episode.logs.split.residual_dim == 2


@pytest.mark.parametrize("logged", [1000, 3500, 8000])
def test_the_logs_experiment_has_seven_stable_and_three_drifting_dimensions(logged):
    episode = drawn(CODE.logged[logged])
    assert (episode.horizon, len(episode.logs.rewards)) == (500, logged)
    assert (episode.logs.split.invariant_dim, episode.logs.split.residual_dim) == (7, 3)
    moving = episode.coefficients @ episode.logs.split.residual
    assert (np.abs(moving - moving[0]) < 1e-12).all()
    assert ((moving >= 0.5) & (moving <= 1.5)).all()


@pytest.mark.parametrize(
    "cell",
    [PRINTED.residual[6], PRINTED.dimension[3], PRINTED.logged[1000]],
    ids=lambda cell: cell.name,
)
def test_the_printed_world_is_that_of_the_text(cell):
    """Two blocks, time from -1 to 0, coefficients as they are drawn, and bounds that hold."""
    episode = drawn(cell)
    logs = episode.logs
    moving = cell.environment.world.moving_coordinates()
    assert moving == list(range(episode.dim))[-logs.split.residual_dim :]
    inner = logs.coefficients @ logs.basis
    stable = np.delete(inner, moving, axis=1)
    assert ((stable[0] >= 0.5) & (stable[0] <= 1.5)).all()
    np.testing.assert_allclose(stable, np.tile(stable[0], (len(stable), 1)))
    # The drift of the text at time t/T0, and none of it at time 0, just after the last round.
    time = np.arange(-len(inner), 0) / len(inner)
    for i, j in enumerate(moving, start=1):
        drift = -1.5 * time * np.sin(0.25 * i * time + i) ** 2
        start = inner[:, j] - drift
        np.testing.assert_allclose(start, start[0])
        assert 0.5 <= start[0] <= 1.5
    for name in (contenders.LINUCB, contenders.ISD_ORACLE):
        policy = build_policy(cell.policies[name], episode.past)
        assert policy.feature_bound == np.linalg.norm(episode.offered, axis=2).max()
        assert policy.norm_bound >= np.linalg.norm(episode.coefficients, axis=1).max()


def test_drifting_coefficients_are_drawn_anew_in_every_epoch():
    episode = drawn(epochs.EPOCHS_CELL)
    path = episode.coefficients @ episode.logs.split.residual
    starts = np.flatnonzero(np.abs(np.diff(path, axis=0)).max(axis=1) > 1e-9) + 1
    assert starts.tolist() == list(range(100, 2000, 100))
    assert epochs.RECOMPUTED_CELL.seed(1) == epochs.EPOCHS_CELL.seed(1)
    policy = build_policy(
        epochs.RECOMPUTED_CELL.policies[epochs.ISD_RECOMPUTED], episode.past
    )
    assert policy.memory == Restart(100)


def test_the_seventh_experiment_rotates_two_coordinates_of_length_one():
    episode = drawn(changing.ROTATION)
    path = episode.coefficients @ episode.logs.split.residual
    np.testing.assert_allclose(np.linalg.norm(path, axis=1), 1.0)
    np.testing.assert_allclose(path[0], 1 / np.sqrt(2))
    assert np.abs(path - path[0]).max() > 0.5


@pytest.mark.parametrize("breach", ["jump", "creep"])
@pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
def test_the_violated_part_has_moved_by_the_distance_on_the_axis(breach, size):
    episode = drawn(changing.VIOLATED[breach][size])
    stable = episode.logs.split.invariant
    moved = np.linalg.norm(
        (episode.coefficients - episode.logs.component) @ stable, axis=1
    )
    assert moved[-1] == pytest.approx(size)
    assert moved[0] == pytest.approx(size if breach == "jump" else 0.0, abs=1e-12)


def test_the_lower_bound_instance_has_coefficients_of_one_over_root_t():
    for p_res, cell in guarantees.HYPERCUBE_CELLS.items():
        episode = drawn(cell)
        residual = episode.coefficients @ episode.logs.split.residual
        np.testing.assert_allclose(np.abs(residual), 1 / np.sqrt(500))
        assert residual.shape[1] == p_res
        assert set(np.unique(episode.offered)) <= {-1.0, 1.0}


def test_contenders_are_what_their_names_say():
    episode = PaperEpisodes(logged=1000).draw(50, np.random.default_rng(1))
    made = {
        name: build_policy(spec, episode.past)
        for name, spec in contenders.NAMED.items()
    }
    for name in (
        contenders.LINUCB,
        contenders.ISD_ORACLE,
        contenders.ISD_ESTIMATED,
        contenders.GREEDY,
    ):
        assert (made[name].ridge, made[name].delta, made[name].memory) == (
            0.1,
            1 / 50,
            FOREVER,
        )
    assert made[contenders.SW_LINUCB].memory == SlidingWindow(50)
    assert made[contenders.D_LINUCB].memory.discount == 0.999
    assert made[contenders.ISD_KNOWN].component_precision is None
    np.testing.assert_array_equal(
        made[contenders.ISD_KNOWN].component, episode.logs.component
    )
    assert made[contenders.ISD_ORACLE].split.distance(episode.logs.split) < 1e-12
    assert 0.0 < made[contenders.ISD_ESTIMATED].split.distance(episode.logs.split) < 0.1
    assert (
        made[contenders.ISD_PUBLISHED].split.distance(
            made[contenders.ISD_ESTIMATED].split
        )
        > 1e-6
    )
    lifting = PolicySpec("isd-linucb", {"split": "oracle", "window": 25})
    lifted = build_policy(lifting, episode.past)
    assert lifted.memory == SlidingWindow(25)


def test_an_observed_split_is_compared_with_the_true_one():
    episode = PaperEpisodes(logged=1000).draw(20, np.random.default_rng(2))
    known = build_policy(contenders.NAMED[contenders.ISD_KNOWN], episode.past)
    assert cells.estimated_split(known, episode) == {
        "right dimensions": 1.0,
        "invariant dimensions": 7.0,
        "projection error": pytest.approx(0.0, abs=1e-7),
        "component error": 0.0,
    }
    assert (
        cells.estimated_split(
            contenders.NAMED[contenders.LINUCB].build(episode.past), episode
        )
        == {}
    )


def test_a_watched_policy_decides_the_same_and_widths_that_are_too_narrow_are_seen():
    episode = PaperEpisodes(logged=1000).draw(200, np.random.default_rng(3))

    def watched(noise_scale):
        from invariant_bandits.policies.linear import LinUCB

        policy = LinUCB(
            10, ridge=0.1, delta=1 / 200, noise_scale=noise_scale, norm_bound=0.0
        )
        twin = LinUCB(
            10, ridge=0.1, delta=1 / 200, noise_scale=noise_scale, norm_bound=0.0
        )
        coverage = cells.OBSERVERS["coverage"]
        probe = coverage.watch(policy, episode)
        np.testing.assert_array_equal(play(probe, episode), play(twin, episode))
        return coverage(probe, episode)["rounds covered"]

    assert watched(2.0) > 0.95
    assert watched(0.05) < 0.5


def test_a_level_is_compared_in_standard_errors_of_both_sides():
    values = np.arange(100.0)
    found = {"cell": SimulationResult({"policy": values[:, None]}, np.array([1]))}
    mean, error, distance = PublishedResult("cell", "policy", 40.0).compare(found)
    spread = values.std(ddof=1)
    assert (mean, error) == (49.5, pytest.approx(spread / 10))
    assert distance == pytest.approx(9.5 / (spread * np.sqrt(1 / 100 + 1 / 20)))


PACKAGE = Path(invariant_bandits.__file__).parent


CHANGED = [
    "checks.py",
    "moments/windowed.py",
    "moments/power_sums.py",
    "decomposition/split.py",
    "decomposition/drift_prior.py",
    "decomposition/arm_effects.py",
    "decomposition/log_end.py",
    "policies/kernels.py",
    "policies/auto.py",
    "policies/past.py",
    "simulation/paper.py",
    "simulation/loop.py",
    "simulation/cells.py",
]
FINGERPRINTS = """
import sys
from pathlib import Path
from invariant_bandits.simulation.cells import Cell, fingerprint
from invariant_bandits_reproduction.contenders import NAMED
from invariant_bandits.simulation.episodes import PaperEpisodes
cell = Cell("c", PaperEpisodes(), 10, {"AutoISD": NAMED["AutoISD"]})
print(fingerprint(cell.modules()))
for name in sys.argv[1:]:
    with Path("invariant_bandits", name).open("a") as file:
        file.write("# another comment\\n")
    fingerprint.cache_clear()
    print(fingerprint(cell.modules()))
"""


@pytest.mark.system
def test_changed_code_makes_a_stored_cell_another_one(tmp_path):
    """The package is copied; after each comment that is added to a file the fingerprint is a new one."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "invariant_bandits", ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS, *CHANGED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
    )
    assert len(set(done.stdout.split())) == 1 + len(CHANGED)


def test_the_fingerprint_is_part_of_the_identity_and_forgets_what_does_not_play(
    monkeypatch,
):
    cell = Cell("c", PaperEpisodes(), 10, {"LinUCB": contenders.NAMED["LinUCB"]})
    before = cell.identity(2, 1)
    used = {path.relative_to(PACKAGE).parts[0] for path in cells.sources()}
    assert used.isdisjoint({"cli", "reports", "evaluation", "testing.py", "model.py"})
    monkeypatch.setattr(
        "invariant_bandits.simulation.cells.fingerprint", lambda modules: "changed"
    )
    assert cell.identity(2, 1) != before


@pytest.mark.parametrize("name", [entry.name for entry in POLICIES])
def test_every_registered_policy_can_be_made_of_an_episodes_past_and_played(name):
    episode = PaperEpisodes(logged=1000).draw(15, np.random.default_rng(4))
    regret = play(PolicySpec(name).build(episode.past), episode)
    assert (np.diff(regret) >= 0.0).all()
    assert np.isfinite(regret).all()


@pytest.mark.parametrize("cell", cells_of(chosen([])), ids=lambda cell: cell.name)
def test_the_stored_settings_of_every_cell_rebuild_it(cell):
    stored = json.loads(json.dumps(cell.settings()))
    again = Cell.from_settings(cell.name, stored)
    assert again == cell
    assert again.seed(5) == cell.seed(5)
    world = grid_of(
        {
            "environment": {"kind": stored["environment"]["kind"]},
            "policies": {"linucb": {}},
        }
    )
    assert type(world.cells[0].environment) is type(cell.environment)


def test_a_cell_of_a_grid_is_rebuilt_from_a_result_that_was_read_back(tmp_path):
    config = {
        "replications": 2,
        "horizon": 8,
        "seed": 3,
        "policies": {"LinUCB": {}, "sw-linucb": {"window": 3}},
    }
    config["environment"] = {
        "logged": 60,
        "online": "abrupt",
        "world": {"blocks": [2, 1], "varying": 1},
    }
    (cell,) = grid_of(config).cells
    cells.run([cell], tmp_path, replications=2, seed=3)
    noted = SimulationResult.load(tmp_path / f"{cell.name}.parquet").settings
    assert Cell.from_settings(cell.name, noted["cell"]) == cell
    assert noted["policies"]["sw-linucb"]["resolved"]["memory.window"] == 3


def test_seeds_do_not_depend_on_the_names_that_are_stored():
    """The seeds of the published results, from before names and seeds were told apart."""
    assert CODE.dimension[3].seed(20261116) == PUBLISHED_SEEDS["dimension-3"]
    assert (
        guarantees.HYPERCUBE_CELLS[1].seed(20261116) == PUBLISHED_SEEDS["lower-bound-1"]
    )


@pytest.mark.parametrize("cell", [CODE.dimension[3], CODE.logged[1000]])
def test_the_window_of_figure_6_is_the_horizon_on_purpose_and_in_silence(cell):
    spec = cell.policies["SW-linUCB, window T"]
    assert dict(spec.options) == {"window": "horizon"}
    with warnings.catch_warnings(action="error"):
        policy = spec.build(drawn(cell).past)
    assert policy.memory == SlidingWindow(cell.horizon)
