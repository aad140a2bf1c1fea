"""What docs/method/proofs.md proves holds of the code that plays, and the growth it states is there."""

import numpy as np
import pytest

from invariant_bandits_reproduction.studies import proofs

WORLDS = {
    "the stable part jumps": {},
    "drift as in the logs": {"broken": 0.0},
    "heavy tails": {"rewards": "t3", "broken": 0.0},
    "no signal in the logs": {"signal": 0.0},
    "other noise": {"noise_factor": 3.0, "broken": 0.0},
}


@pytest.mark.parametrize("world", WORLDS)
def test_the_mixture_is_never_further_behind_a_member_than_its_bound(world):
    losses = proofs.broken_world(seed=3, horizon=300, **WORLDS[world])
    assert losses.weight_error < 1e-9, "the losses are those that the weights follow"
    assert (losses.excess() <= losses.bound() + 1e-9).all()
    assert losses.excess()[-1].min() < -20.0, "some member is far behind"
    assert 0.1 <= losses.trust <= 1.0


def test_the_bound_would_be_passed_by_a_mixture_that_forgets_a_member():
    """The test above can fail: with the best member's weight thrown away, its bound does not hold."""
    losses = proofs.broken_world(seed=3, horizon=300)
    best = int(np.nan_to_num(losses.members).sum(axis=0).argmin())
    others = np.delete(losses.members, best, axis=1)
    alone = np.nanmax(others, axis=1)  # a mixture that listens to the worst
    assert (
        np.cumsum(alone - np.nan_to_num(losses.members[:, best]))
        > losses.bound()[:, best]
    ).any()


def test_the_information_of_the_rounds_is_at_most_the_effective_dimension():
    variances = proofs.with_drift(6, 2)
    sampled = proofs.posterior_sampling(variances, 200, 50)
    assert (sampled.information <= proofs.effective_dimension(variances, 200)).all()
    assert sampled.information.mean() > 0.5 * proofs.effective_dimension(variances, 200)


@pytest.mark.parametrize(("dim", "drifting"), [(4, 1), (12, 1), (4, 4), (12, 4)])
@pytest.mark.parametrize("rounds", [50, 200])
def test_the_regret_of_posterior_sampling_stays_below_its_bound(dim, drifting, rounds):
    variances = proofs.with_drift(dim, drifting)
    regret = proofs.posterior_sampling(variances, rounds, 60).regret
    assert regret.mean() + 5.0 * regret.std() / np.sqrt(60) < proofs.regret_bound(
        variances, rounds
    )


def test_regret_grows_with_the_directions_that_drift_and_not_with_p():
    """Standard errors are about 5 % of the means: each bound is five of them away."""
    few, many, drifting = (
        proofs.posterior_sampling(proofs.with_drift(*of), 200, 200).regret.mean()
        for of in ((4, 2), (12, 2), (12, 6))
    )
    assert 0.75 < many / few < 1.3
    assert drifting > 1.6 * many


@pytest.mark.parametrize("factor", proofs.FACTORS)
def test_a_wrong_prior_costs_what_is_stated_and_no_more(factor):
    """Beyond four standard errors by chance in one of 16,000 tests each."""
    limit = proofs.cost_of_factor(factor, drifting=3)
    early, error = proofs.measured_cost(factor, 3, rounds=10, runs=3000)
    late, late_error = proofs.measured_cost(factor, 3, rounds=300, runs=3000)
    assert early < limit + 4.0 * error
    assert 0.9 * limit - 4.0 * late_error < late < limit + 4.0 * late_error
