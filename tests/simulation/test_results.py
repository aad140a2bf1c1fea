"""Results are thinned and stored without losing a bit, and refused if they are not what
was stored.
"""

import json
import sys

import numpy as np
import pyarrow.parquet as parquet
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

EPISODES = PaperEpisodes(PaperWorld(blocks=(2, 1), varying=1, drift=0.3), logged=300)
MAKERS = {
    "LinUCB": lambda episode: ib.LinUCB(episode.dim),
    "AutoISD": lambda episode: ib.AutoISD.from_history(episode.moments),
}


def simulated(**settings):
    return ib.simulate(
        MAKERS, EPISODES, **{"horizon": 12, "replications": 3, "seed": 5} | settings
    )


def assert_same(one, other):
    assert list(one.regret) == list(other.regret)
    for name, path in one.regret.items():
        np.testing.assert_array_equal(path, other.regret[name])
        assert path.dtype == other.regret[name].dtype == np.float64
    np.testing.assert_array_equal(one.rounds, other.rounds)
    assert one.settings == other.settings


def test_what_is_loaded_is_what_was_saved_bit_for_bit(tmp_path):
    result = simulated()
    result.save(tmp_path / "result.parquet")
    assert_same(ib.SimulationResult.load(tmp_path / "result.parquet"), result)
    assert [file.name for file in tmp_path.iterdir()] == ["result.parquet"]


def test_any_reader_of_parquet_finds_a_tidy_table(tmp_path):
    result = simulated()
    result.save(tmp_path / "result.parquet")
    frame = parquet.read_table(tmp_path / "result.parquet").to_pandas()
    assert list(frame) == ["policy", "replication", "round", "regret"]
    assert len(frame) == 2 * 3 * 12
    for line in frame.itertuples():
        assert (
            line.regret == result.regret[line.policy][line.replication, line.round - 1]
        )
    expected = result.to_frame(by_round=True)
    for name in expected:
        assert frame[name].tolist() == expected[name].tolist()


def test_the_settings_in_the_file_say_how_to_run_it_again(tmp_path):
    simulated().save(tmp_path / "result.parquet")
    header = json.loads(
        parquet.read_schema(tmp_path / "result.parquet").metadata[b"invariant-bandits"]
    )
    settings = json.loads(header["about"])["settings"]
    assert settings == ib.SimulationResult.load(tmp_path / "result.parquet").settings
    assert {name: settings[name] for name in ("seed", "horizon", "replications")} == {
        "seed": 5,
        "horizon": 12,
        "replications": 3,
    }
    assert settings["versions"] == {
        "invariant-bandits": ib.__version__,
        "numpy": np.__version__,
    }
    assert settings["environment"]["class"] == "PaperEpisodes"
    fields = settings["environment"]["fields"]
    world = PaperWorld(**fields.pop("world") | {"blocks": (2, 1)})
    assert PaperEpisodes(world, **fields) == EPISODES


class Plain:
    def draw(self, horizon, rng):
        return EPISODES.draw(horizon, rng)


def test_an_environment_without_fields_is_described_by_its_name():
    result = ib.simulate(
        {"LinUCB": MAKERS["LinUCB"]}, Plain(), horizon=2, replications=1, seed=0
    )
    assert result.settings["environment"] == {"class": "Plain", "fields": {}}


def test_a_thinned_result_keeps_the_wanted_rounds_and_the_last(tmp_path):
    result = simulated()
    result.at([3, 6]).save(tmp_path / "thin.parquet")
    thin = ib.SimulationResult.load(tmp_path / "thin.parquet")
    assert_same(thin, result.at([6, 3]))
    np.testing.assert_array_equal(thin.rounds, [3, 6, 12])
    for name in MAKERS:
        np.testing.assert_array_equal(
            thin.regret[name], result.regret[name][:, [2, 5, 11]]
        )
        np.testing.assert_array_equal(thin.final(name), result.final(name))
    with pytest.raises(
        ib.InputError, match="rounds must be among those that were recorded, got 4"
    ):
        thin.at([4])


def test_no_changed_byte_passes_for_the_original(tmp_path):
    result, path = simulated(), tmp_path / "result.parquet"
    result.save(path)
    content = path.read_bytes()
    refusals = []
    rng = np.random.default_rng(0)
    for position in rng.choice(len(content), size=300, replace=False):
        changed = bytearray(content)
        changed[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(changed))
        try:
            loaded = ib.SimulationResult.load(path)
        except ib.FileError as error:
            refusals.append(str(error))
        else:
            assert_same(loaded, result)
    assert len(refusals) > 150
    assert all(str(path) in refusal for refusal in refusals)


def test_foreign_cut_and_newer_files_are_refused_by_name(tmp_path):
    path = tmp_path / "result.parquet"
    simulated().save(path)
    content, table = path.read_bytes(), parquet.read_table(path)

    def refusal():
        with pytest.raises(ib.FileError) as caught:
            ib.SimulationResult.load(path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    path.write_bytes(content[: len(content) // 2])
    assert "damaged or foreign" in refusal()
    path.write_bytes(b"")
    assert "damaged or foreign" in refusal()
    parquet.write_table(table.replace_schema_metadata(None), path)
    assert "is not a simulation written by invariant-bandits" in refusal()
    header = json.loads(table.schema.metadata[b"invariant-bandits"])
    newer = json.dumps(header | {"format": 2})
    parquet.write_table(
        table.replace_schema_metadata({"invariant-bandits": newer}), path
    )
    assert "in format 1" in refusal()
    parquet.write_table(table.slice(0, 60), path)
    assert "damaged" in refusal()
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    parquet.write_table(shuffled, path)
    assert "damaged" in refusal()


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        ib.SimulationResult.load(tmp_path / "nothing")


def test_without_pyarrow_saving_says_what_is_missing(monkeypatch, tmp_path):
    result = simulated()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="save needs pyarrow, which is not installed"):
        result.save(tmp_path / "result.parquet")
    assert not list(tmp_path.iterdir())


def test_a_result_prints_a_table_and_draws_its_paths():
    plt = pytest.importorskip("matplotlib.pyplot")
    paths = {
        "good $x": np.array([[1.0, 2.0], [1.0, 4.0]]),
        "bad": np.array([[5.0, 9.0], [5.0, 11.0]]),
    }
    result = ib.SimulationResult(paths, np.array([1, 20]))
    lines = result.summary().splitlines()
    assert lines[0] == "Regret after 20 rounds, 2 repetitions"
    assert lines[2].split() == [
        "good",
        "$x",
        "3",
        "1",
        "3",
        "4",
    ]  # mean, standard error, median, worst
    assert lines[3].split() == ["bad", "10", "1", "10", "11"]
    assert str(result) == result.summary()
    assert repr(result) == "SimulationResult(good $x, bad; 2 repetitions of 20 rounds)"
    axis = result.plot(theme="dark")
    drawn = [line.get_ydata().tolist() for line in axis.get_lines()]
    assert drawn == [[1.0, 3.0], [5.0, 10.0]]
    axis.figure.canvas.draw()  # a dollar sign in a name is no formula
    plt.close(axis.figure)
    single = ib.SimulationResult({"one": np.array([[1.0, 2.0]])}, np.array([1, 2]))
    assert single.summary().splitlines()[2].split() == ["one", "2", "0", "2", "2"]
