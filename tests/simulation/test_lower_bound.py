"""The instance of the lower bound: the cube's vertices, signs nobody knows, logs that teach the split and no
sign.
"""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies.radii import regret_lower_bound
from invariant_bandits.simulation.episodes import HypercubeEpisodes
from worlds import within


def test_the_actions_are_the_vertices_of_the_residual_cube():
    episode = HypercubeEpisodes(invariant_dim=2, residual_dim=3).draw(
        50, np.random.default_rng(0)
    )
    assert episode.offered.shape == (50, 8, 5)
    np.testing.assert_array_equal(episode.offered[0], episode.offered[-1])
    assert (episode.offered[0, :, :2] == 1.0).all()
    assert {tuple(row) for row in episode.offered[0, :, 2:]} == {
        (a, b, c) for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)
    }


@pytest.mark.parametrize("vertices", ["residual", "all"])
def test_the_best_action_is_the_best_of_the_whole_cube(vertices):
    episodes = HypercubeEpisodes(invariant_dim=2, residual_dim=2, vertices=vertices)
    episode = episodes.draw(100, np.random.default_rng(1))
    assert episode.offered.shape[1] == (4 if vertices == "residual" else 16)
    # The maximum of a linear function over [−1, 1]^p is the 1-norm of its coefficients.
    np.testing.assert_allclose(
        episode.means.max(axis=1), np.abs(episode.coefficients).sum(axis=1)
    )


def test_residual_coefficients_are_plus_or_minus_one_over_the_root_of_the_horizon_uniformly_over_signs():
    episodes = HypercubeEpisodes(invariant_dim=1, residual_dim=2, logged=10)
    found = [
        episodes.draw(25, np.random.default_rng((2, seed))).coefficients
        for seed in range(800)
    ]
    signs = np.stack([path[0, 1:] * 5.0 for path in found])
    np.testing.assert_allclose(np.abs(signs), 1.0)
    assert all((path == path[0]).all() for path in found)
    for first in (-1, 1):
        for second in (-1, 1):
            assert within(
                (signs.round() == (first, second)).all(axis=1).sum(), 800, 0.25
            )


def test_the_logs_lie_in_the_cube_and_show_the_split():
    episode = HypercubeEpisodes().draw(100, np.random.default_rng(3))
    logs = episode.logs
    assert np.abs(logs.offered).max() <= 1.0
    np.testing.assert_array_equal(
        logs.features, logs.offered[np.arange(2000), logs.actions]
    )
    np.testing.assert_allclose(
        logs.coefficients @ logs.split.invariant, np.tile(logs.component[:3], (2000, 1))
    )
    fit = ib.InvariantSubspaceDecomposition().fit(episode.moments)
    assert fit.split_.invariant_dim == 3
    assert fit.split_.distance(logs.split) < 0.2


def test_every_policy_pays_at_least_the_lower_bound_on_average():
    makers = {
        "LinUCB": lambda episode: ib.LinUCB(episode.dim),
        "oracle": lambda episode: ib.ISDLinUCB(
            episode.logs.split, episode.logs.component
        ),
        "AutoISD": lambda episode: ib.AutoISD.from_history(episode.moments),
    }
    result = ib.simulate(
        makers, HypercubeEpisodes(), horizon=100, replications=60, seed=4
    )
    bound = regret_lower_bound(100, 3)
    for name in makers:
        regret = result.final(name)
        assert regret.mean() - 3 * regret.std() / np.sqrt(60) > bound, name


BAD = {
    "residual_dim": (
        "residual_dim must be a whole number of at least 1, got 0",
        {"residual_dim": 0},
    ),
    "invariant_dim": (
        "invariant_dim must be a whole number of at least 0, got -1",
        {"invariant_dim": -1},
    ),
    "vertices": (
        "vertices must be one of 'residual', 'all', got 'some'",
        {"vertices": "some"},
    ),
    "too many": (
        r"vertices='all' would offer 2\^13 actions",
        {"invariant_dim": 10, "vertices": "all"},
    ),
}


@pytest.mark.parametrize(("message", "settings"), BAD.values(), ids=BAD.keys())
def test_bad_settings_are_named(message, settings):
    with pytest.raises(ib.InputError, match=message):
        HypercubeEpisodes(**settings)
