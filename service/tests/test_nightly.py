"""Night after night, models of every kind learn from the service's own decisions, or somebody is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits_service import background, commands
from invariant_bandits_service.background import (
    LONGEST_FAILING,
    Learning,
    NoRefit,
    RefitResult,
    RefitSchedule,
    learn_from_history,
)
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import Decided
from invariant_bandits_service.learners import (
    FittedLearner,
    OpenLearner,
    learner_from_bytes,
)
from invariant_bandits_service.operations import Service
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.serve import Application
from invariant_bandits_service.store.open_store import open_store
from local_client import TestClient
from served_models import play_together, running, serve

WEEK = 7 * 86_400.0


class Shop:
    """Visitors whose age and device decide which of three banners pays, as clicks or as euros."""

    def __init__(self, *, clicks: bool) -> None:
        self.clicks = clicks
        self.rng = np.random.default_rng(11)

    def context(self) -> dict[str, Any]:
        device = ("phone", "desktop")[int(self.rng.integers(2))]
        return {"age": float(self.rng.normal()), "device": device}

    def reward(self, label: str, context: dict[str, Any]) -> float:
        mean = 0.3 + 0.2 * (label == "banner_1") * (context["age"] > 0.0)
        if self.clicks:
            return float(self.rng.random() < mean)
        return float(10.0 * mean + self.rng.normal())

    def log(self, rounds: int, *, times: bool) -> pa.Table:
        contexts = [self.context() for _ in range(rounds)]
        labels = [f"banner_{arm}" for arm in self.rng.integers(3, size=rounds)]
        rewards = []
        for label, context in zip(labels, contexts, strict=True):
            rewards.append(self.reward(label, context))
        columns: dict[str, Any] = {
            "reward": rewards,
            "arm": labels,
            "age": [context["age"] for context in contexts],
            "device": [context["device"] for context in contexts],
        }
        if times:
            seconds = 1.7e9 + np.linspace(0.0, 8 * WEEK, rounds, endpoint=False)
            columns["time"] = pa.array(seconds.astype("int64"), pa.timestamp("s"))
        return pa.table(columns)

    def day(self, engine: Engine, rounds: int) -> None:
        """Have a service decide about so many visitors, and report what they do."""
        asked = [DecisionCommand(context=self.context()) for _ in range(rounds)]

        def reward(decided: Decided) -> float:
            assert decided.context is not None
            return self.reward(str(decided.action), decided.context)

        play_together(engine, asked, reward)


def night(engine: Engine, path: Path) -> RefitResult:
    """Learn a model from its history, and have the new version decide."""
    store = open_store(path, writing=False)
    refit = learn_from_history(store, "default")
    store.close()
    learner = learner_from_bytes(refit.kind, refit.content, "the new version")
    version = background.add_caught_up(
        engine,
        "default",
        learner,
        refit.upto,
        base=refit.base,
        note=refit.note,
        by="plan",
        why="learned from its own history",
        through=refit.through,
        evaluation=refit.evaluation,
    )
    assert engine.view().model("default").version == version
    return refit


@pytest.mark.slow
@pytest.mark.parametrize("clicks", [True, False], ids=["clicks", "euros"])
@pytest.mark.parametrize("windows", ["by week", "by default", "no times", "no log"])
def test_two_nights_of_every_kind_with_arms_that_come_and_go(
    tmp_path: Path, clicks: bool, windows: str
) -> None:
    shop, path = Shop(clicks=clicks), tmp_path / "d.db"
    if windows == "no log":
        labels = [f"banner_{arm}" for arm in range(3)]
        learner: Any = OpenLearner(dict.fromkeys(labels, True), seed=7)
    else:
        log = shop.log(3_000, times=windows != "no times")
        every = {"every": "7d"} if windows == "by week" else {}
        learner = FittedLearner(ib.fit_logs(log, **every), 7)
        assert (learner.model.moments.edges is not None) == (windows != "no times")
    with running(path) as engine:
        serve(engine, learner)
        shop.day(engine, 1_400)
        engine.call(commands.change_arms("default", "banner_9", add=True), alone=True)
        shop.day(engine, 200)
        first = night(engine, path)
        engine.call(commands.change_arms("default", "banner_2", add=False), alone=True)
        shop.day(engine, 1_400)
        second = night(engine, path)
        assert second.base != first.base
        assert engine.state.model("default").learner.arms == {
            "banner_0": True,
            "banner_1": True,
            "banner_2": False,
            "banner_9": True,
        }
        shop.day(engine, 50)
        live = engine.state.hashes()
    store = open_store(path)
    assert replay_all(store).hashes() == live
    store.close()


class ScriptedLearning(Learning):
    """Learning whose process answers what it is told to."""

    answer: NoRefit

    def _fit(self, model: str, log: Path | None = None) -> RefitResult | NoRefit:
        return self.answer


def test_a_night_that_fails_is_on_the_page_in_the_metrics_and_unready_after_three_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        plan = RefitSchedule()
        learning = ScriptedLearning(engine, str(tmp_path / "d.db"), plan)
        client = TestClient(Application(Service(engine, learning=learning)))

        def learn(answer: NoRefit) -> None:
            learning.answer = answer
            learning.begin("default")
            while learning.outcome("default")["status"] == "running":
                pass
            engine.dashboard = {}
            while "models" not in engine.dashboard:
                pass

        gauge = 'invariant_bandits_learning_failed{model="default"}'
        learn(NoRefit("history: 3 decisions are settled", failed=False))
        assert f"{gauge} 0.0" in client.get("/metrics").text
        learn(NoRefit("windows: they do not fit"))
        assert learning.outcome("default")["status"] == "failed"
        shown = client.get("/v1/overview").json()["learning_failure"]
        assert shown["why"] == "windows: they do not fit"
        assert f"{gauge} 1.0" in client.get("/metrics").text
        assert client.get("/readyz").status_code == 200
        # a later failure does not begin to count anew
        learning.failures()["default"]["since"] -= LONGEST_FAILING
        learn(NoRefit("windows: they still do not fit"))
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "default has not been able to learn" in answer.json()["why"]
        assert client.post("/v1/decisions", json={}).status_code == 200
        learn(NoRefit("history: 3 decisions are settled", failed=False))
        assert f"{gauge} 0.0" in client.get("/metrics").text
        assert client.get("/v1/overview").json()["learning_failure"] is None
        assert client.get("/readyz").status_code == 200
        learning.stop()
