"""The loop closes: what a service logged is read by `fit_logs`, `compare` and `update_model`, as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import invariant_bandits as ib
from invariant_bandits.checks import InputError
from invariant_bandits.cli.app import app
from invariant_bandits_service import commands
from invariant_bandits_service import history as exporting
from invariant_bandits_service import state as keeping
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.events import Decided
from invariant_bandits_service.history import Exported, settled_decisions
from invariant_bandits_service.learners import FittedLearner, OpenLearner
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store
from served_models import Clock, all_of, labelled_model, play_together, running, serve

ROUNDS = 1_500
SLOPES = {"a": 1.0, "b": -1.0, "c": 0.0}


def noisy(rng: np.random.Generator, mean: float) -> float:
    return float(mean + 0.3 * rng.normal())


def labelled_world(path: Path, rounds: int = ROUNDS) -> list[Decided]:
    """Arms a, b, c with slopes 1, −1, 0 in `age`, chosen often by chance."""
    rng = np.random.default_rng(3)
    asked = [
        DecisionCommand(context={"age": age, "city": "Bern" if age > 0 else "Chur"})
        for age in rng.normal(size=rounds).tolist()
    ]
    with running(path) as engine:
        serve(engine)
        engine.call(commands.configure("default", Configuration(floor=0.5)), alone=True)
        return play_together(
            engine,
            asked,
            lambda event: noisy(
                rng, SLOPES[event.labels[event.index]] * (event.context or {})["age"]
            ),
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Decided]]:
    """A store of the labelled world, and its decisions."""
    path = tmp_path_factory.mktemp("served") / "d.db"
    return path, labelled_world(path)


@contextmanager
def reading(path: Path | str) -> Iterator[Any]:
    store = open_store(path, writing=False)
    try:
        yield store
    finally:
        store.close()


def export(path: Path | str, out: Path, model: str | None = None) -> Exported:
    with reading(path) as store:
        return exporting.export(store, out, model=model)


def test_labelled_arms_are_fitted_with_no_schema_by_hand(
    tmp_path: Path, served: tuple[Path, list[Decided]]
) -> None:
    path, decided = served
    told = CliRunner().invoke(
        app, ["store", "export", str(path), str(tmp_path / "log.parquet")]
    )
    assert told.exit_code == 0, told.output
    assert "1,500 decisions, 1,500 rows" in told.output
    table = parquet.read_table(tmp_path / "log.parquet")
    assert table.column("decision_id").to_pylist() == [event.id for event in decided]
    assert table.column("propensity").to_pylist() == [
        event.propensities[event.index] for event in decided
    ]
    model = ib.fit_logs(tmp_path / "log.parquet")
    assert (model.schema.arm, model.schema.arms_offered) == ("action", "arms_offered")
    assert set(model.schema.features) == {"age", "city"}
    assert model.moments.rounds == ROUNDS
    for age, best in (
        (1.5, "a"),
        (-1.5, "b"),
    ):  # as planted: 1.5 apart, with an error of about 0.05
        assert (
            model.decide({"age": age, "city": "Bern" if age > 0 else "Chur"}).action
            == best
        )


def test_evaluation_finds_what_the_best_arms_would_have_earned(
    tmp_path: Path, served: tuple[Path, list[Decided]]
) -> None:
    """E|age| = 0.798 with the better arm every time; an interval of 99.9 % misses 0.7 to 0.9 less than
    once in 10^3.
    """
    export(served[0], tmp_path / "log.parquet")
    read = ib.open_log(tmp_path / "log.parquet").feedback()
    compared = ib.compare(read.feedback, ["auto-isd"], jobs=1)
    line = compared.line("auto-isd")
    assert line is not None
    assert line.estimator == "DR"
    assert 0.7 < line.value.value < 0.9
    assert line.against_log.low > 0.2


def test_rows_of_features_come_back_as_rows(tmp_path: Path) -> None:
    """Actions with features of their own: what paid, a crossing with the context, is found again."""
    rng = np.random.default_rng(4)
    asked = []
    for _ in range(ROUNDS):
        rows = [
            {"price": x, "size": y} for x, y in rng.uniform(-1, 1, size=(4, 2)).tolist()
        ]
        asked.append(
            DecisionCommand("rows", {"hot": float(rng.integers(2))}, list("wxyz"), rows)
        )

    def earned(one: Decided) -> float:
        row, hot = (one.actions or [])[one.index], (one.context or {})["hot"]
        return noisy(rng, row["price"] - 2.0 * hot * row["size"])

    with running(tmp_path / "d.db") as engine:
        serve(engine)
        serve(engine, OpenLearner(seed=3), "rows")
        engine.call(commands.configure("rows", Configuration(floor=0.5)), alone=True)
        play_together(engine, asked, earned)
    with pytest.raises(InputError, match="default, rows"):
        export(tmp_path / "d.db", tmp_path / "log.parquet")
    done = export(tmp_path / "d.db", tmp_path / "log.parquet", model="rows")
    assert (done.decisions, done.rows) == (ROUNDS, 4 * ROUNDS)
    model = ib.fit_logs(tmp_path / "log.parquet")
    assert (model.schema.chosen, model.moments.rounds) == ("chosen", ROUNDS)
    for size, best in (
        (-1.0, 0),
        (1.0, 1),
    ):  # on hot days, the smaller; else the dearer
        offered = [
            {"f:price": 0.0, "f:size": s, "f:price|hot": 0.0, "f:size|hot": s}
            for s in (size, -size)
        ]
        assert model.select(offered) == best
    table = parquet.read_table(tmp_path / "log.parquet")
    chosen = table.filter(table.column("chosen"))
    names = ["f:price", "f:size", "f:price|hot", "f:size|hot"]
    columns = np.column_stack(
        [np.ones(ROUNDS), *(chosen.column(name).to_numpy() for name in names)]
    )
    found = np.linalg.lstsq(columns, chosen.column("reward").to_numpy(), rcond=None)[0]
    np.testing.assert_allclose(
        found[1:], [1.0, 0.0, 0.0, -2.0], atol=0.15
    )  # six standard errors


def test_a_fitted_model_is_updated_with_what_it_served(tmp_path: Path) -> None:
    model = labelled_model()
    before = model.moments.rounds
    rng = np.random.default_rng(1)
    with running(tmp_path / "d.db") as engine:
        serve(engine, FittedLearner(ib.Model.from_bytes(model.to_bytes(), "it")))
        asked = [
            DecisionCommand(context={"age": age})
            for age in rng.normal(size=500).tolist()
        ]
        play_together(engine, asked, lambda event: float(rng.random() < 0.5))
    export(tmp_path / "d.db", tmp_path / "log.parquet")
    update = model.update_from(tmp_path / "log.parquet")
    assert update.model.moments.rounds == before + 500


def test_only_what_is_settled_is_written(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards in any order, some never; also when they come long after what is kept at hand."""
    clock = Clock()
    with running(address, clock) as engine:
        serve(engine)
        engine.call(all_of(DecisionCommand(id=f"{number:02d}") for number in range(40)))
        for number in reversed(range(0, 40, 2)):
            engine.call(RewardCommand(f"{number:02d}", float(number)))
        clock.now += 3_600.0
        engine.call(DecisionCommand(id="later"))
        engine.call(RewardCommand("later", 0.5))
        engine.call(
            commands.configure(
                "default", Configuration(mode="logging", aggregation="sum")
            ),
            alone=True,
        )
        engine.call(DecisionCommand(id="logged"))
        engine.call(RewardCommand("logged", 7.0))
    with reading(address) as store:
        monkeypatch.setattr(keeping, "MOST_REMEMBERED", 5)
        settled = list(settled_decisions(store, "default", Configuration()))
        learned = list(settled_decisions(store, "default"))
    order = [
        *((f"{n:02d}", float(n)) for n in reversed(range(0, 40, 2))),
        ("later", 0.5),
        ("logged", 7.0),
    ]
    assert [(each.decided.id, each.reward) for each in settled] == order
    assert learned == settled[:-1]
    asked = ["store", "export", address, str(tmp_path / "log.parquet")]
    told = CliRunner().invoke(app, [*asked, "--since", "1970-01-12T14:00"])
    assert "2 decisions" in told.output
    assert CliRunner().invoke(app, asked).exit_code != 0  # it is there already
    assert (
        CliRunner().invoke(app, [*asked, "--force", "--since", "2030-01-01"]).exit_code
        != 0
    )
    assert len(parquet.read_table(tmp_path / "log.parquet")) == 2  # as it was
    wrong = CliRunner().invoke(app, [*asked[:-1], str(tmp_path / "log.csv")])
    assert wrong.exit_code != 0
