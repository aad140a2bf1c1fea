"""Invariance: refinement finds the joint optimum, and the selection follows the tests of constancy."""

import numpy as np
import pytest

from invariant_bandits import Split
from invariant_bandits.decomposition import kernels
from invariant_bandits.decomposition.joint_diagonalization import find_blocks, floored
from invariant_bandits.decomposition.paths import window_paths
from invariant_bandits.decomposition.split import refine_split, select_invariant
from worlds import drawn_paths, piecewise_world, random_basis, slight_turn

M = 6

# -- refinement of the split --


def joint_criterion(split, paths, covariances, sizes):
    """J(V): covariance part plus weighted squares of the deviations of the invariant coordinates, written
    out.
    """
    W, V = split
    value = sizes @ (
        np.linalg.slogdet(W.T @ covariances @ W)[1]
        + np.linalg.slogdet(V.T @ covariances @ V)[1]
    )
    inside = paths.along(W)
    mean, _ = inside.weighted_mean()
    for coefficients, covariance in zip(
        inside.coefficients, inside.covariances, strict=True
    ):
        value += (coefficients - mean) @ np.linalg.solve(
            covariance, coefficients - mean
        )
    return float(value)


def test_refining_a_disturbed_split_lowers_the_joint_criterion_and_the_error():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        world = piecewise_world(rng, rounds=500)
        paths, *_ = window_paths(world.moments)
        covariances = floored(world.moments.chosen.covariance()[:, :5, :5])
        sizes = world.moments.counts
        turn = slight_turn(5, rng)
        disturbed = np.hsplit(turn @ world.split.basis, [3])
        stay, moved = refine_split(
            [disturbed[0]], [disturbed[1]], paths, covariances, sizes
        )
        refined = (np.hstack(stay), np.hstack(moved))
        assert joint_criterion(refined, paths, covariances, sizes) < joint_criterion(
            disturbed, paths, covariances, sizes
        )
        assert Split(*refined).distance(world.split) < 0.5 * Split(*disturbed).distance(
            world.split
        )


def refined_value(split, paths, covariances, sizes):
    """The joint criterion after refinement, which no small rotation of the refined split lowers."""
    stay, moved = refine_split([split[0]], [split[1]], paths, covariances, sizes)
    W, V = stay[0], moved[0]
    value = joint_criterion((W, V), paths, covariances, sizes)
    for a, b in np.ndindex(W.shape[1], V.shape[1]):
        for angle in (-0.01, 0.01):
            turned = W.copy(), V.copy()
            turned[0][:, a] = np.cos(angle) * W[:, a] + np.sin(angle) * V[:, b]
            turned[1][:, b] = np.cos(angle) * V[:, b] - np.sin(angle) * W[:, a]
            assert joint_criterion(turned, paths, covariances, sizes) > value
    return value


def far_start(seed, **settings):
    """A world, what refinement is given of it, and a split at a distance of up to 0.9 from the truth."""
    rng = np.random.default_rng(seed)
    world = piecewise_world(rng, **settings)
    moments = world.moments
    given = (
        window_paths(moments)[0],
        floored(moments.chosen.covariance()[:, :5, :5]),
        moments.counts,
    )
    return world, given, np.hsplit(slight_turn(5, rng, 0.3) @ world.split.basis, [3])


def test_a_split_that_is_far_off_is_refined_to_the_optimum_that_the_truth_leads_to():
    for seed in range(10):
        world, given, far = far_start(seed, rounds=500)
        near = refined_value((world.split.invariant, world.split.residual), *given)
        assert refined_value(far, *given) == pytest.approx(near, abs=0.01)


def test_a_step_that_is_too_long_is_halved_until_it_pays(monkeypatch):
    """Ten times the right step overshoots; halved, it still leads down to the same optimum."""
    world, given, _ = far_start(0, rounds=500)
    truth = world.split.invariant, world.split.residual
    best = refined_value(truth, *given)
    plain = kernels.solve_rotation
    monkeypatch.setattr(
        kernels, "solve_rotation", lambda *system: 10.0 * plain(*system)
    )
    stay, moved = refine_split([truth[0]], [truth[1]], *given)
    assert joint_criterion((stay[0], moved[0]), *given) - best < 0.1 * (
        joint_criterion(truth, *given) - best
    )


def test_evidence_of_change_sharpens_a_split_that_covariances_alone_cannot_see():
    """Equal covariances in all windows say nothing about the basis; moving coefficients do.

    A path of length ℓ measured with covariances of at most 2·0.02² leaves an error of at most 0.028/ℓ times
    the root of a χ²(3) variable, which exceeds 4.6 with probability 1e-4.
    """
    for seed in range(10):
        rng = np.random.default_rng(seed)
        basis = random_basis(4, rng)
        truth = Split(*np.hsplit(basis, [3]))
        path = rng.standard_normal((M, 1))
        centres = truth.invariant @ [1.0, 1.0, 1.0] + path @ truth.residual.T
        paths = drawn_paths(rng, centres, scale=0.02)
        turn = slight_turn(4, rng)
        start = np.hsplit(turn @ basis, [3])
        stay, moved = refine_split(
            [start[0]],
            [start[1]],
            paths,
            np.tile(np.eye(4), (M, 1, 1)),
            np.full(M, 100.0),
        )
        refined = Split(stay[0], moved[0])
        assert refined.distance(truth) < 4.6 * 0.02 * np.sqrt(2.0) / np.linalg.norm(
            path - path.mean()
        )
        assert refined.distance(truth) < 0.5 * Split(*start).distance(truth)


# -- the selection --


def selection(world, **options):
    moments = world.moments
    p = moments.dim
    paths, *_ = window_paths(moments)
    covariances = floored(moments.chosen.covariance()[:, :p, :p])
    found = find_blocks(covariances, moments.counts)
    blocks = [found.basis[:, columns] for columns in found.blocks]
    return select_invariant(blocks, paths, covariances, moments.counts, **options)


def side(result, varies, p=5):
    parts = [
        block
        for block, moves in zip(result.blocks, result.varies, strict=True)
        if moves == varies
    ]
    return np.hstack(parts) if parts else np.zeros((p, 0))


def test_the_planted_split_is_selected():
    right = 0
    for seed in range(20):
        world = piecewise_world(np.random.default_rng(seed), rounds=600)
        result = selection(world)
        found = side(result, False), side(result, True)
        if found[1].shape[1] == 2:
            right += np.linalg.norm(found[0].T @ world.split.residual, ord=2) < 0.15
    assert right >= 19


@pytest.mark.parametrize("residual_dim", [0, 5])
def test_everything_or_nothing_may_be_invariant(residual_dim):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        world = piecewise_world(
            rng, invariant_dim=5 - residual_dim, residual_dim=residual_dim, rounds=600
        )
        assert side(selection(world), True).shape[1] == residual_dim


@pytest.mark.parametrize("invariant_dim", range(6))
def test_a_fixed_invariant_dimension_is_met_exactly(invariant_dim):
    for seed in range(5):
        world = piecewise_world(np.random.default_rng(seed), rounds=200)
        result = selection(world, invariant_dim=invariant_dim)
        joint = np.hstack([side(result, False), side(result, True)])
        assert side(result, False).shape == (5, invariant_dim)
        np.testing.assert_allclose(joint.T @ joint, np.eye(5), atol=1e-8)


def test_a_block_that_must_be_divided_gives_up_the_direction_that_moves():
    rng = np.random.default_rng(0)
    moving = random_basis(3, rng)[:, :1]
    paths = drawn_paths(
        rng, np.ones((20, 3)) + rng.standard_normal((20, 1)) @ moving.T, scale=0.02
    )
    unit = np.tile(np.eye(3), (20, 1, 1))
    result = select_invariant(
        [np.eye(3)], paths, unit, np.full(20, 100.0), invariant_dim=2, refine=False
    )
    assert side(result, True, 3).shape == (3, 1)
    assert abs(float(side(result, True, 3)[:, 0] @ moving[:, 0])) > 0.999


def test_every_remaining_block_is_insignificant_and_every_moved_one_was_not():
    world = piecewise_world(np.random.default_rng(1), rounds=400)
    result = selection(world, alpha=0.05)
    limit = 0.05 / len(result.blocks)
    for varies, test in zip(result.varies, result.tests, strict=True):
        assert (test.log_p <= np.log(limit)) == varies


def test_all_blocks_together_keep_the_level():
    # At most 20 % of 300 constant worlds move any of five blocks; four sd more have probability below 1e-3.
    blocks, unit = (
        [np.eye(5)[:, [column]] for column in range(5)],
        np.tile(np.eye(5), (M, 1, 1)),
    )
    moved = 0
    for seed in range(300):
        paths = drawn_paths(np.random.default_rng(seed), np.zeros((M, 5)))
        moved += any(
            select_invariant(
                blocks, paths, unit, np.full(M, 100.0), alpha=0.2, refine=False
            ).varies
        )
    assert moved <= 300 * 0.2 + 4 * np.sqrt(300 * 0.2 * 0.8)


def test_a_stricter_level_never_calls_more_directions_varying():
    for seed in range(10):
        world = piecewise_world(np.random.default_rng(seed), rounds=100, drift=0.15)
        moved = [
            side(selection(world, alpha=alpha), True).shape[1]
            for alpha in (1e-8, 1e-3, 0.1)
        ]
        assert moved == sorted(moved)
