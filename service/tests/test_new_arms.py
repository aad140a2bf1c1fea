"""Arms that come after a model was fitted to its own history start from the prior over arms, at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from invariant_bandits.policies.auto import AutoISD
from invariant_bandits_service import commands, learners
from invariant_bandits_service.background import _fitted_to_arms, made_from
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.events import Decided
from invariant_bandits_service.history import SettledDecision
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.store.open_store import open_store
from served_models import running, serve

LEVELS = {"a": 0.2, "b": 0.4, "c": 0.6, "d": 0.8}


def settled(rounds: int, rng: np.random.Generator) -> list[SettledDecision]:
    """Uniform play among four arms with levels of their own, 0.5 on average, and a slope of 0.3 in x."""
    decisions = []
    for _ in range(rounds):
        place, x = int(rng.integers(4)), float(rng.uniform(-1.0, 1.0))
        event = Decided(
            0.0, "id", "m", "1", 0, {"x": x}, list(LEVELS), None, place, [0.25] * 4
        )
        reward = LEVELS["abcd"[place]] + 0.3 * x + 0.1 * float(rng.normal())
        decisions.append(SettledDecision(event, reward, len(decisions)))
    return decisions


@pytest.fixture(scope="module")
def made() -> OpenLearner:
    decisions = settled(2_000, np.random.default_rng(0))
    learner, words = made_from(OpenLearner(seed=3), lambda: decisions, len(decisions))
    assert "4 arms, 1 of 1 features" in words
    assert isinstance(learner, OpenLearner)
    return learner


def copy_of(learner: OpenLearner) -> OpenLearner:
    return OpenLearner.from_bytes(learner.to_bytes(), "a copy")


def test_what_is_expected_of_a_new_arm_is_what_the_others_let_expect(
    made: OpenLearner,
) -> None:
    learner = copy_of(made)
    before = learner.to_bytes()
    round = learner.round_of({"x": 0.5}, [*LEVELS, "new"], None)
    means = learner.decide(round, 0.0).means
    np.testing.assert_allclose(
        means[:4], [level + 0.15 for level in LEVELS.values()], atol=0.05
    )
    assert means[4] == pytest.approx(0.65, abs=0.1)
    assert learner.to_bytes() == before  # deciding keeps nothing


def test_a_new_arm_is_learned_without_another_fit(
    tmp_path: Path, made: OpenLearner
) -> None:
    """It earns 1.5, more than any other: after a few rounds it is what is played, and a replay agrees."""
    with running(tmp_path / "d.db") as engine:
        serve(engine, copy_of(made))
        plays = []
        for n in range(300):
            event = engine.call(
                DecisionCommand(context={"x": 0.0}, labels=[*LEVELS, "new"])
            )
            plays.append(event.action)
            reward = 1.5 if event.action == "new" else LEVELS[event.action]
            engine.call(RewardCommand(event.id, reward + 0.1 * float(np.sin(n))))
        assert plays[-50:].count("new") > 40
        learner = engine.state.models["default"].learner
        assert isinstance(learner, OpenLearner)
        assert isinstance(learner.policy, AutoISD)
        assert learner.policy.dim == len(learner.positions) == 5 * 2
        assert (
            engine.call(
                commands.inspect(lambda state: state.models["default"].counts.refused)
            )
            == 0
        )
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == live
    store.close()


def test_new_arms_take_places_only_up_to_a_limit(
    made: OpenLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "MOST_ARM_POSITIONS", 24)
    learner = copy_of(made)
    for n in range(20):
        learner.seen({"x": 0.0}, [f"arm {n}"], None)
    assert learner.policy.dim == len(learner.positions) == 24
    assert (
        len(
            learner.decide(
                learner.round_of({"x": 0.0}, ["arm 19", "a"], None), 0.0
            ).means
        )
        == 2
    )


def test_actions_with_features_have_no_prior_over_arms() -> None:
    event = Decided(0.0, "id", "m", "1", 0, None, ["a"], [{"price": 1.0}], 0, [1.0])
    assert (
        _fitted_to_arms(
            OpenLearner(), lambda: [SettledDecision(event, 1.0, 0)] * 500, 500
        )
        is None
    )


def test_features_beyond_the_limit_share_places_and_are_still_learned():
    learner = OpenLearner(seed=1)
    labels = [f"arm {number}" for number in range(400)]
    for _ in range(3):
        for first in range(0, 400, 100):
            offered = labels[first : first + 100]
            for place, label in enumerate(offered):
                learner.seen(None, offered, None)
                learner.learn(
                    None, offered, None, place, 1.0 if label == "arm 399" else 0.0
                )
    assert len(learner.positions) == learners.LIMIT
    assert learner.policy.dim == learners.LIMIT + learners.SHARED
    means = learner.decide(
        learner.round_of(None, labels[300:], None), 0.0
    ).means.tolist()
    assert (
        means[99] == max(means) > 10.0 * np.median(means)
    )  # it shares a place with a few others only
    copy = learners.learner_from_bytes("open", learner.to_bytes(), "copy")
    assert (
        copy.decide(copy.round_of(None, labels[300:], None), 0.0).means.tolist()
        == means
    )
