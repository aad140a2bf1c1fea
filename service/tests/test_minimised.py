"""A model of which less reward is better learns rewards of the service as they are."""

import numpy as np
import pyarrow as pa

import invariant_bandits as ib
from invariant_bandits.logs.schema import Schema
from invariant_bandits_service.history import Layout
from invariant_bandits_service.learners import FittedLearner


def waits(rounds=2000):
    rng = np.random.default_rng(0)
    desk, hour = rng.choice(["north", "south"], rounds), rng.normal(size=rounds)
    minutes = 20.0 - 8.0 * (desk == "south") + rng.normal(size=rounds)
    return pa.table(
        {"day": np.arange(rounds), "desk": desk, "hour": hour, "wait": minutes}
    )


def test_a_learner_turns_the_sign_of_what_is_minimised():
    known = {"time": "day", "arm": "desk", "reward": "wait", "minimise": True}
    learner = FittedLearner(ib.fit_logs(waits(), known))
    labels = ("north", "south")
    context = {"hour": 0.0}
    before = learner.model.scores(context).mean
    assert before[1] > before[0]
    for _ in range(300):
        learner.learn(context, labels, None, 1, 60.0)
    after = learner.model.scores(context).mean
    assert after[1] < after[0]


def test_decisions_of_the_service_are_learned_in_the_same_direction():
    schema = Schema("wait", ("hour",), arm="desk", minimise=True)
    assert (
        Layout(False, False, {"propensity": "p", "arm": "desk"})
        .schema_like(schema)
        .minimise
    )
    assert (
        not Layout(False, False, {"propensity": "p", "arm": "desk"})
        .schema_like(Schema("wait", ("hour",)))
        .minimise
    )
