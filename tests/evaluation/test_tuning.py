"""Simple policies are set on earlier rounds, and evaluation orders policies as the truth does."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation.estimators import target_probabilities
from invariant_bandits.evaluation.tuning import EXPLORATIONS, SIMPLE
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.registry import PolicySpec
from known_values import WORLDS


def true_value(log, policy, options):
    """What the policy earns per round in the second half, learning from the logged rounds."""
    earlier, later = log.feedback.split(0.5)
    past = ib.Past.from_feedback(earlier, later.rounds, log.windows)
    made = PolicySpec(policy, options).build(past)
    return log.value(
        target_probabilities(made, later, baseline=past.baseline), later.rounds
    )


@pytest.mark.slow
@pytest.mark.parametrize("world", list(WORLDS))
def test_the_order_of_policies_is_the_true_one_where_intervals_say_so(world):
    """One draw of each world. An interval of 95 % has a wrong sign in at most one of 40 pairs that hardly
    differ; most of these pairs differ by much more.
    """
    log = WORLDS[world].log(4000, seed=11)
    result = ib.compare(
        log.feedback, [*SIMPLE, "uniform"], windows=log.windows, estimators=["DR"]
    )
    truth = {
        name: true_value(log, name, result.settings.get(name, {}))
        for name in result.policies
    }
    for name in result.policies:
        for other in result.policies:
            gain = result.line(name).value.minus(result.line(other).value)
            assert gain.answer != "yes" or truth[name] > truth[other], (name, other)
    best = max(
        true_value(log, "linucb-cold", {"exploration": factor})
        for factor in EXPLORATIONS
    )
    assert truth["linucb-cold"] > 0.98 * best


def test_no_reported_round_has_a_say_in_the_settings():
    log = WORLDS["rows"].log(1500, 0)
    offered, rewards = (
        log.feedback.offered.reshape(1500, 5, -1),
        log.feedback.rewards.copy(),
    )
    rewards[750:] = -rewards[750:]
    changed = Feedback.from_arrays(
        offered, log.feedback.actions, rewards, propensities=np.full(1500, 0.2)
    )
    before, after = (
        ib.compare(feedback, SIMPLE, estimators=["DR"])
        for feedback in (log.feedback, changed)
    )
    assert before.settings == after.settings
    assert before.simple == after.simple
    assert before.reference == after.reference == before.simple[0]


def test_published_settings_stand_beside_the_chosen_ones_on_request_and_options_are_kept():
    log = WORLDS["rows"].log(1000, 1)
    asked = ["sw-linucb", "linucb-warm,exploration=1"]
    both = ib.compare(log.feedback, asked, estimators=["DR"], settings="both")
    assert both.policies == (
        "sw-linucb",
        "sw-linucb, published",
        "linucb-warm,exploration=1",
    )
    assert set(both.settings) == {"sw-linucb"}
    chosen = ",".join(
        f"{name}={str(value).lower()}"
        for name, value in both.settings["sw-linucb"].items()
    )
    again = ib.compare(log.feedback, [f"sw-linucb,{chosen}"], estimators=["DR"])
    assert again.lines[0].value.value == both.line("sw-linucb").value.value
    assert not ib.compare(
        log.feedback, asked, estimators=["DR"], settings="published"
    ).settings


def test_a_simple_policy_that_is_ahead_is_named_first():
    log = WORLDS["rows"].log(2000, 2)
    result = ib.compare(log.feedback, ["uniform", "linucb-cold"])
    assert result.headline()[0].startswith(
        "A simple policy is ahead: linucb-cold (exploration "
    )
    assert "beats uniform by" in result.headline()[0]
    other = ib.compare(
        log.feedback, ["linucb-cold,exploration=0", "frozen"]
    ).headline()[0]
    assert "linucb-cold,exploration=0" in other
    assert "the best simple policy of the rounds before" in other
