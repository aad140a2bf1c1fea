"""Models and ledgers that threads share, and what copies and processes take along."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import registry, testing
from invariant_bandits.registry import Registry
from invariant_bandits.storage import lock_of
from thread_laws import THREADS, at_once

MODEL_CODE = (
    "invariant_bandits.model.model",
    "invariant_bandits.model.decisions",
    "invariant_bandits.policies",
)
ARMS = [{"price": 1.0}, {"price": 2.0}, {"price": 3.0}]


def shop_model(policy="linucb"):
    rng = np.random.default_rng(0)
    price, hour = rng.gamma(3.0, size=600), rng.uniform(0, 24, size=600)
    table = pa.table(
        {
            "reward": 2.0 * price + 0.1 * hour + rng.normal(size=600),
            "price": price,
            "hour": hour,
        }
    )
    return ib.fit_logs(table, policy=policy)


def bits(model):
    return testing.bits(model.policy), (
        model.ledger.open,
        model.ledger.rewarded,
        model.ledger.made,
    )


# -- threads --


def test_every_reward_is_learned_once_whoever_reports_it():
    """All threads report all rewards, in orders of their own: the same round every time, so no order
    matters.
    """
    model, alone = shop_model(), shop_model()
    made = [model.decide({"hour": 9.0}, ARMS, id=f"d{number}") for number in range(15)]
    assert [
        alone.decide({"hour": 9.0}, ARMS, id=decision.id) for decision in made
    ] == made
    assert alone.learn_many([(decision, 1.5) for decision in made]) == 15
    new = []

    def report(thread):
        order = np.random.default_rng(thread).permutation(15)
        new.extend(model.learn(made[number].id, 1.5) for number in order)

    at_once(
        *[lambda thread=thread: report(thread) for thread in range(THREADS)],
        code=MODEL_CODE,
    )
    assert len(new) == 15 * THREADS
    assert sum(new) == 15
    assert testing.bits(model.policy) == testing.bits(alone.policy)
    assert model.ledger.rewarded == alone.ledger.rewarded
    assert not model.ledger.open


@pytest.mark.parametrize("policy", ["linucb", "randomised-lints", "auto-isd"])
def test_decisions_made_at_once_are_counted_once_and_drawn_as_one_after_another(policy):
    model, alone = shop_model(policy), shop_model(policy)
    made = []

    def decide(thread):
        mine = [model.decide({"hour": 9.0}, ARMS) for _ in range(10)]
        made.extend(mine)
        made.append(model.decide({"hour": 9.0}, ARMS, id="of all"))

    at_once(
        *[lambda thread=thread: decide(thread) for thread in range(THREADS)],
        code=MODEL_CODE,
    )
    assert len({decision.id for decision in made}) == 10 * THREADS + 1
    assert len({item for item in map(repr, made) if "of all" in item}) == 1
    assert model.ledger.made == len(model.ledger.open) == 10 * THREADS + 1
    expected = [alone.decide({"hour": 9.0}, ARMS) for _ in range(10 * THREADS + 1)]
    answers = [
        (item.decision.action, item.decision.propensity)
        for item in model.ledger.open.values()
    ]
    assert answers == [(item.action, item.propensity) for item in expected]


def test_a_model_saved_while_others_decide_and_learn_is_one_that_was():
    model, saved = shop_model(), []
    warm = model.policy.rounds

    def work():
        for _ in range(15):
            model.learn(model.decide({"hour": 9.0}, ARMS), 1.5)

    def save():
        saved.extend(model.to_bytes() for _ in range(15))

    at_once(work, work, save, save, code=MODEL_CODE)
    for content in saved:
        loaded = ib.Model.from_bytes(content, "model")
        learned = loaded.policy.rounds - warm
        assert (
            learned
            == len(loaded.ledger.rewarded)
            == loaded.ledger.made - len(loaded.ledger.open)
        )
    assert (model.policy.rounds - warm, model.ledger.made) == (30, 30)


def test_a_registry_answers_nobody_before_it_was_searched(monkeypatch):
    """Also not a thread that asks while another one still imports."""
    fresh, find = (
        Registry("policy", "invariant_bandits.policies"),
        registry.import_module,
    )

    def slowly(name):
        sleep(0.002)
        if name.endswith(".linear"):
            fresh.add(SimpleNamespace(name="late"))
        return find(name)

    monkeypatch.setattr(registry, "import_module", slowly)
    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(lambda _: "late" in fresh, range(THREADS)))


# -- copies and processes --


@pytest.mark.system
@pytest.mark.parametrize("policy", ["auto-isd", "randomised-lints"])
def test_a_model_with_open_decisions_is_copied_pickled_and_spawned(policy):
    model = shop_model(policy)
    waiting = [model.decide({"hour": float(hour)}, ARMS) for hour in range(5)]
    model.learn(waiting[0], 1.0)
    before = bits(model)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(copy.copy, (model,))
    for other in (
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        spawned,
    ):
        assert bits(other) == before
        assert lock_of(other) is not lock_of(model)
        assert lock_of(other.policy) is not lock_of(model.policy)
        assert other.learn(waiting[1].id, 2.0)
        twin = copy.deepcopy(model)
        twin.learn(waiting[1].id, 2.0)
        assert bits(other) == bits(twin)
        assert other.decide({"hour": 7.0}, ARMS, id="next") == twin.decide(
            {"hour": 7.0}, ARMS, id="next"
        )
        assert bits(model) == before
