"""Rehearsal and tests of neglected actions: what they choose, what they cost, that they are the same
every time.
"""

import numpy as np
import pytest
from scipy import stats

import invariant_bandits as ib
from invariant_bandits.policies import mixture_kernels
from invariant_bandits.policies import mixture_kernels as kernels
from invariant_bandits.policies.rehearsal import OfferedSets, Rehearsal
from invariant_bandits.simulation.fixed_arms import FixedArms


def arms(seed=0, horizon=600, **settings):
    return FixedArms(**settings).draw(horizon, np.random.default_rng(seed))


def play(policy, episode):
    actions = []
    for features, rewards in zip(episode.offered, episode.rewards, strict=True):
        actions.append(policy.select(features))
        policy.update(features[actions[-1]], float(rewards[actions[-1]]))
    gaps = episode.means.max(axis=1) - episode.means[np.arange(len(actions)), actions]
    return np.array(actions), float(gaps.sum())


# -- offered sets --


def test_offered_sets_of_any_form_are_the_same_sets():
    sets = np.random.default_rng(0).normal(size=(4, 3, 2))
    whole = OfferedSets.of(sets)
    listed, rows = OfferedSets.of(list(sets)), OfferedSets.of_rows(sets.reshape(-1, 2), np.full(4, 3))
    for one in (listed, rows):
        np.testing.assert_array_equal(one.rows, whole.rows)
        np.testing.assert_array_equal(one.starts, [0, 3, 6, 9, 12])
    assert len(OfferedSets.of(sets[0])) == 1
    ragged = OfferedSets.of([sets[0], sets[1][:1]])
    assert np.diff(ragged.starts).tolist() == [3, 1]
    assert len(OfferedSets.of(np.ones((1000, 2, 2)))) == 256


def test_offered_sets_that_cannot_be_are_named():
    bad = ((np.ones((3, 4)), "offered"), ([], "at least one set"), (3.0, "offered must be an array"))
    for offered, words in bad:
        with pytest.raises(ib.InputError, match=words):
            OfferedSets.of(offered, 2)


# -- rehearsal --


def test_a_rehearsal_is_the_same_every_time_and_travels_with_the_policy(tmp_path):
    episode = ib.PaperEpisodes(logged=2000).draw(200, np.random.default_rng(1))
    one, other = (
        ib.AutoISD.from_history(episode.moments, offered=episode.logs.offered, horizon=100) for _ in range(2)
    )
    assert one.rehearsal is not None
    assert one.rehearsal == other.rehearsal
    assert one.exploration == one.rehearsal.exploration
    assert one.tests == one.rehearsal.tests
    assert "<- plays" in str(one.explain())
    ib.save(one, tmp_path / "policy")
    back = ib.load(tmp_path / "policy")
    assert back.rehearsal == one.rehearsal
    assert play(back, episode)[0].tolist() == play(one, episode)[0].tolist()


def test_tests_cost_more_in_varied_contexts_than_among_a_few_actions_that_never_change():
    varied = ib.PaperEpisodes(logged=4000).draw(10, np.random.default_rng(2))
    same = np.random.default_rng(3).normal(size=(20, varied.dim))
    tables = []
    for offered in (varied.logs.offered, same):
        rehearsal = ib.AutoISD.from_history(varied.moments, offered=offered, horizon=500).rehearsal
        tables.append({(one.exploration, one.tests): one.regret for one in rehearsal.trials})
    contexts, fixed = tables
    assert contexts[0.25, "eager"] > 1.5 * contexts[0.25, "patient"]
    assert fixed[0.25, "eager"] < 1.2 * fixed[0.25, "patient"]


def test_a_number_is_taken_as_it_is_and_a_rehearsal_needs_offered_sets():
    episode = arms(logged=800)
    assert (
        ib.AutoISD.from_history(episode.moments, exploration=0.3, offered=episode.offered[0]).rehearsal
        is None
    )
    assert ib.AutoISD.from_history(episode.moments).exploration == 0.25
    with pytest.raises(ib.InputError, match="needs offered sets"):
        ib.AutoISD.from_history(episode.moments, exploration="rehearsed")
    with pytest.raises(ib.InputError, match="exploration"):
        ib.AutoISD.from_history(episode.moments, exploration="often")


def test_a_past_with_offered_sets_is_rehearsed():
    episode = arms(logged=800)
    assert ib.AutoISD.from_past(episode.past).rehearsal is not None
    moments_alone = ib.Past(moments=episode.moments, horizon=100)
    assert ib.AutoISD.from_past(moments_alone).rehearsal is None


def test_a_table_survives_its_plain_form():
    found = ib.AutoISD.from_past(arms(logged=800, horizon=50).past).rehearsal
    assert Rehearsal.from_dict(found.to_dict()) == found


# -- tests of neglected actions --


def test_hope_is_the_expected_positive_part():
    for mean, deviation in ((-1.0, 0.5), (0.3, 2.0), (-4.0, 1.0)):
        better, hope = mixture_kernels._hope(mean, deviation)
        size = mean / deviation
        assert better == pytest.approx(stats.norm.cdf(size), rel=1e-12)
        assert hope == pytest.approx(deviation * stats.norm.pdf(size) + mean * stats.norm.cdf(size), rel=1e-9)
    assert mixture_kernels._hope(-1.0, 0.0) == (0.0, 0.0)


def test_no_arm_stays_untested_after_the_rewards_have_changed():
    """Over 200 worlds the mean regret is 50 with tests and 350 without; 15 of them are far apart, too."""
    regrets = np.zeros(2)
    for seed in range(15):
        changed = arms(logged=4000, arms=5, changed=1.0, seed=seed, horizon=1500)
        for i, tests in enumerate(("patient", "none")):
            policy = ib.AutoISD.from_history(changed.moments, exploration=0.02, tests=tests, horizon=1500)
            actions, regret = play(policy, changed)
            regrets[i] += regret
            assert tests == "none" or set(actions.tolist()) == set(range(5))
    assert regrets[0] < 0.5 * regrets[1]


def test_tests_cost_little_where_the_logs_are_right():
    # Gaps are of size 1: a handful of tests costs about 7 (measured over 200 logs: mean 9, worst 107).
    costs = [
        play(ib.AutoISD.from_past(one.past, exploration=0.25), one)[1] for one in map(calm_arms, range(10))
    ]
    assert np.mean(costs) < 25


def calm_arms(seed):
    return arms(seed=seed, logged=4000, arms=5, changed=0.0, horizon=1000)


def test_varied_contexts_are_not_tested():
    episode = ib.PaperEpisodes(logged=4000).draw(300, np.random.default_rng(5))
    tested, plain = (ib.AutoISD.from_history(episode.moments, tests=one) for one in ("patient", "none"))
    assert play(tested, episode)[0].tolist() == play(plain, episode)[0].tolist()


def test_near_the_horizon_nothing_is_tested():
    episode = arms(logged=4000, arms=5, changed=1.0, horizon=300)
    short = ib.AutoISD.from_history(episode.moments, exploration=0.02, horizon=1)
    assert short.remaining_rounds == 1.0
    play(short, episode)
    assert short.remaining_rounds == 1000.0


# -- parked filters --


def test_a_parked_filter_keeps_its_weight_while_it_rests_and_learns_every_eighth_round():
    episode = ib.PaperEpisodes(logged=4000, violation=2.0).draw(400, np.random.default_rng(6))
    policy = ib.AutoISD.from_history(episode.moments, share=0.0)
    play(policy, episode)
    parked = np.flatnonzero(policy.mixture.filters.weights < kernels.PARKED)
    parked = parked[parked != policy.mixture.reference]
    assert len(parked) > 5
    while policy.rounds % kernels.REST == 0:
        policy.update(episode.offered[0, 0], 0.0)
    parked = parked[policy.mixture.filters.weights[parked] < kernels.PARKED]
    before, weights = policy.mixture.filters.means[parked].copy(), policy.mixture.filters.weights.copy()
    policy.update(episode.offered[0, 0], 0.5)
    np.testing.assert_array_equal(policy.mixture.filters.means[parked], before)
    np.testing.assert_allclose(policy.mixture.filters.weights[parked], weights[parked], rtol=1e-9)
    while policy.rounds % kernels.REST:
        policy.update(episode.offered[1, 0], 0.5)
    policy.update(episode.offered[1, 1], 0.5)
    assert (policy.mixture.filters.means[parked] != before).any(axis=1).all()
