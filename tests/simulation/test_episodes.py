"""The online phase after the paper's logs: what moves, how, and what does not."""

import numpy as np
import pytest

from invariant_bandits import InputError
from invariant_bandits.simulation import paper as online_paths
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from worlds import within


def residual_paths(**settings):
    episode = PaperEpisodes(**settings).draw(60, np.random.default_rng(4))
    return episode, episode.coefficients @ episode.logs.split.residual


def test_the_rotation_starts_even_keeps_length_one_and_follows_its_formula():
    _, path = residual_paths(
        world=PaperWorld(blocks=(8, 2), varying=1), logged=500, online="rotating"
    )
    np.testing.assert_allclose(path[0], np.full(2, np.sqrt(0.5)))
    np.testing.assert_allclose(np.linalg.norm(path, axis=1), 1.0)
    j, t = np.array([1, 2]), 41
    step = path[t - 1] - 0.5 * (t / 2000) * np.sin(50 * j * t / 2000 + j) ** 2
    np.testing.assert_allclose(path[t], step / np.linalg.norm(step))
    assert np.abs(path[-1] - path[0]).max() > 0.05


@pytest.mark.parametrize("drift", [0.2, 1.0])
def test_online_the_residual_coordinates_move_the_part_of_the_way_that_the_drift_says(
    drift,
):
    full, target = residual_paths(world=PaperWorld(drift=1.0), logged=500)
    episode, path = residual_paths(world=PaperWorld(drift=drift), logged=500)
    before = episode.logs.coefficients[0] @ episode.logs.split.residual
    np.testing.assert_allclose(
        path,
        np.broadcast_to(before + drift * (target[0] - before), path.shape),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        full.coefficients @ full.logs.split.invariant,
        np.tile(full.logs.component @ full.logs.split.invariant, (60, 1)),
    )


def test_the_same_seed_gives_the_same_episode_whatever_moves():
    for online in ("constant", "rotating", "abrupt", "recurring"):
        episodes = PaperEpisodes(
            logged=200, online=online, violation=0.3, breach="creep"
        )
        one, same, other = (
            episodes.draw(50, np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        for name in ("offered", "coefficients", "noise", "means"):
            np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
            assert np.abs(getattr(one, name) - getattr(other, name)).max() > 1e-3


def test_a_jump_is_there_from_the_first_round_and_has_the_stated_length():
    episode, path = residual_paths(logged=500, violation=0.7)
    moved = episode.coefficients - episode.logs.component
    invariant = moved @ episode.logs.split.invariant
    np.testing.assert_allclose(np.linalg.norm(invariant, axis=1), 0.7)
    np.testing.assert_allclose(invariant, np.tile(invariant[0], (60, 1)), atol=1e-12)
    np.testing.assert_allclose(path, np.tile(path[0], (60, 1)), atol=1e-12)


def test_creeping_goes_straight_from_nothing_to_where_the_jump_lands():
    (jump, _), (creep, path) = (
        residual_paths(logged=500, violation=0.7, breach=breach)
        for breach in ("jump", "creep")
    )
    target = jump.coefficients[0] @ jump.logs.split.invariant
    start = creep.logs.component @ creep.logs.split.invariant
    expected = start + np.linspace(0.0, 1.0, 60)[:, None] * (target - start)
    np.testing.assert_allclose(
        creep.coefficients @ creep.logs.split.invariant, expected, atol=1e-12
    )
    np.testing.assert_allclose(path, np.tile(path[0], (60, 1)), atol=1e-12)


def test_abrupt_changes_happen_at_the_given_rounds_and_nowhere_else_and_leave_the_invariant_part_alone():
    episode, path = residual_paths(logged=500, online="abrupt", changes=(7, 20, 59))
    moved = np.flatnonzero(np.abs(np.diff(path, axis=0)).max(axis=1) > 1e-9) + 1
    np.testing.assert_array_equal(moved, [7, 20, 59])
    assert ((path > 0.5 - 1e-9) & (path < 1.5 + 1e-9)).all()
    assert len(np.unique(path[[0, 7, 20, 59]].round(9))) == 12
    np.testing.assert_allclose(
        episode.coefficients @ episode.logs.split.invariant,
        np.tile(episode.logs.component @ episode.logs.split.invariant, (60, 1)),
        atol=1e-12,
    )


def test_random_change_points_are_different_rounds_after_the_first_spread_evenly():
    points = np.stack(
        [
            online_paths.change_points(4, 41, np.random.default_rng((2, seed)))
            for seed in range(500)
        ]
    )
    assert (np.diff(points, axis=1) > 0).all()
    assert points.min() >= 1
    assert points.max() <= 40
    assert within((points <= 20).sum(), 2000, 0.5)


def test_recurring_states_are_states_of_the_logs_and_come_back_in_turn():
    episode, path = residual_paths(
        logged=600, online="recurring", states=3, changes=(10, 20, 30, 40)
    )
    logged = episode.logs.coefficients[[100, 300, 500]] @ episode.logs.split.residual
    for start, state in ((0, 0), (10, 1), (20, 2), (30, 0), (40, 1)):
        stretch = path[start : start + 10]
        np.testing.assert_allclose(
            stretch, np.tile(logged[state], (len(stretch), 1)), atol=1e-12
        )
    assert np.abs(logged[0] - logged[2]).max() > 0.3


def test_fixed_actions_are_the_same_in_every_round_and_of_length_one_if_asked():
    free, unit = (
        PaperEpisodes(logged=100, fixed_actions=7, unit_actions=value)
        for value in (False, True)
    )
    one, other = (
        episodes.draw(30, np.random.default_rng(5)).offered for episodes in (free, unit)
    )
    for offered in (one, other):
        assert offered.shape == (30, 7, 10)
        np.testing.assert_array_equal(
            offered, np.broadcast_to(offered[0], offered.shape)
        )
    np.testing.assert_allclose(
        other[0], one[0] / np.linalg.norm(one[0], axis=1, keepdims=True)
    )


def test_online_noise_has_the_tails_of_the_world():
    episodes = PaperEpisodes(
        PaperWorld(noise="t", noise_freedom=5.0, noise_scale=2.0), logged=10
    )
    noise = episodes.draw(100_000, np.random.default_rng(6)).noise
    assert within((np.abs(noise) > 8.0).sum(), 100_000, 0.003573)


BAD = {
    "online": ("online must be one of", {"online": "sideways"}),
    "breach": ("breach must be one of 'jump', 'creep'", {"breach": "leap"}),
    "logged": ("logged must be a whole number of at least 1, got 0", {"logged": 0}),
    "states": ("states must be a whole number of at least 2, got 1", {"states": 1}),
    "changes": (
        "changes must be a whole number of at least 0, got -1",
        {"changes": -1},
    ),
    "the first round": (
        "changes must be a whole number of at least 1, got 0",
        {"changes": (0, 5)},
    ),
    "order": (r"changes must increase, got \(5, 5\)", {"changes": (5, 5)}),
    "unit actions": ("unit_actions needs fixed_actions", {"unit_actions": True}),
}


@pytest.mark.parametrize(("message", "settings"), BAD.values(), ids=BAD.keys())
def test_bad_settings_are_named(message, settings):
    with pytest.raises(InputError, match=message):
        PaperEpisodes(**settings)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("must lie below the horizon 60, got 60", (3, 60)),
        ("must be fewer than the 60 online rounds, got 60", 60),
    ],
)
def test_changes_must_fit_into_the_horizon(message, changes):
    with pytest.raises(InputError, match=message):
        residual_paths(logged=100, online="abrupt", changes=changes)
