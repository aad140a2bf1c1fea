"""Rivals from the literature: their widths are those of their papers, and they beat LinUCB where these do.

Seeds are fixed. In the worlds below the mean regrets differ by more than four standard errors of the paired
difference, so that another seed would fail less than once in ten thousand.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation import PaperEpisodes
from invariant_bandits_reproduction.policies import (
    EllipsoidalMinUCB,
    MinUCB,
    WeightUCB,
)

DIM = 6


@dataclass(frozen=True)
class ShiftedLogs:
    """Constant coefficients in the logs, which differ online by `shift` along the first direction."""

    shift: float
    logged: int = 600

    def draw(self, horizon, rng):
        """Logs, and rounds with five actions."""
        coefficients = rng.uniform(0.5, 1.5, DIM)
        features = rng.normal(size=(self.logged, DIM))
        rewards = features @ coefficients + rng.normal(size=self.logged)
        coefficients[0] += self.shift
        offered = rng.normal(size=(horizon, 5, DIM))
        means = offered @ coefficients
        moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
        return SimpleNamespace(
            offered=offered,
            means=means,
            rewards=means + rng.normal(size=(horizon, 1)),
            past=ib.Past(moments=moments, noise_scale=1.0, delta=0.01),
        )


def regrets(policies, environment, horizon):
    """Final regret of every policy in 20 repetitions."""
    result = ib.simulate(policies, environment, horizon, replications=20, seed=5)
    return {name: result.final(name) for name in policies}


def clearly_lower(left, right):
    """Whether the paired difference of two policies is below 0 by four standard errors."""
    difference = left - right
    return difference.mean() + 4.0 * difference.std(ddof=1) / np.sqrt(20) < 0.0


def test_the_width_of_weight_ucb_is_the_radius_of_d_linucb_times_one_norm():
    rng = np.random.default_rng(0)
    one = WeightUCB(3, discount=0.9, ridge=0.5)
    two = ib.DLinUCB(3, discount=0.9, ridge=0.5)
    rows = rng.normal(size=(40, 3))
    for row in rows:
        one.update(row, 1.0)
        two.update(row, 1.0)
    weights = 0.9 ** np.arange(39, -1, -1)
    gram = rows.T @ (weights[:, None] * rows) + 0.5 * np.eye(3)
    offered = rng.normal(size=(7, 3))
    norms = np.sqrt(np.einsum("ki,ki->k", offered, np.linalg.solve(gram, offered.T).T))
    scores = one.scores(offered)
    np.testing.assert_allclose(scores.width, two.radius * norms)
    np.testing.assert_allclose(scores.mean, two.scores(offered).mean)
    assert (scores.width > two.scores(offered).width).all()


def test_weight_ucb_beats_linucb_where_coefficients_rotate():
    forgetting = {"discount": 0.95, "exploration": 0.1}
    final = regrets(
        {
            "linucb": PolicySpec("linucb", {"exploration": 0.1}),
            "weight-ucb": PolicySpec("weight-ucb", forgetting),
        },
        PaperEpisodes(logged=200, online="rotating"),
        450,
    )
    assert clearly_lower(final["weight-ucb"], final["linucb"])


def test_the_bias_of_the_pooled_regression_is_at_most_what_the_certificate_says():
    """Logs and online rounds without noise: all error is the bias and the ridge's, which is negligible."""
    rng = np.random.default_rng(1)
    truth, shift = rng.normal(size=DIM), np.array([0.7, 0, 0, 0, 0, 0.2])
    features = rng.normal(size=(100, DIM))
    moments = ib.WindowedMoments.from_arrays(features, features @ truth, windows=1)
    past = ib.Past(moments=moments, noise_scale=1.0)
    shifts = np.eye(DIM)[:, [0, 5]]
    length = float(np.linalg.norm(shift))
    options = {"bias_bound": length, "ridge": 1e-9}
    narrow = EllipsoidalMinUCB.from_past(past, shifts=shifts, **options)
    ball = MinUCB.from_past(past, **options)
    offered = rng.normal(size=(50, DIM))
    for row in offered:
        narrow.update(row, row @ (truth + shift))
        ball.update(row, row @ (truth + shift))
    errors = np.abs(offered @ (narrow._narrow.coefficients - truth - shift))
    assert (errors <= narrow._bias(offered) + 1e-6).all()
    assert (narrow._bias(offered) <= ball._bias(offered) + 1e-9).all()
    # The shift itself attains the bound for some features.
    worst = narrow._narrow._memory.norm_root()
    gram = features.T @ features
    direction = np.linalg.inv(worst @ worst.T @ gram).T @ np.eye(DIM)[0]
    assert narrow._bias(direction[None]) == pytest.approx(length)


def test_min_ucb_beats_linucb_if_the_bias_of_the_logs_is_small():
    final = regrets(
        {
            "linucb": PolicySpec("linucb"),
            "min-ucb": PolicySpec("min-ucb", {"bias_bound": 0.2}),
        },
        ShiftedLogs(shift=0.2),
        200,
    )
    assert clearly_lower(final["min-ucb"], final["linucb"])


def test_a_certificate_of_the_direction_beats_linucb_if_the_bias_is_large():
    only_first = {"bias_bound": 1.0, "shifts": np.eye(DIM)[:, :1]}
    final = regrets(
        {
            "linucb": PolicySpec("linucb"),
            "ellipsoidal-minucb": PolicySpec("ellipsoidal-minucb", only_first),
        },
        ShiftedLogs(shift=-1.0),
        200,
    )
    assert clearly_lower(final["ellipsoidal-minucb"], final["linucb"])


def test_stored_rivals_decide_alike():
    past = ShiftedLogs(0.5).draw(30, np.random.default_rng(2)).past
    offered = np.random.default_rng(3).normal(size=(30, 5, DIM))
    for name in ("weight-ucb", "min-ucb", "ellipsoidal-minucb"):
        policy = PolicySpec(name).build(past)
        for features in offered[:20]:
            policy.update(features[policy.select(features)], 1.0)
        restored = type(policy).from_state(policy.settings(), policy.arrays())
        for features in offered[20:]:
            assert restored.select(features) == policy.select(features)
            np.testing.assert_array_equal(
                restored.decide(features).widths, policy.decide(features).widths
            )
