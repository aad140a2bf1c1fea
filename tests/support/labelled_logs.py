"""A planted log of labelled arms that come and go, as an Arrow table and as arrays."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

START = np.datetime64("2024-01-01T00:00:00", "us")
LABELS = ("banner_A", "banner_B", "banner_C", "banner_D")


@dataclass
class LabelledLog:
    """n clicks over 12 months of 30 days: banner_C is retired after month 6, banner_D launched in month 8."""

    times: np.ndarray
    contexts: np.ndarray
    country: np.ndarray
    arms: np.ndarray
    active: np.ndarray
    rewards: np.ndarray
    truth: np.ndarray

    @property
    def labels(self):
        return np.array(LABELS)[self.arms]

    @property
    def propensities(self):
        return 1.0 / self.active.sum(axis=1)

    def table(self, label="banner", **more):
        return pa.table(
            {
                "ts": self.times,
                label: self.labels,
                "click": self.rewards.astype(np.int64),
                "propensity": self.propensities,
                "age": self.contexts[:, 0],
                "hour": self.contexts[:, 1],
                "country": self.country,
                **more,
            }
        )


def labelled_log(seed, rounds=4000, coefficients=None):
    """Uniform choices among the active arms; logit of a click: level + slope · standardised age, per arm."""
    rng = np.random.default_rng(seed)
    share = np.sort(rng.random(rounds))
    times = START + (share * 360 * 86_400_000_000).astype("timedelta64[us]")
    contexts = np.column_stack(
        [rng.normal(40.0, 10.0, rounds), rng.uniform(0.0, 24.0, rounds)]
    )
    month = share * 12
    active = np.column_stack(
        [np.ones(rounds), np.ones(rounds), month < 6, month >= 8]
    ).astype(bool)
    arms = np.array([rng.choice(np.flatnonzero(row)) for row in active])
    truth = (
        np.array([[-1.0, 0.5], [-0.5, -0.5], [0.0, 0.0], [-1.5, 1.0]])
        if coefficients is None
        else coefficients
    )
    z = np.column_stack([np.ones(rounds), (contexts[:, 0] - 40.0) / 10.0])
    chance = 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", z, truth[arms])))
    rewards = (rng.random(rounds) < chance).astype(float)
    return LabelledLog(
        times, contexts, rng.choice(["DE", "FR"], rounds), arms, active, rewards, truth
    )
