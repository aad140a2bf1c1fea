"""A million rounds, outliers and near-collinear features leave the state where a fresh computation puts
it.
"""

import numpy as np
import pytest
from numba import njit

import invariant_bandits as ib
from invariant_bandits.policies import kernels

learn_growing, learn_discounted = kernels.learn_growing, kernels.learn_discounted
learn_windowed = kernels.learn_windowed
MILLION = 1_000_000


@njit
def feed_growing(rows, rewards, lift, factor, ridge):
    refused = 0
    for t in range(len(rows)):
        refused += learn_growing(rows[t], rewards[t], lift, factor, ridge) < 0.0
    return refused


@njit
def feed_discounted(rows, rewards, lift, factor, sums, gamma, ridge):
    for t in range(len(rows)):
        learn_discounted(rows[t], rewards[t], lift, factor, sums, gamma, ridge)


@njit
def feed_windowed(rows, rewards, lift, factor, sums, ring, clock, ridge):
    for t in range(len(rows)):
        learn_windowed(rows[t], rewards[t], lift, factor, sums, ring, clock, ridge)


def solve_exactly(gram, right):
    """gram⁻¹ right by Cholesky in extended precision."""
    gram, right = gram.astype(np.longdouble), right.astype(np.longdouble)
    q = len(gram)
    L = np.zeros_like(gram)
    for i in range(q):
        for j in range(i + 1):
            rest = gram[i, j] - L[i, :j] @ L[j, :j]
            L[i, j] = np.sqrt(rest) if i == j else rest / L[j, j]
    for i in range(q):
        right[i] = (right[i] - L[i, :i] @ right[:i]) / L[i, i]
    for i in reversed(range(q)):
        right[i] = (right[i] - L[i + 1 :, i] @ right[i + 1 :]) / L[i, i]
    return right


def assert_close_to_exact(factor, gram, cross, tolerance=1e-9):
    """Estimate and norms of [R | w] against gram and cross in extended precision."""
    q = len(gram)
    R, w = np.triu(factor[:q, :q]), factor[:q, q]
    estimate = solve_exactly(gram, cross)
    assert (
        np.abs(np.linalg.solve(R, w) - estimate).max()
        <= tolerance * np.abs(estimate).max()
    )
    for direction in (*np.eye(q), np.ones(q)):
        norm = np.sqrt(direction @ solve_exactly(gram, direction))
        assert (
            abs(np.linalg.norm(np.linalg.solve(R.T, direction)) - norm)
            <= tolerance * norm
        )


@pytest.mark.parametrize(
    "spread", [1.0, 1e-3], ids=["well-conditioned", "near-collinear"]
)
def test_a_million_rounds_leave_no_error_that_matters(spread):
    q, ridge = 5, 0.1
    rng = np.random.default_rng(0)
    factor = np.zeros((q, q + 1))
    factor[:, :q] = np.sqrt(ridge) * np.eye(q)
    gram, cross = (
        ridge * np.eye(q, dtype=np.longdouble),
        np.zeros(q, dtype=np.longdouble),
    )
    truth = rng.normal(size=q)
    for _ in range(10):
        rows = rng.normal(size=(MILLION // 10, 1)) + spread * rng.normal(
            size=(MILLION // 10, q)
        )
        rewards = rows @ truth + rng.normal(size=len(rows))
        assert not feed_growing(rows, rewards, np.zeros((q, 0)), factor, ridge)
        wide = rows.astype(np.longdouble)
        gram += wide.T @ wide
        cross += wide.T @ rewards.astype(np.longdouble)
    assert_close_to_exact(factor, gram, cross)


def discounted_sums(rows, weights, rewards, ridge):
    """λI + Σwzzᵀ and Σwzr in extended precision."""
    weighted = rows.astype(np.longdouble) * weights.astype(np.longdouble)[:, None]
    gram = weighted.T @ rows.astype(np.longdouble) + ridge * np.eye(
        rows.shape[1], dtype=np.longdouble
    )
    return gram, weighted.T @ rewards.astype(np.longdouble)


def assert_discounted_as_exactly(memory, rows, rewards, tolerance=1e-9):
    """Both matrices of a discounted memory, and the norms that widths are made of, from all its rounds."""
    q, gamma, ridge = memory.dim, memory.discount, memory.ridge
    weights = gamma ** np.arange(len(rows) - 1, -1, -1, dtype=np.longdouble)
    gram, cross = discounted_sums(rows, weights, rewards, ridge)
    second, _ = discounted_sums(rows, weights**2, rewards, ridge)
    assert_close_to_exact(memory.factor, gram, cross, tolerance)
    parts = np.empty((3, q + 1))
    actions = np.vstack([np.eye(q), np.ones(q)])
    assert kernels.score(actions, np.zeros((q, 0)), memory.factor, 0, parts) == 0
    for action, square in zip(actions, parts[1], strict=True):
        solved = solve_exactly(gram, action)
        exact = solved @ second @ solved
        assert abs(square - exact) <= tolerance * exact


def test_a_million_times_the_same_action_under_discounting_stays_finite_and_positive_definite():
    q, gamma, ridge = 4, 0.99, 0.1
    row, reward = np.array([1.0, -2.0, 0.5, 3.0]), 1.5
    memory = ib.Discount(gamma).begin(q, ridge)
    feed_discounted(
        np.tile(row, (MILLION, 1)),
        np.full(MILLION, reward),
        np.zeros((q, 0)),
        memory.factor,
        memory.sums,
        gamma,
        ridge,
    )
    assert np.isfinite(memory.factor).all()
    assert (np.diagonal(memory.factor[:q, :q]) >= np.sqrt(ridge)).all()
    assert_discounted_as_exactly(
        memory, np.tile(row, (10_000, 1)), np.full(10_000, reward)
    )


@pytest.mark.parametrize("dim", [1, 3, 4, 10, 33])
def test_a_million_discounted_rounds_leave_no_error_that_matters(dim):
    gamma, ridge, rounds = 0.999, 0.1, MILLION // dim
    rng = np.random.default_rng(5)
    rows, rewards = rng.normal(size=(rounds, dim)), rng.normal(size=rounds)
    memory = ib.Discount(gamma).begin(dim, ridge)
    feed_discounted(
        rows, rewards, np.zeros((dim, 0)), memory.factor, memory.sums, gamma, ridge
    )
    assert_discounted_as_exactly(memory, rows[-50_000:], rewards[-50_000:])


@pytest.mark.parametrize("position", [0, 7, 150])
def test_an_outlier_that_is_discounted_leaves_nothing_behind(position):
    rng = np.random.default_rng(6)
    rows, rewards = rng.normal(size=(600, 3)), rng.normal(size=600)
    rows[position] *= 1e6
    memory = ib.Discount(0.9).begin(3, 0.1)
    for t in range(600):
        memory.learn(rows[t], float(rewards[t]), np.zeros((3, 0)))
        assert (np.diagonal(memory.factor[:3, :3]) >= np.sqrt(0.1)).all()
        if t >= position + 300:
            assert_discounted_as_exactly(memory, rows[: t + 1], rewards[: t + 1])


def test_a_million_rounds_through_a_window_leave_exactly_its_rows():
    q, window, ridge = 4, 37, 0.1
    memory = ib.SWLinUCB(q, window=window, ridge=ridge).memory.begin(q, ridge)
    rng = np.random.default_rng(1)
    rows, rewards = rng.normal(size=(MILLION, q)), rng.normal(size=MILLION)
    state = memory.factor, memory.sums, memory.rows, memory.clock
    feed_windowed(rows, rewards, np.zeros((q, 0)), *state, ridge)
    last = rows[-window:]
    assert_close_to_exact(
        memory.factor, last.T @ last + ridge * np.eye(q), last.T @ rewards[-window:]
    )


@pytest.mark.parametrize("window", [1, 2, 3, 10, 50, 64])
@pytest.mark.parametrize("position", [0, 7, 49, 50, 99])
def test_an_outlier_that_has_left_the_window_leaves_nothing_behind(window, position):
    q = 3
    rng = np.random.default_rng(2)
    rows, rewards = rng.normal(size=(300, q)), rng.normal(size=300)
    rows[position] *= 1e8
    policy = ib.SWLinUCB(q, window=window)
    for t in range(300):
        policy.update(rows[t], rewards[t])
        if t >= position + window:
            inside = slice(t + 1 - window, t + 1)
            gram = rows[inside].T @ rows[inside] + 0.1 * np.eye(q)
            expected = np.linalg.solve(gram, rows[inside].T @ rewards[inside])
            np.testing.assert_allclose(
                policy.coefficients, expected, rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize(
    "memory", [ib.Forever(), ib.SlidingWindow(20), ib.Discount(0.9)], ids=repr
)
def test_features_of_any_size_keep_the_state_positive_definite(memory):
    policy = ib.LinUCB(3, memory=memory)
    rng = np.random.default_rng(3)
    for _ in range(200):
        policy.update(
            rng.normal(size=3) * 10.0 ** rng.uniform(-30, 30), float(rng.normal())
        )
        scores = policy.scores(rng.normal(size=(4, 3)))
        assert np.isfinite(scores.mean).all()
        assert (scores.width > 0).all()
