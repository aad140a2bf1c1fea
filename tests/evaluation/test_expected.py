"""The expected value of a model is that of its own policy, with its own options and windows, and costs one
play.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.evaluation.comparison import expected_value
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.reports import model_page
from reading import read_feedback

ROUNDS, ACTIONS = 2400, 3


def rows_log(seed=0):
    """One row per offered action over 24 weeks, uniform logging, one of three coefficients drifting."""
    rng = np.random.default_rng(seed)
    offered = rng.normal(size=(ROUNDS, ACTIONS, 3)) * np.repeat(
        rng.uniform(0.5, 2.0, (8, 1, 3)), ROUNDS // 8, axis=0
    )
    drift = np.repeat(rng.normal(size=8), ROUNDS // 8)
    actions = rng.integers(ACTIONS, size=ROUNDS)
    means = 5.0 + offered @ [1.0, -1.0, 0.0] + drift[:, None] * offered[:, :, 2]
    times = np.datetime64("2024-01-01", "s") + np.arange(ROUNDS) * (
        24 * 7 * 86400 // ROUNDS
    )
    rewards = means[np.arange(ROUNDS), actions] + rng.normal(size=ROUNDS)
    columns = {
        "round": np.repeat(np.arange(ROUNDS), ACTIONS),
        "time": np.repeat(times, ACTIONS),
        "chosen": (np.arange(ACTIONS) == actions[:, None]).reshape(-1),
        "propensity": np.full(ROUNDS * ACTIONS, 1 / ACTIONS),
        "reward": np.repeat(rewards, ACTIONS),
    }
    return pa.table(columns | {f"x{j}": offered[:, :, j].reshape(-1) for j in range(3)})


LOG = rows_log()


def value_of(policy, **options):
    fitting = {
        name: options[name] for name in ("exploration", "delta") if name in options
    }
    model = ib.fit_logs(LOG, policy=policy, **options)
    return expected_value(model, LOG, **fitting)


@pytest.mark.parametrize("policy", ["auto-isd", "isd-linucb", "isd-lints", "lints"])
def test_the_line_is_the_fitted_policys_and_frozen_stands_beside_it(policy):
    value = value_of(policy)
    assert value["known"]
    assert [line["policy"] for line in value["lines"]] == [policy, "frozen"]


def test_a_policy_without_a_line_of_its_own_in_any_table_has_a_value_too():
    assert [line["policy"] for line in value_of("epsilon-greedy")["lines"]] == [
        "epsilon-greedy",
        "frozen",
    ]
    assert [line["policy"] for line in value_of("frozen")["lines"]] == ["frozen"]


def test_options_of_the_fit_reach_the_value():
    """Cold LinUCB that explores 50 times too much earns less than one that does not; so do wild
    failure probabilities.
    """
    calm, wild = (
        value_of("linucb-cold", exploration=e)["lines"][0]["gain"] for e in (0.1, 50.0)
    )
    assert calm > wild + 0.2
    sure, unsure = (
        value_of("linucb-cold", exploration=3.0, delta=c)["lines"][0]["gain"]
        for c in (0.5, 1e-12)
    )
    assert sure != unsure


def test_the_value_is_that_of_a_comparison_by_hand():
    value = value_of("auto-isd", delta=0.05, windows=5)
    feedback = read_feedback(LOG, windows=5).feedback
    contender = PolicySpec("auto-isd", {"delta": 0.05})
    by_hand = (
        ib.compare(feedback, {"AutoISD": contender}, windows=5)
        .line("AutoISD")
        .against_log
    )
    assert value["lines"][0]["gain"] == by_hand.value
    other = value_of("auto-isd", delta=0.05, windows=12)
    assert other["lines"][0]["gain"] != by_hand.value


def test_calendar_windows_are_those_of_the_model(monkeypatch):
    seen = []
    plain = ib.Past.from_feedback.__func__

    def recorded(cls, feedback, horizon=None, windows=8, edges=None):
        seen.append(edges)
        return plain(cls, feedback, horizon, windows, edges)

    monkeypatch.setattr(ib.Past, "from_feedback", classmethod(recorded))
    model = ib.fit_logs(LOG, every="3w")
    assert expected_value(model, LOG)["known"]
    (edges,) = seen
    inner = set(edges[1:-1].tolist())
    assert (
        len(inner) == 3
    )  # the first twelve weeks hold three edges of three weeks inside
    assert inner <= set(model.moments.edges.tolist())


def test_models_without_an_intercept_are_told_features_and_rewards_from_their_means():
    shifted = LOG.set_column(
        LOG.schema.get_field_index("x0"),
        "x0",
        pa.array(LOG.column("x0").to_numpy() + 100.0),
    )
    gains = []
    for log in (LOG, shifted):
        model = ib.fit_logs(log, policy="linucb")
        gains.append(expected_value(model, log)["lines"][0]["gain"])
    assert gains[1] == pytest.approx(gains[0], rel=0.05)


def test_a_log_is_decomposed_once_for_the_model_and_once_for_its_value(monkeypatch):
    fits, plain = Counter(), InvariantSubspaceDecomposition.fit

    def counted(self, moments, *rest, **more):
        fits[moments.rounds] += 1
        return plain(self, moments, *rest, **more)

    monkeypatch.setattr(InvariantSubspaceDecomposition, "fit", counted)
    model = ib.fit_logs(LOG)
    expected_value(model, LOG)
    assert fits == {ROUNDS: 1, ROUNDS // 2: 1}
    assert replace(model, value=None).decomposition is model.decomposition


def test_comparing_builds_every_policy_once_and_decomposes_once(monkeypatch):
    built, fits = Counter(), Counter()
    plain = InvariantSubspaceDecomposition.fit

    def counted(self, moments, *rest, **more):
        fits["all"] += 1
        return plain(self, moments, *rest, **more)

    monkeypatch.setattr(InvariantSubspaceDecomposition, "fit", counted)
    for kind in (ib.AutoISD, ib.ISDLinUCB):
        start = kind.from_past.__func__

        def starting(cls, past, start=start, **options):
            built[cls.__name__] += 1
            return start(cls, past, **options)

        monkeypatch.setattr(kind, "from_past", classmethod(starting))
    ib.compare(
        read_feedback(LOG).feedback, ["auto-isd", "isd-linucb"], settings="published"
    )
    assert built == {"AutoISD": 1, "ISDLinUCB": 1}
    assert fits == {"all": 1}


def test_what_the_log_cannot_tell_is_said():
    chosen = LOG.filter(LOG.column("chosen")).drop(["round", "chosen", "propensity"])
    value = expected_value(ib.fit_logs(chosen), chosen)
    assert (value["known"], "chosen actions only" in value["reason"]) == (False, True)
    bare = LOG.drop(["propensity"])
    value = expected_value(ib.fit_logs(bare), bare)
    assert (value["known"], "without propensities" in value["reason"]) == (False, True)


def test_another_number_of_windows_is_why_evaluate_may_say_another_gain():
    """With the windows that the value names, the comparison gives its number; the report names them."""
    model = ib.fit_logs(LOG, windows=6)
    value = expected_value(model, LOG)
    assert value["windows"] == 6
    gains = {}
    for windows in (6, 12):
        read = read_feedback(LOG, model.schema, windows=windows)
        line = ib.compare(
            read.feedback, ["auto-isd", "frozen"], windows=read.windows
        ).line("auto-isd")
        gains[windows] = line.against_log.value
    assert value["lines"][0]["gain"] == pytest.approx(gains[6], rel=1e-12)
    assert value["lines"][0]["gain"] != pytest.approx(gains[12], rel=1e-6)
    said = model_page.text(replace(model, value=value))
    assert "cut into 6 windows" in " ".join(said.split())
