"""The worlds that a hedge must survive are what their options say, and AutoISD survives those that it can."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation.stress_worlds import StressEpisodes


def draw(horizon=4000, seed=0, **options):
    return StressEpisodes(**options).draw(horizon, np.random.default_rng(seed))


def noise_of(episode):
    return (episode.rewards - episode.means)[:, 0]


def test_what_lasts_lasts_and_what_drifts_is_redrawn():
    episode = draw(50)
    logs = episode.logs
    stable = logs.coefficients @ logs.split.invariant
    np.testing.assert_allclose(stable, np.tile(stable[0], (4000, 1)), atol=1e-12)
    np.testing.assert_allclose(
        episode.coefficients @ logs.split.invariant,
        np.tile(stable[0], (50, 1)),
        atol=1e-12,
    )
    drifting = logs.coefficients @ logs.split.residual
    assert len(np.unique(drifting[:, 0].round(9))) == 8
    assert not np.isclose(
        episode.coefficients[0] @ logs.split.residual, drifting[-1]
    ).any()
    still = draw(50, drift="none")
    np.testing.assert_allclose(
        still.coefficients[0], still.logs.coefficients[0], atol=1e-12
    )


def test_a_walk_goes_on_from_where_the_logs_ended():
    episode = draw(2000, drift="walk", step=0.03)
    path = (
        np.concatenate([episode.logs.coefficients, episode.coefficients])
        @ episode.logs.split.residual
    )
    steps = np.diff(path, axis=0)
    assert steps.std() == pytest.approx(
        0.03, rel=0.05
    )  # 18,000 steps: standard error 0.5 %
    assert np.abs(steps).max() < 0.03 * 6.0


def test_noise_baseline_and_breaks_are_as_large_as_asked():
    assert noise_of(draw(noise_factor=3.0)).std() == pytest.approx(
        3.0, rel=0.06
    )  # standard error 1.1 %
    jumped = draw(100, baseline_jump=2.0)
    linear = np.einsum("tkp,tp->tk", jumped.offered, jumped.coefficients)
    np.testing.assert_allclose(jumped.means - linear, 2.0)
    broken = draw(10, broken=0.7)
    moved = (
        broken.coefficients[0] @ broken.logs.split.invariant
        - broken.logs.split.invariant.T @ broken.logs.component
    )
    assert np.linalg.norm(moved) == pytest.approx(0.7)
    silent = draw(10, signal=0.0)
    assert (silent.logs.coefficients == 0.0).all()
    assert np.abs(silent.coefficients).max() > 0.1


def test_clicks_are_rare_and_come_as_often_as_their_means_say():
    clicks = draw(20_000, rewards="clicks", rate=0.03)
    assert set(np.unique(clicks.rewards)) == {0.0, 1.0}
    mean = clicks.means[:, 0].mean()
    assert clicks.rewards[:, 0].mean() == pytest.approx(
        mean, abs=4.0 * np.sqrt(mean / 20_000)
    )
    assert 0.02 < mean < 0.12
    revenue = draw(2000, rewards="revenue")
    assert (revenue.rewards == 0.0).mean() > 0.8
    assert revenue.rewards.max() > 1.5


def test_bad_options_are_named():
    for options, message in (
        ({"drift": "wild"}, "drift must be one of"),
        ({"rewards": "gold"}, "rewards must be one of"),
        ({"residual_dim": 11}, "residual_dim must be at most dim, 10"),
    ):
        with pytest.raises(ib.InputError, match=message):
            StressEpisodes(**options)


SURVIVED = {
    "noise three times the logs'": ({"noise_factor": 3.0}, 1.0),
    "noise and a half": ({"noise_factor": 1.5}, 0.8),
    "rare clicks": ({"rewards": "clicks"}, 1.0),
    "no signal in the logs": ({"signal": 0.0}, 1.4),
    "a moved baseline": ({"baseline_jump": 2.0}, 0.8),
    "heavy tails": ({"rewards": "t3"}, 0.8),
}


@pytest.mark.parametrize(("options", "most"), SURVIVED.values(), ids=SURVIVED.keys())
def test_autoisd_holds_up_against_a_tuned_linucb_where_it_knew_too_much(options, most):
    """Mean regret of 12 runs against LinUCB's with exploration 0.1.

    Over 40 runs the ratios were 0.6, 0.45, 0.75, 1.05, 0.35 and 0.4; with the noise of the logs and doubts in
    units of their coefficients the first was 8 and the fourth 4. With a spread of half the mean between runs,
    the mean of 12 is above these bounds with probability below 1e-2 each; the seed is fixed.
    """
    players = {
        "AutoISD": PolicySpec("auto-isd", {"delta": 0.01}),
        "LinUCB": PolicySpec("linucb", {"exploration": 0.1, "delta": 0.01}),
    }
    result = ib.simulate(players, StressEpisodes(**options), 1000, 12, seed=31)
    assert result.final("AutoISD").mean() <= most * result.final("LinUCB").mean()
