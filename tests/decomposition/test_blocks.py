"""Blocks: planted ones are recovered, refinement pays, and the tests keep their level."""

import numpy as np
import pytest
from scipy import stats

from invariant_bandits import joint_diagonalize
from invariant_bandits.decomposition import joint_diagonalization as blocks_module
from invariant_bandits.decomposition import kernels
from invariant_bandits.decomposition.joint_diagonalization import (
    ConvergenceWarning,
    find_blocks,
    floored,
    merge_dependent,
    refine,
)
from invariant_bandits.moments.power_sums import power_sums_of_rows
from invariant_bandits.simulation.paper import PaperWorld
from worlds import random_basis, random_spd, within

SIZES = (3, 2, 1)
PARTS = [slice(0, 3), slice(3, 5), slice(5, 6)]


def planted_covariances(rng, windows=6):
    """A basis (6, 6) and covariances (m, 6, 6) with well-conditioned blocks of sizes 3, 2, 1 in it."""
    basis = random_basis(6, rng)
    inner = np.zeros((windows, 6, 6))
    for window in range(windows):
        for part in PARTS:
            inner[window, part, part] = rng.uniform(0.3, 3.0) * random_spd(
                part.stop - part.start, rng
            )
    return basis, basis @ inner @ basis.T


def sampled(rng, covariances, rounds):
    """Sample covariances (m, p, p) of Gaussian rows."""
    roots = np.linalg.cholesky(covariances)
    return np.stack(
        [
            np.cov(root @ rng.standard_normal((len(root), rounds)), bias=True)
            for root in roots
        ]
    )


def linked_columns(stack, sizes, alpha):
    """Blocks by the tests of single columns, at a level that all pairs share."""
    p = stack.shape[1]
    return merge_dependent(
        stack, sizes, np.split(np.arange(p), p), alpha / (p * (p - 1) / 2)
    )


def subspace_error(found, truth):
    return float(np.linalg.norm(found @ found.T - truth @ truth.T, ord=2))


def total_dependence(stack, sizes, blocks):
    return sum(
        kernels.dependence(stack, sizes, a, b)
        for k, a in enumerate(blocks)
        for b in blocks[:k]
    )


def assert_blocks_found(structure, basis, tolerance):
    assert sorted(len(block) for block in structure.blocks) == sorted(SIZES)
    for block in structure.blocks:
        truth = basis[:, PARTS[SIZES.index(len(block))]]
        assert subspace_error(structure.basis[:, block], truth) < tolerance


def test_exact_covariances_give_the_planted_blocks_exactly():
    for seed in range(10):
        basis, covariances = planted_covariances(np.random.default_rng(seed))
        found = find_blocks(covariances, np.full(6, 1e6))
        assert found.converged
        np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(6), atol=1e-10)
        assert_blocks_found(found, basis, 1e-6)


def test_sampled_covariances_give_the_planted_blocks_up_to_sampling_error():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        basis, covariances = planted_covariances(rng)
        assert_blocks_found(
            find_blocks(sampled(rng, covariances, 5000), np.full(6, 5000.0)),
            basis,
            0.15,
        )


def test_every_column_belongs_to_exactly_one_block():
    rng = np.random.default_rng(1)
    stack = np.stack([random_spd(7, rng) for _ in range(4)])
    for rounds in (1.0, 50.0, 1e6):
        found = find_blocks(stack, np.full(4, rounds))
        np.testing.assert_array_equal(
            np.sort(np.concatenate(found.blocks)), np.arange(7)
        )


def test_one_feature_is_one_block():
    found = find_blocks(np.array([[[1.0]], [[2.0]]]), np.array([10.0, 10.0]))
    assert [list(block) for block in found.blocks] == [[0]]


def refined_and_not(seed, rounds=1000):
    """Errors of the three planted subspaces, and dependence, before and after refinement of the right
    grouping.
    """
    rng = np.random.default_rng(seed)
    basis = random_basis(6, rng)
    roots = np.zeros((6, 6, 6))
    for window in range(6):
        for part in PARTS:
            roots[window, part, part] = rng.uniform(
                size=(part.stop - part.start,) * 2
            )  # the paper's blocks
    covariances = floored(sampled_by_roots(rng, basis @ roots, rounds))
    sizes = np.full(6, float(rounds))
    rough = joint_diagonalize(covariances, sizes)
    weight = np.stack(
        [((rough.basis.T @ basis[:, part]) ** 2).sum(axis=1) for part in PARTS]
    )
    blocks = [np.flatnonzero(weight.argmax(axis=0) == k) for k in range(3)]
    assert [len(block) for block in blocks] == list(SIZES)

    turned, stack = rough.basis.copy(), rough.stack.copy()
    assert refine(stack, turned, sizes, blocks) == kernels.CONVERGED
    np.testing.assert_allclose(stack, turned.T @ covariances @ turned, atol=1e-10)
    errors = [
        max(
            subspace_error(columns[:, block], basis[:, part])
            for block, part in zip(blocks, PARTS, strict=True)
        )
        for columns in (rough.basis, turned)
    ]
    dependences = [
        total_dependence(matrices, sizes, blocks) for matrices in (rough.stack, stack)
    ]
    return errors, dependences


def sampled_by_roots(rng, roots, rounds):
    return np.stack(
        [
            np.cov(root @ rng.standard_normal((root.shape[1], rounds)), bias=True)
            for root in roots
        ]
    )


def test_refinement_always_lowers_the_criterion_and_nearly_always_the_error():
    results = [refined_and_not(seed) for seed in range(20)]
    errors, dependences = (
        np.array([result[part] for result in results]) for part in (0, 1)
    )
    assert (dependences[:, 1] < dependences[:, 0]).all()
    assert (errors[:, 1] < errors[:, 0]).sum() >= 15
    assert np.median(errors[:, 0] / errors[:, 1]) > 1.3
    assert errors[:, 1].mean() < 0.75 * errors[:, 0].mean()


def test_found_blocks_are_already_refined():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        _, covariances = planted_covariances(rng)
        covariances, sizes = sampled(rng, covariances, 3000), np.full(6, 3000.0)
        found = find_blocks(covariances, sizes)
        stack, basis = (
            np.ascontiguousarray(found.basis.T @ covariances @ found.basis),
            found.basis.copy(),
        )
        rough = joint_diagonalize(covariances, sizes)
        refine(stack, basis, sizes, found.blocks)
        np.testing.assert_allclose(basis, found.basis, atol=1e-4)
        assert total_dependence(stack, sizes, found.blocks) < total_dependence(
            rough.stack, sizes, found.blocks
        )


def test_two_blocks_are_refined_and_merged_as_more_are():
    rng = np.random.default_rng(7)
    for _ in range(5):
        basis = random_basis(5, rng)
        inner = np.zeros((6, 5, 5))
        for window in range(6):
            for part in (slice(0, 3), slice(3, 5)):
                inner[window, part, part] = rng.uniform(0.3, 3.0) * random_spd(
                    part.stop - part.start, rng
                )
        covariances = basis @ inner @ basis.T
        covariances = sampled(rng, covariances, 5000)
        found = find_blocks(covariances, np.full(6, 5000.0))
        assert sorted(len(block) for block in found.blocks) == [2, 3]
        stack, turned = (
            np.ascontiguousarray(found.basis.T @ covariances @ found.basis),
            found.basis.copy(),
        )
        before = total_dependence(stack, np.full(6, 5000.0), found.blocks)
        refine(stack, turned, np.full(6, 5000.0), found.blocks)
        assert total_dependence(
            stack, np.full(6, 5000.0), found.blocks
        ) == pytest.approx(before, abs=1e-6)


def test_refinement_finds_the_stationary_point_of_its_criterion():
    rng = np.random.default_rng(2)
    _, covariances = planted_covariances(rng)
    stack, basis, sizes = sampled(rng, covariances, 300), np.eye(6), np.full(6, 300.0)
    blocks = [np.array([0, 1, 2]), np.array([3, 4, 5])]
    refine(stack, basis, sizes, blocks)
    best = total_dependence(stack, sizes, blocks)
    for a in range(3):
        for b in range(3, 6):
            for angle in (-0.01, 0.01):
                turn = np.eye(6)
                turn[[a, b], [a, b]] = np.cos(angle)
                turn[a, b], turn[b, a] = np.sin(angle), -np.sin(angle)
                moved = np.ascontiguousarray(turn.T @ stack @ turn)
                assert total_dependence(moved, sizes, blocks) > best


def test_the_dependence_is_the_likelihood_ratio_of_the_groups():
    rng = np.random.default_rng(3)
    stack, sizes = (
        np.stack([random_spd(5, rng) for _ in range(3)]),
        np.array([10.0, 20.0, 30.0]),
    )
    a, b = np.array([0, 3]), np.array([1, 2, 4])
    logdet = [np.linalg.slogdet(stack[:, group[:, None], group])[1] for group in (a, b)]
    direct = sizes @ (logdet[0] + logdet[1] - np.linalg.slogdet(stack)[1])
    assert kernels.dependence(stack, sizes, a, b) == pytest.approx(direct, rel=1e-12)


def test_blocks_that_depend_only_jointly_are_merged():
    """Many pairwise correlations, each too weak for its own test, add up between two groups of columns."""
    groups = [np.arange(4), np.arange(4, 8)]
    stack = np.tile(np.eye(8), (6, 1, 1))
    stack[:, :4, 4:] = stack[:, 4:, :4] = 0.09
    sizes = np.full(6, 250.0)
    assert len(linked_columns(stack, sizes, 0.01)) == 8
    assert len(merge_dependent(stack, sizes, groups, 0.01)) == 1
    assert len(merge_dependent(np.tile(np.eye(8), (6, 1, 1)), sizes, groups, 0.01)) == 2


@pytest.mark.parametrize(("first", "second"), [(4, 4), (1, 2)])
def test_blocks_are_merged_exactly_where_their_dependence_exceeds_its_quantile(
    first, second
):
    """The statistic grows with the number of rows: a hundredth more or less than the quantile needs
    decides.
    """
    m, p = 6, first + second
    rng = np.random.default_rng(5)
    stack = np.stack([np.eye(p) + 0.02 * random_spd(p, rng) for _ in range(m)])
    groups = [np.arange(first), np.arange(first, p)]
    limit = stats.chi2.isf(0.01, (m - 1) * first * second)
    needed = limit / kernels.dependence(stack, np.ones(m), *groups)
    assert len(merge_dependent(stack, np.full(m, 1.01 * needed), groups, 0.01)) == 1
    assert len(merge_dependent(stack, np.full(m, 0.99 * needed), groups, 0.01)) == 2


def false_link_count(runs, draw, *, alpha, tails):
    """How often two uncorrelated columns are linked after joint diagonalisation: 6 windows of 400 rows."""
    linked = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        basis = random_basis(2, rng)
        windows = [
            power_sums_of_rows(
                (draw(rng, 400) * rng.uniform(0.5, 2.0, 2) * [1.0, 3.0]) @ basis.T, None
            )
            for _ in range(6)
        ]
        covariances = np.concatenate([window.covariance() for window in windows])
        sizes = np.array(
            [
                400.0 / (max(1.0, window.tail_weight(2)[0]) if tails else 1.0)
                for window in windows
            ]
        )
        linked += (
            len(
                linked_columns(
                    joint_diagonalize(covariances, sizes).stack, sizes, alpha
                )
            )
            == 1
        )
    return linked


def gaussian(rng, rounds):
    return rng.standard_normal((rounds, 2))


def student(rng, rounds):
    """Bivariate t with 5 degrees of freedom: kurtosis 9, three times the Gaussian one."""
    return rng.standard_normal((rounds, 2)) * np.sqrt(
        3.0 / rng.chisquare(5, size=(rounds, 1))
    )


def test_uncorrelated_columns_are_linked_as_often_as_the_level_says():
    # Binomial(1000, 0.1), four standard deviations: fails with probability below 1e-3 for fresh seeds.
    assert within(false_link_count(1000, gaussian, alpha=0.1, tails=False), 1000, 0.1)


def test_the_tail_correction_repairs_the_level_under_heavy_tails():
    # Rates near 0.55 and 0.14 have standard errors near 0.03: each margin below is more than four of them.
    plain = false_link_count(300, student, alpha=0.1, tails=False) / 300
    corrected = false_link_count(300, student, alpha=0.1, tails=True) / 300
    assert plain > 0.4
    assert corrected < 0.25
    assert plain > 2 * corrected


def test_the_floor_adds_a_twentieth_of_the_mean():
    stack = np.stack([np.eye(2), 3.0 * np.eye(2)])
    np.testing.assert_allclose(
        floored(stack), np.stack([1.1 * np.eye(2), 3.1 * np.eye(2)])
    )


@pytest.mark.filterwarnings(
    "ignore::invariant_bandits.decomposition.joint_diagonalization.ConvergenceWarning"
)
def test_the_floor_keeps_blocks_whole_when_windows_straddle_regimes():
    """3500 rounds in eight windows: half a round of another, nearly singular regime cuts blocks; the floor
    mends them.

    Right in 60 and 33 of 60 other seeds: of 20, fewer than 19 or more than 16 have probability below 0.05 and
    0.01.
    """
    right = {"floored": 0, "plain": 0}
    for seed in range(100, 120):
        log = PaperWorld(regimes=8).log(3500, np.random.default_rng(seed))
        parts = np.array_split(log.offered.reshape(-1, 10), 8)
        covariances = np.stack([np.cov(part.T, bias=True) for part in parts])
        sizes = np.array([float(len(part)) for part in parts])
        for name, stack in (("floored", floored(covariances)), ("plain", covariances)):
            found = find_blocks(stack, sizes)
            right[name] += sorted(len(block) for block in found.blocks) == [1, 2, 3, 4]
    assert right["floored"] >= 19
    assert right["plain"] <= 16


def test_a_refinement_that_has_not_converged_is_said():
    rng = np.random.default_rng(4)
    _, covariances = planted_covariances(rng)
    stack = sampled(rng, covariances, 100)
    blocks = [np.array([0, 1, 2]), np.array([3, 4, 5])]
    with pytest.warns(
        ConvergenceWarning,
        match="refinement of the blocks has not converged after 1 sweeps",
    ):
        assert (
            refine(stack, np.eye(6), np.full(6, 100.0), blocks, max_sweeps=1)
            == kernels.STALLED
        )


def test_blocks_have_converged_only_if_every_search_for_them_has(monkeypatch):
    rng = np.random.default_rng(6)
    _, covariances = planted_covariances(rng)
    covariances, sizes = sampled(rng, covariances, 5000), np.full(6, 5000.0)
    assert find_blocks(covariances, sizes).converged

    def rough(*arguments, **options):
        return joint_diagonalize(*arguments, **options)._replace(converged=False)

    with monkeypatch.context() as patched:
        patched.setattr(blocks_module, "joint_diagonalize", rough)
        assert not find_blocks(covariances, sizes).converged
    with monkeypatch.context() as patched:
        patched.setattr(blocks_module, "refine", lambda *arguments: kernels.STALLED)
        assert not find_blocks(covariances, sizes).converged


@pytest.mark.parametrize("p", [10, 50])
def test_windows_that_are_alike_end_the_search_after_a_few_sweeps(p):
    """Nothing identifies a basis there: angles never become small, but the likelihood gains next to nothing."""
    rng = np.random.default_rng(p)
    alike = np.stack(
        [np.cov(rng.standard_normal((p, 1000)), bias=True) for _ in range(8)]
    )
    sizes = np.full(8, 1000.0)
    diagonal = joint_diagonalize(floored(alike), sizes, tolerance=1e-4, max_sweeps=50)
    assert diagonal.converged
    columns = [np.array([column]) for column in range(p)]
    stack, basis = np.ascontiguousarray(diagonal.stack), diagonal.basis.copy()
    assert refine(stack, basis, sizes, columns, max_sweeps=3) == kernels.INDISTINCT
    found = find_blocks(floored(alike), sizes)
    assert found.converged
    assert not found.distinct


def test_windows_that_differ_are_refined_to_the_end_and_said_to_distinguish_the_blocks():
    rng = np.random.default_rng(6)
    _, covariances = planted_covariances(rng)
    found = find_blocks(sampled(rng, covariances, 5000), np.full(6, 5000.0))
    assert found.converged
    assert found.distinct
