"""Propensities: estimated ones approach the truth, right ones are rarely flagged, wrong ones are found."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation.propensities import (
    calibration,
    estimate_propensities,
    fit_choices,
)
from invariant_bandits.logs import spill
from invariant_bandits.logs.feedback import Feedback
from logged_worlds import ACTIONS, DIM, World, of_rounds, softmax

THETA = np.array([1.0, -0.5, 0.0])


def logistic_log(rounds, rng, theta=THETA, counts=None):
    """Rounds whose actions follow softmax(θᵀφ), and those propensities (rows,)."""
    counts = np.full(rounds, ACTIONS) if counts is None else counts
    offered = rng.standard_normal((counts.sum(), DIM))
    luck = offered @ theta + rng.gumbel(size=counts.sum())
    parts = np.split(np.arange(counts.sum()), np.cumsum(counts)[:-1])
    actions = np.array([luck[rows].argmax() for rows in parts])
    raised = np.exp(offered @ theta)
    right = raised / np.repeat(
        np.add.reduceat(raised, np.cumsum(counts) - counts), counts
    )
    return Feedback.from_arrays(
        offered, actions, np.zeros(rounds), counts=counts
    ), right


def test_the_choice_model_recovers_its_planted_coefficients():
    """20,000 ragged rounds: standard errors are about 0.01; off by 0.05 with probability below 1e-5."""
    rng = np.random.default_rng(0)
    feedback, right = logistic_log(20_000, rng, counts=rng.integers(2, 7, size=20_000))
    np.testing.assert_allclose(fit_choices([feedback]), THETA, atol=0.05)
    assert np.abs(estimate_propensities(feedback)[-100:] - right[-100:]).max() < 0.02


def test_the_fit_is_where_the_penalised_likelihood_is_flat():
    feedback, _ = logistic_log(500, np.random.default_rng(1))
    theta = fit_choices([feedback])
    raised = np.exp(feedback.offered @ theta)
    chances = raised / np.repeat(feedback.sums_per_round(raised), feedback.counts)
    expected = feedback.sums_per_round(chances[:, None] * feedback.offered)
    away = feedback.offered - np.repeat(
        feedback.sums_per_round(feedback.offered) / ACTIONS, ACTIONS, axis=0
    )
    slope = (feedback.features - expected).sum(axis=0) - (away**2).mean(axis=0) * theta
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)


def test_choices_that_a_feature_decides_keep_finite_coefficients_and_the_floor():
    rng = np.random.default_rng(2)
    offered = rng.standard_normal((400, 3, 2))
    feedback = Feedback.from_arrays(
        offered, offered[:, :, 0].argmax(axis=1), np.zeros(400)
    )
    assert np.isfinite(fit_choices([feedback])).all()
    estimates = estimate_propensities(feedback, floor=0.01)
    assert estimates.min() >= 0.01
    np.testing.assert_allclose(estimates.reshape(400, 3).sum(axis=1), 1.0, rtol=1e-12)


def test_estimates_of_a_block_use_choices_before_it_only():
    feedback, _ = logistic_log(1000, np.random.default_rng(3))
    actions = feedback.actions.copy()
    actions[800:] = 0
    changed = Feedback.from_arrays(of_rounds(feedback), actions, feedback.rewards)
    np.testing.assert_array_equal(
        estimate_propensities(feedback), estimate_propensities(changed)
    )
    actions[300] = (actions[300] + 1) % ACTIONS
    sooner = estimate_propensities(
        Feedback.from_arrays(of_rounds(feedback), actions, feedback.rewards)
    )
    assert (
        sooner[400 * ACTIONS :] != estimate_propensities(feedback)[400 * ACTIONS :]
    ).any()


# -- calibration --

LOGS = 400
ALLOWED = 0.01 + 3.0 * np.sqrt(
    0.01 * 0.99 / LOGS
)  # passed with probability 0.998 by a test of level 0.01


def flagged_share(change, *, logged_only, rounds=1000):
    """Share of logs whose propensities are flagged after `change`."""
    flags = 0
    for run in range(LOGS):
        feedback, _ = World().log(rounds, np.random.default_rng((61, run)))
        feedback = feedback.with_propensities(change(feedback))
        if logged_only:
            feedback = feedback.with_propensities(feedback.propensities)
        flags += calibration(feedback, level=0.01).flagged
    return flags / LOGS


@pytest.mark.parametrize("logged_only", [True, False])
def test_right_propensities_are_not_flagged_more_often_than_the_level(logged_only):
    assert (
        flagged_share(
            lambda feedback: feedback.offered_propensities, logged_only=logged_only
        )
        <= ALLOWED
    )


WRONG = {
    "uniform ones": lambda feedback: np.full(len(feedback.offered), 1 / ACTIONS),
    "one feature forgotten": lambda feedback: softmax(
        of_rounds(feedback) @ [0.5, 0.0, 0.0]
    ),
    "too sure": lambda feedback: softmax(of_rounds(feedback) @ [1.0, 1.0, 0.0]),
}


@pytest.mark.parametrize("logged_only", [True, False])
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_wrong_propensities_are_flagged_almost_surely(change, logged_only):
    """In at least 99 % of logs of 1,000 rounds."""
    assert flagged_share(change, logged_only=logged_only) >= 0.99


def test_propensities_that_do_not_add_up_are_flagged_and_named():
    feedback, _ = World().log(500, np.random.default_rng(0))
    result = calibration(
        feedback.with_propensities(0.9 * feedback.offered_propensities)
    )
    assert result.flagged
    assert result.worst.kind == "sum"
    assert "WRONG: sum over a round, furthest is off by -10.0 %" in result.summary()


def test_propensities_of_logged_actions_multiplied_by_a_constant_are_flagged():
    feedback, _ = World().log(3000, np.random.default_rng(0))
    result = calibration(feedback.with_propensities(0.8 * feedback.propensities))
    assert result.flagged
    (all_actions,) = (check for check in result.checks if check.kind == "all")
    assert all_actions.observed == pytest.approx(
        1.25, abs=4 * all_actions.standard_error
    )


def test_actions_that_are_never_played_are_found_from_logged_propensities_alone():
    rng = np.random.default_rng(4)
    feedback = Feedback.from_arrays(
        rng.standard_normal((2000, 3, 2)),
        rng.integers(2, size=2000),
        np.zeros(2000),
        propensities=np.full(2000, 0.5),
    )
    result = calibration(feedback)
    assert result.flagged
    unplayed = next(check for check in result.checks if check.name == "position 2")
    assert (unplayed.expected, unplayed.observed) == (1.0, 0.0)


def test_bins_compare_predicted_with_observed_frequencies():
    feedback, _ = World(logging=np.array([1.0, 1.0, 0.0])).log(
        20_000, np.random.default_rng(5)
    )
    bins = [
        check for check in calibration(feedback, bins=5).checks if check.kind == "bin"
    ]
    chances, chosen = feedback.offered_propensities, np.zeros(len(feedback.offered))
    chosen[feedback.logged_rows] = 1.0
    edges = np.quantile(chances, np.linspace(0, 1, 6))
    for check, low, high in zip(bins, edges[:-1], edges[1:], strict=True):
        inside = (chances >= low) & ((chances < high) | (high == edges[-1]))
        assert check.expected == pytest.approx(chances[inside].mean(), rel=1e-12)
        assert check.observed == pytest.approx(chosen[inside].mean(), rel=1e-12)


def test_estimated_propensities_of_a_logistic_log_pass_and_those_of_a_log_that_switches_do_not():
    """At this size right estimates were flagged in 2 of 300 logs; the policy that switches sign is off in
    every bin.
    """
    rng = np.random.default_rng(6)
    feedback, _ = logistic_log(4000, rng)
    assert not calibration(
        feedback.with_propensities(estimate_propensities(feedback))
    ).flagged
    first, second = logistic_log(2000, rng)[0], logistic_log(2000, rng, theta=-THETA)[0]
    both = Feedback.from_arrays(
        np.concatenate([of_rounds(first), of_rounds(second)]),
        np.concatenate([first.actions, second.actions]),
        np.zeros(4000),
    )
    assert calibration(both.with_propensities(estimate_propensities(both))).flagged


def test_bad_input_is_named():
    feedback, _ = logistic_log(50, np.random.default_rng(0))
    with pytest.raises(ib.InputError, match="propensities are missing"):
        calibration(feedback)
    with pytest.raises(
        ib.InputError, match="at least 10 rounds are needed for 5 blocks, got 6"
    ):
        estimate_propensities(feedback.between(0, 6))
    with pytest.raises(ib.InputError, match="floor must lie strictly between 0 and 1"):
        estimate_propensities(feedback, floor=0.0)
    with pytest.raises(
        ib.InputError, match="bins must be a whole number of at least 2"
    ):
        calibration(feedback.with_uniform_propensities(), bins=1)


def test_a_context_that_all_actions_share_says_nothing_whatever_rounding_does_to_it():
    """Thirds do not add up to one bit by bit: differences of rounding over errors of rounding were z = 87
    once.
    """
    rng = np.random.default_rng(5)
    context = 40.0 + np.repeat(rng.normal(size=(8000, 1, 1)), 3, axis=1)
    constant = np.full((8000, 3, 1), 0.1)
    offered = np.concatenate([context, rng.normal(size=(8000, 3, 1)), constant], axis=2)
    rounds = Feedback.from_arrays(offered, rng.integers(3, size=8000), np.zeros(8000))
    for propensities in (
        np.full(24_000, 1 / 3),
        np.full(24_000, 0.333),
        np.full(8000, 1 / 3),
    ):
        found = calibration(rounds.with_propensities(propensities))
        z = {check.name: check.z for check in found.checks}
        assert z["feature 2"] == 0.0
        assert (
            z["feature 0"] < 4.5
        )  # weights of the logged actions only: an estimate with an error of its own
        if len(propensities) > 8000:
            assert z["feature 0"] == 0.0
        assert not found.flagged


def test_what_is_certain_but_too_small_to_matter_is_said_as_that():
    rng = np.random.default_rng(6)
    rounds = Feedback.from_arrays(
        rng.normal(size=(4000, 3, 1)), rng.integers(3, size=4000), np.zeros(4000)
    )
    found = calibration(rounds.with_propensities(np.full(12_000, 0.33)))
    assert not found.flagged
    assert found.harmless.name == "sum over a round, furthest"
    assert (
        found.summary()
        .splitlines()[-1]
        .startswith("nothing that matters speaks against them")
    )
    assert "sum over a round, furthest is off by -1.0 %" in found.words
    right = calibration(rounds.with_uniform_propensities())
    assert right.harmless is None
    assert right.words.startswith("nothing speaks against them (p =")


def test_propensities_of_labelled_arms_are_estimated_from_one_hot_features():
    """φ = e_a ⊗ [1, x], all arms offered: a multinomial logistic model, whose coefficients are known up to a
    vector.
    """
    rng = np.random.default_rng(7)
    n, arms = 6000, 8
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    offered = np.einsum("ab,nd->nabd", np.eye(arms), x).reshape(n, arms, arms * 3)
    scores = x @ rng.normal(size=(3, arms)) * 0.7
    right = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    actions = (scores + rng.gumbel(size=(n, arms))).argmax(axis=1)
    log = ib.evaluation.Feedback.from_arrays(offered, actions, rng.normal(size=n))
    found = estimate_propensities(log, blocks=2).reshape(n, arms)
    assert np.abs(found[n // 2 :] - right[n // 2 :]).mean() < 0.02
    assert not calibration(log.with_propensities(found).between(n // 2, n)).flagged


def test_features_of_the_context_do_not_disturb_propensities(monkeypatch):
    """φ = [e_a, x], x the same for all actions of a round, in many parts: what is left are the arms' own
    shares.
    """
    rng = np.random.default_rng(8)
    n, arms = 2000, 34
    shares = np.arange(1.0, arms + 1.0) / (arms * (arms + 1) / 2)
    context = np.repeat(np.exp(6.0 * rng.normal(size=(n, 1, 20))), arms, axis=1)
    offered = np.concatenate(
        [np.broadcast_to(np.eye(arms), (n, arms, arms)), context / 3.0], axis=2
    )
    log = ib.evaluation.Feedback.from_arrays(
        offered, rng.choice(arms, size=n, p=shares), rng.normal(size=n)
    )
    monkeypatch.setattr(spill, "IN_MEMORY", 1000)
    monkeypatch.setattr(spill, "AT_ONCE", 40_000)
    found = np.asarray(estimate_propensities(log, blocks=2)).reshape(n, arms)
    np.testing.assert_allclose(found[-1], shares, atol=0.03)
    assert np.corrcoef(found[-1], shares)[0, 1] > 0.8
    np.testing.assert_allclose(found[-1], found[-2], atol=1e-6)
