"""The same state has the same bytes: in another process, with other hashes, stored again, loaded and
stored.
"""

import os
import subprocess
import sys

import pytest

from invariant_bandits.simulation.sample_logs import write_samples

PROGRAM = """
import hashlib
import invariant_bandits as ib
from pathlib import Path
POLICIES = {"banners.csv": "randomised-auto-isd", "rows.parquet": "auto-isd", "chosen.parquet": "isd-lints"}
for log, policy in POLICIES.items():
    model = ib.fit_logs(log, policy=policy)
    if model.arms is not None:
        for n in range(5):
            model.decide({"age": 30.0 + n, "device": "phone", "hour": n}, id=f"decision {n}")
        model.learn("decision 1", 1.0)
        model.learn("decision 3", 0.0)
        model.add_arm("banner_F")
        model.retire_arm("banner_A")
    contents = [model.to_bytes() for _ in range(3)]
    model.save("model")
    contents += [Path("model").read_bytes(), ib.Model.load("model").to_bytes()]
    print(log, len(set(contents)), hashlib.sha256(contents[0]).hexdigest())
"""


@pytest.mark.system
@pytest.mark.filterwarnings("ignore")
def test_a_model_with_every_part_has_the_same_bytes_wherever_it_is_made(
    tmp_path, monkeypatch, capsys
):
    write_samples(tmp_path, 400)
    elsewhere = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    monkeypatch.chdir(tmp_path)
    exec(PROGRAM, {})
    assert capsys.readouterr().out.splitlines() == elsewhere
    assert [line.split()[1] for line in elsewhere] == ["1", "1", "1"]
