"""One planted log in the three forms that logs have, as Arrow tables."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass
class PlantedLog:
    """Rounds with one to four offered actions; offered and all_rewards have one row per action, round
    after round.
    """

    times: np.ndarray
    offered: np.ndarray
    counts: np.ndarray
    actions: np.ndarray
    all_rewards: np.ndarray

    @property
    def starts(self):
        return np.cumsum(self.counts) - self.counts

    @property
    def features(self):
        return self.offered[self.starts + self.actions]

    @property
    def rewards(self):
        return self.all_rewards[self.starts + self.actions]

    @property
    def propensities(self):
        return 1.0 / self.counts


def planted_log(seed, rounds):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, size=rounds)
    offered = rng.normal([0.0, 40.0, -3.0], [1.0, 10.0, 0.1], (counts.sum(), 3))
    return PlantedLog(
        np.datetime64("2024-01-01T06:00:00", "us")
        + np.sort(rng.integers(0, 5 * 86400, rounds)).astype("timedelta64[s]"),
        offered,
        counts,
        rng.integers(0, counts),
        offered @ [1.0, -0.2, 3.0] + rng.normal(size=counts.sum()),
    )


def wide(log):
    features = {f"x{j}": log.features[:, j] for j in range(3)}
    return pa.table({"time": log.times, "reward": log.rewards, **features})


def lists_of_offered(log):
    cut = log.starts[1:]
    return pa.table(
        {
            "time": log.times,
            "reward": log.rewards,
            "action": log.actions,
            "propensity": log.propensities,
            "offered": pa.array([part.tolist() for part in np.split(log.offered, cut)]),
            "offered_rewards": pa.array(
                [part.tolist() for part in np.split(log.all_rewards, cut)]
            ),
        }
    )


def rows_per_action(log, every_reward=False):
    chosen = np.zeros(len(log.offered), dtype=bool)
    chosen[log.starts + log.actions] = True
    rewards = (
        log.all_rewards if every_reward else np.where(chosen, log.all_rewards, np.nan)
    )
    return pa.table(
        {
            "round_id": np.repeat(np.arange(len(log.counts)) + 1000, log.counts),
            "time": np.repeat(log.times, log.counts),
            "chosen": chosen,
            "reward": pa.array(rewards, from_pandas=True),
            "propensity": np.repeat(log.propensities, log.counts),
            **{f"x{j}": log.offered[:, j] for j in range(3)},
        }
    )


def many_row_groups(folder, form=wide):
    """The path of a Parquet file of planted rounds in many row groups."""
    path = folder / "log.parquet"
    pq.write_table(form(planted_log(seed=7, rounds=600)), path, row_group_size=101)
    return path
