"""`Update.alarm` says what the page of an update says."""

import numpy as np
import pyarrow as pa

import invariant_bandits as ib
from invariant_bandits.reports import model_page, values

ARMS = np.array(["a", "b", "c"])


def part(rounds, level_of_a, rng):
    """A log of three arms and one column; the level of a is `level_of_a`."""
    x = rng.normal(size=rounds)
    arm = rng.integers(3, size=rounds)
    levels = np.array([level_of_a, 0.4, 0.5])
    slopes = np.array([0.1, 0.0, -0.1])
    reward = levels[arm] + slopes[arm] * x + 0.4 * rng.normal(size=rounds)
    return pa.table({"arm": ARMS[arm], "x": x, "reward": reward})


def updated(fall, seed):
    """A model of eight windows, updated with eight in the last of which the level of a fell."""
    rng = np.random.default_rng(seed)
    model = ib.fit_logs(part(4000, 0.7, rng), windows=8)
    new = pa.concat_tables([part(3500, 0.7, rng), part(500, 0.7 - fall, rng)])
    return model.update_from(new)


def test_a_level_that_fell_in_the_last_new_window_raises_the_alarm_that_is_printed():
    """The mean over all new rounds hides it: a fall of 0.25 in an eighth of them. Within its window of 167
    plays the level has an error of 0.031, so that the fall is 8 standard errors.
    """
    update = updated(0.25, seed=0)
    assert not update.stable_part_moved
    assert [effect.title for effect in update.new_drift] == ["a × level"]
    assert update.alarm
    text = " ".join(model_page.text(update.model, update).split())
    assert (
        "ALARM: what showed no drift before has moved within the new windows: a × level"
        in text
    )
    said = values.of_model(update.model, update)["update"]
    assert said["alarm"]
    assert said["new_drift"] == ["a × level"]


def test_without_a_fall_neither_the_page_nor_the_alarm_rings():
    """At a level of at most 6 % more than three of twelve rings have probability 0.004."""
    rang = 0
    for seed in range(12):
        update = updated(0.0, seed)
        rang += update.alarm
        text = model_page.text(update.model, update)
        assert ("ALARM: what showed no drift before" in text) == update.alarm
    assert rang <= 3
