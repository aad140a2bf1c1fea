"""A log format of your own: lines such as `banner=B hour=9 clicked`, in files that end in .clicks.

Run it with `python examples/own_log_format.py`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import invariant_bandits as ib
from invariant_bandits.logs.formats.table import TableSource


@ib.register_log_format("clicks", suffixes=(".clicks",))
def open_clicks(paths):
    """All files as one table; large files would be read batch by batch, as the built-in formats do."""
    lines = [
        line.split() for path in paths for line in Path(path).read_text().splitlines()
    ]
    fields = [dict(word.split("=") for word in words if "=" in word) for words in lines]
    columns = {
        "action": [row["banner"] for row in fields],
        "hour": [float(row["hour"]) for row in fields],
        "reward": [float("clicked" in words) for words in lines],
    }
    return TableSource(pa.table(columns), name=paths[0])


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    chance = {"A": 0.1, "B": 0.3, "C": 0.2}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.clicks"
        shown = rng.choice(list(chance), 3000)
        ends = [
            "clicked" if rng.random() < chance[banner] else "left" for banner in shown
        ]
        lines = [
            f"banner={banner} hour={rng.integers(24)} {end}"
            for banner, end in zip(shown, ends, strict=True)
        ]
        path.write_text("\n".join(lines))
        model = ib.fit_logs(str(path))
        print("at nine o'clock:", model.decide({"hour": 9.0}).action)
