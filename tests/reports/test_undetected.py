"""A terminal shows one line for many effects without detected drift; the page lists each."""

import numpy as np
import pyarrow as pa

import invariant_bandits as ib
from invariant_bandits.reports import model_page


def test_many_effects_without_detected_drift_are_one_line_of_the_terminal():
    rng = np.random.default_rng(0)
    columns = {f"x{place:02}": rng.normal(size=4000) for place in range(12)}
    arm = rng.choice(["a", "b", "c"], 4000)
    reward = columns["x00"] * (arm == "a") + rng.normal(size=4000)
    model = ib.fit_logs(
        pa.table(columns | {"arm": arm, "reward": reward}), arm_model="own"
    )
    text = model_page.text(model)
    assert " other effects no drift was detected" in text
    assert "x07" not in text.partition("Expected value")[0].partition("Drift")[2]
    assert "x07" in model_page.report(model)
