"""Small planted worlds and measures that several tests share."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from invariant_bandits import Split, WindowedMoments
from invariant_bandits.decomposition.paths import CoefficientPaths


def random_basis(p, rng):
    """A Haar-distributed orthogonal matrix (p, p)."""
    q, r = np.linalg.qr(rng.standard_normal((p, p)))
    return q * np.sign(np.diagonal(r))


def slight_turn(p, rng, size=0.1):
    """An orthogonal matrix (p, p) near the identity."""
    q, r = np.linalg.qr(np.eye(p) + size * rng.standard_normal((p, p)))
    return q * np.sign(np.diagonal(r))


def random_spd(p, rng):
    """A well-conditioned positive definite matrix (p, p)."""
    basis = random_basis(p, rng)
    return basis @ np.diag(rng.uniform(0.5, 2.0, p)) @ basis.T


def draw_log(seed, rounds, offered=True):
    """Features with distant means, rewards, offered actions that contain the chosen one."""
    rng = np.random.default_rng(seed)
    choices = rng.standard_normal((rounds, 4, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, -3.0]
    features = choices[np.arange(rounds), rng.integers(4, size=rounds)]
    rewards = features @ [1.0, -0.2, 3.0] + rng.standard_normal(rounds)
    return features, rewards, choices if offered else None


def assert_same_moments(first, second, rtol=1e-10):
    """Equal counts and edges; all power sums equal relative to the size of their own kind."""
    for item, other in ((first.chosen, second.chosen), (first.offered, second.offered)):
        assert (item is None) == (other is None)
        if item is None:
            continue
        np.testing.assert_array_equal(item.count, other.count)
        for name, array in vars(item).items():
            theirs = vars(other)[name]
            np.testing.assert_allclose(
                array, theirs, rtol=rtol, atol=rtol * max(1.0, np.abs(theirs).max())
            )


@dataclass
class PiecewiseWorld:
    """Logs whose coefficients are constant within each window: the invariant ones throughout, the others
    redrawn.

    Covariances are redrawn per window, diagonal in `split.basis`.
    """

    features: np.ndarray
    rewards: np.ndarray
    split: Split
    component: np.ndarray
    coefficients: np.ndarray
    windows: int

    @property
    def moments(self):
        return WindowedMoments.from_arrays(
            self.features, self.rewards, windows=self.windows
        )


def piecewise_world(
    rng,
    *,
    invariant_dim=3,
    residual_dim=2,
    windows=6,
    rounds=300,
    noise=1.0,
    drift=1.0,
    basis=None,
    draw=None,
):
    """Draw a PiecewiseWorld of `windows` × `rounds` rows; `draw(shape)` gives unit-variance variables."""
    p = invariant_dim + residual_dim
    draw = rng.standard_normal if draw is None else draw
    basis = random_basis(p, rng) if basis is None else basis
    split = Split(basis[:, :invariant_dim], basis[:, invariant_dim:])
    component = split.invariant @ rng.uniform(0.5, 1.5, invariant_dim)
    coefficients = (
        component
        + drift * rng.standard_normal((windows, residual_dim)) @ split.residual.T
    )
    scales = rng.uniform(0.5, 2.0, (windows, p))
    features = np.concatenate(
        [(draw((rounds, p)) * scale) @ basis.T for scale in scales]
    )
    means = np.einsum("ij,ij->i", features, np.repeat(coefficients, rounds, axis=0))
    rewards = means + noise * rng.standard_normal(windows * rounds)
    return PiecewiseWorld(features, rewards, split, component, coefficients, windows)


def turning_world(seed, rounds=12000):
    """Five uncorrelated directions, of which the coefficients of the last two turn once around.

    Each has its own pattern of variances, 1.4 or 1/1.4, over eight regimes (columns of a Hadamard matrix), so
    that they can be told apart, while the variance of the rewards hardly changes: the cross-validation needs
    that.
    """
    rng = np.random.default_rng(seed)
    basis = random_basis(5, rng)
    scales = 1.4 ** (0.5 * linalg.hadamard(8)[:, 1:6])
    features = (
        rng.standard_normal((rounds, 5)) * scales[np.arange(rounds) * 8 // rounds]
    ) @ basis.T
    component = basis[:, :3] @ [0.6, -0.6, 0.6]
    angle = 2.0 * np.pi * np.arange(rounds) / rounds
    drift = np.column_stack([np.cos(angle), np.sin(angle)]) @ basis[:, 3:].T
    rewards = np.einsum("ij,ij->i", features, component + drift) + rng.standard_normal(
        rounds
    )
    return features, rewards, Split(basis[:, :3], basis[:, 3:]), component


def drawn_paths(rng, centres, scale=0.1):
    """Coefficients N(centre_i, H_i) with random known covariances H_i of about scale²."""
    covariances = scale**2 * np.stack(
        [random_spd(centres.shape[1], rng) for _ in centres]
    )
    errors = [
        root @ rng.standard_normal(len(root))
        for root in np.linalg.cholesky(covariances)
    ]
    return CoefficientPaths(centres + errors, covariances)


def within(successes, runs, probability, deviations=4.0):
    """Whether a count agrees with Binomial(runs, probability) to so many standard deviations.

    Four deviations fail with probability below 1e-3 for the counts used here, if the model holds.
    """
    deviation = np.sqrt(runs * probability * (1.0 - probability))
    return abs(successes - runs * probability) <= deviations * deviation
