"""Logged propensities are the probabilities of what is done, and what chance costs is what it was planted
to cost.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2

import invariant_bandits as ib
from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.dashboard import exploration_of
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import Decided
from invariant_bandits_service.learners import FittedLearner, Learner, OpenLearner
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import State
from invariant_bandits_service.store.open_store import open_store
from served_models import all_of, labelled_model, play_together, running, serve

RARELY = 1e-6
"""How often a test of true propensities would fail if the seeds were drawn anew."""


def misfit(decided: list[Decided]) -> tuple[float, int]:
    """Pearson's statistic of decisions in one state about one context, and its degrees of freedom."""
    labels = decided[0].labels
    expected = np.sum([event.propensities for event in decided], axis=0)
    counts = np.bincount([event.index for event in decided], minlength=len(labels))
    possible = expected > 0.0
    assert counts[~possible].sum() == 0
    return float(np.sum((counts - expected)[possible] ** 2 / expected[possible])), int(
        possible.sum()
    ) - 1


def taught(engine: Engine, rounds: int = 40) -> None:
    rng = np.random.default_rng(2)
    asked = [
        DecisionCommand(context={"age": age})
        for age in rng.normal(size=rounds).tolist()
    ]
    play_together(
        engine,
        asked,
        lambda event: float(rng.random() < 0.3 + 0.2 * event.index),
        size=10,
    )


@pytest.fixture(scope="module")
def stored() -> dict[str, tuple[type[Learner], bytes]]:
    """Learners of all kinds, as they are stored."""
    model = labelled_model()
    by_itself = replace(
        model,
        policy=ib.Randomised(model.policy, kind="inverse-gap", sharpness=20.0, seed=13),
    )
    made: dict[str, Learner] = {
        "empty": OpenLearner(dict.fromkeys("abc", True), seed=11),
        "fitted": FittedLearner(model, 12),
        "fitted, randomises by itself": FittedLearner(by_itself),
    }
    return {name: (type(value), value.to_bytes()) for name, value in made.items()}


@pytest.mark.parametrize("which", ["empty", "fitted", "fitted, randomises by itself"])
@pytest.mark.parametrize("mode", ["online", "apprentice", "logging"])
def test_actions_are_played_as_often_as_their_logged_propensities_say(
    tmp_path: Path,
    stored: dict[str, tuple[type[Learner], bytes]],
    which: str,
    mode: Any,
) -> None:
    kind, content = stored[which]
    with running(tmp_path / "d.db") as engine:
        serve(engine, kind.from_bytes(content, which))
        taught(engine)
        engine.call(
            commands.configure("default", Configuration(floor=0.3, mode=mode)),
            alone=True,
        )
        total, freedom = 0.0, 0
        for age in (-1.0, 0.4):
            decided = engine.call(all_of([DecisionCommand(context={"age": age})] * 800))
            assert len({tuple(event.propensities) for event in decided}) == 1
            one_total, one_freedom = misfit(decided)
            total, freedom = total + one_total, freedom + one_freedom
        if mode != "online":  # the first arm, for certain
            assert freedom == 0
            assert total == 0.0
            assert {event.index for event in decided} == {0}
            return
        assert freedom >= 2
        assert chi2.sf(total, freedom) > RARELY
        swapped = [
            msgspec.structs.replace(
                event, propensities=event.propensities[1:] + event.propensities[:1]
            )
            for event in decided
        ]
        assert chi2.sf(*misfit(swapped)) < RARELY, (
            "the test could not tell wrong propensities from right ones"
        )


def test_the_default_floor_is_kept_and_told(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        taught(engine)
        decided = engine.call(all_of([DecisionCommand(context={"age": 0.0})] * 200))
        assert min(min(event.propensities) for event in decided) == pytest.approx(
            0.05 / 3
        )
        told = engine.call(
            commands.inspect(lambda state: exploration_of(state.model("default")))
        )
        assert told["floor"] == 0.05
        assert 0.0 < told["share"] < 1.0


def test_the_cost_of_chance_is_the_planted_gap(tmp_path: Path) -> None:
    """Arm b earns 1, a and c 0: a floor of 0.3 gives up 0.3·2/3 per decision once that is known."""
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        engine.call(commands.configure("default", Configuration(floor=0.3)), alone=True)

        def played(rounds: int) -> None:
            play_together(
                engine,
                [DecisionCommand(context={})] * rounds,
                lambda event: float(event.index == 1),
            )

        def counts(state: State) -> tuple[int, float]:
            one = state.model("default").counts
            return one.chance_measured, one.chance_cost

        played(400)
        before = engine.call(commands.inspect(counts))
        played(400)
        after = engine.call(commands.inspect(counts))
        assert after[0] - before[0] == 400
        assert (after[1] - before[1]) / 400 == pytest.approx(0.2, abs=0.01)
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == live
    store.close()
