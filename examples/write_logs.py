"""Write example logs: the paper's simulation as Parquet, in each of the three forms that logs have.

Run: python examples/write_logs.py FOLDER [--rounds 4000]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from invariant_bandits.simulation.paper import LoggedRounds, PaperWorld


def write_logs(folder: Path, rounds: int = 4000, seed: int = 0) -> LoggedRounds:
    """Write chosen.parquet, lists.parquet and rows.parquet, the same rounds over 56 days; return them with their truth.

    chosen: one row per round, features x0… of the chosen action; lists: features of all offered actions as lists of
    lists; rows: one row per offered action.
    """
    logs = PaperWorld().log(rounds, np.random.default_rng(seed))
    n, K, p = logs.offered.shape
    step = np.timedelta64(56, "D").astype("timedelta64[us]") // n
    times = np.datetime64("2024-01-01", "us") + step * np.arange(n)
    names = [f"x{j}" for j in range(p)]
    propensity = np.full(n, 1.0 / K)
    folder.mkdir(parents=True, exist_ok=True)
    common = {"time": times, "reward": logs.rewards, "propensity": propensity}
    chosen = common | {name: logs.features[:, j] for j, name in enumerate(names)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(logs.offered.reshape(-1)), p)
    lists = common | {"action": logs.actions, "offered": pa.FixedSizeListArray.from_arrays(vectors, K)}
    flags = np.zeros((n, K), dtype=bool)
    flags[np.arange(n), logs.actions] = True
    rewards = np.where(flags, logs.rewards[:, None], np.nan).reshape(-1)
    rows = {
        "round_id": np.repeat(np.arange(n), K),
        "time": np.repeat(times, K),
        "chosen": flags.reshape(-1),
        "reward": pa.array(rewards, from_pandas=True),
        "propensity": np.repeat(propensity, K),
        **{name: logs.offered[:, :, j].reshape(-1) for j, name in enumerate(names)},
    }
    for name, columns in {"chosen": chosen, "lists": lists, "rows": rows}.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=1000)
    return logs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=4000)
    given = parser.parse_args()
    write_logs(given.folder, given.rounds)
