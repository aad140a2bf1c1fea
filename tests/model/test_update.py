"""New rounds for a model: as if all logs had been fitted at once, nothing counted twice, and what changed
is said.
"""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.windows import continued_edges
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from worlds import assert_same_moments

LOG = planted_log(seed=2, rounds=3000)  # five days
FORMS = {"wide": wide, "rows": rows_per_action, "lists": lists_of_offered}


def parts(table, day):
    """(rows before that day of the log, rows from it on)."""
    times = table["time"].to_numpy()
    at = int(
        np.searchsorted(
            times, np.datetime64("2024-01-01T06") + np.timedelta64(round(24 * day), "h")
        )
    )
    return table.slice(0, at), table.slice(at)


def days(*dates):
    return np.array(dates, dtype="datetime64[us]")


@pytest.mark.parametrize(
    "policy", ["auto-isd", "linucb", "randomised-linucb,floor=0.2"]
)
@pytest.mark.parametrize("form", FORMS)
def test_the_result_is_that_of_all_logs_at_once_with_the_same_windows(form, policy):
    table = FORMS[form](LOG)
    earlier, later = parts(table, 3)
    explores = {} if policy == "auto-isd" else {"exploration": 0.3}
    before = ib.fit_logs(earlier, policy=policy, every="12h", **explores)
    after = before.update_from(later).model
    whole = ib.fit_logs(
        table,
        policy=policy,
        edges=after.moments.edges,
        features=before.feature_map,
        **explores,
    )
    assert after.moments.rounds == 3000
    assert_same_moments(after.moments, whole.moments)
    assert after.names == whole.names
    assert after.baseline == pytest.approx(whole.baseline, rel=1e-12)
    assert after.quality.rounds == whole.quality.rounds
    np.testing.assert_allclose(
        after.decomposition.coefficients_, whole.decomposition.coefficients_, rtol=1e-9
    )
    rng = np.random.default_rng(0)
    for _ in range(20):
        shape = (4, 3) if form == "lists" else 4
        offered = {
            column.name: rng.normal(size=shape) for column in after.feature_map.columns
        }
        np.testing.assert_allclose(
            after.scores(offered).mean, whole.scores(offered).mean, rtol=1e-8, atol=1e-8
        )


def test_options_in_the_name_of_a_policy_are_kept():
    earlier, later = parts(wide(LOG), 3)
    before = ib.fit_logs(
        earlier, every="12h", policy="randomised-linucb,floor=0.2,exploration=0.4"
    )
    after = before.update_from(later).model
    assert after.policy_name == before.policy_name
    assert (after.policy.floor, after.policy.policy.exploration) == (0.2, 0.4)


def test_windows_go_on_as_they_were_and_rounds_of_an_unfinished_one_are_added_to_it():
    earlier, later = parts(wide(LOG), 2.6)  # within the third day
    before = ib.fit_logs(earlier, every="1d", policy="linucb")
    after = before.update_from(later).model
    assert before.moments.edges[-1] == np.datetime64("2024-01-04")
    np.testing.assert_array_equal(
        after.moments.edges,
        np.arange("2024-01-01", "2024-01-08", dtype="datetime64[D]")[:7],
    )
    assert_same_moments(
        after.moments,
        ib.fit_logs(
            wide(LOG), every="1d", features=before.feature_map, policy="linucb"
        ).moments,
    )


def test_windows_that_are_shares_of_rows_go_on_with_as_many_rows():
    table = wide(LOG).drop_columns(["time"])
    before = ib.fit_logs(table.slice(0, 2000), windows=8, policy="linucb")
    after = before.update_from(table.slice(2000)).model
    assert after.moments.counts.tolist() == [250.0] * 12
    assert before.update_from(table.slice(2000), windows=2).model.moments.windows == 10


@pytest.mark.parametrize(
    "table",
    [wide(LOG), wide(LOG).drop_columns(["time"])],
    ids=["with times", "without"],
)
def test_no_round_is_counted_twice(table):
    before = ib.fit_logs(table, windows=8, policy="linucb")
    with pytest.raises(ib.InputError, match="counted twice"):
        before.update_from(table)


def test_edges_follow_the_calendar_the_usual_length_or_what_is_asked_for():
    months = np.arange("2024-01", "2024-04", dtype="datetime64[M]").astype(
        "datetime64[us]"
    )
    at = np.datetime64
    np.testing.assert_array_equal(
        continued_edges(months, at("2024-03-02"), at("2024-04-01"), None, None),
        days("2024-03-01", "2024-04-01", "2024-05-01"),
    )
    np.testing.assert_array_equal(
        continued_edges(months, at("2024-02-20"), at("2024-03-09"), None, "1w"),
        days("2024-02-01", "2024-03-01", "2024-03-08", "2024-03-15"),
    )
    np.testing.assert_array_equal(
        continued_edges(np.array([0.0, 10.0, 20.0]), 20.0, 41.0, None, None),
        [20, 30, 40, 50],
    )
    halves = continued_edges(np.array([0.0, 10.0]), 12.0, 20.0, 2, None)
    np.testing.assert_allclose(halves, [10.0, 15.0, 20.0])
    assert halves[-1] >= 20.0
    with pytest.raises(ib.InputError, match="does not fit windows that end at"):
        continued_edges(
            days("2024-01-01", "2024-01-08"),
            at("2024-01-08"),
            at("2024-02-08"),
            None,
            "1mo",
        )


def drifting(seed, shift, rounds=4000):
    """Four features, of which the last drifts; in the last quarter the first moves by `shift`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rounds, 4)) * np.repeat(
        rng.uniform(0.6, 1.5, (8, 4)), rounds // 8, axis=0
    )
    slopes = np.tile([1.0, -1.0, 0.5, 0.0], (rounds, 1))
    slopes[:, 3] = np.repeat(rng.normal(size=8), rounds // 8)
    slopes[3 * rounds // 4 :, 0] += shift
    reward = np.einsum("nd,nd->n", slopes, x) + rng.normal(size=rounds)
    table = pa.table({"reward": reward} | {f"x{j}": x[:, j] for j in range(4)})
    return table.slice(0, 3 * rounds // 4), table.slice(3 * rounds // 4)


def test_what_was_stable_and_moved_raises_the_alarm_and_is_named():
    earlier, later = drifting(0, 0.4)
    update = ib.fit_logs(earlier, windows=6, policy="linucb").update_from(later)
    assert update.alarm
    moved = next(move for move in update.moves if move.name == "x0")
    assert abs(moved.now - moved.before - 0.4) < 4.0 * np.hypot(
        moved.now_error, moved.before_error
    )
    assert moved.z > 5.0
    now, then = (model.decomposition.split_ for model in (update.model, update.before))
    assert now.residual_dim > then.residual_dim


def test_drift_that_goes_on_raises_no_alarm():
    alarms = 0
    for seed in range(30):
        earlier, later = drifting(seed, 0.0, rounds=1600)
        alarms += (
            ib.fit_logs(earlier, windows=6, policy="linucb-cold")
            .update_from(later)
            .alarm
        )
    assert (
        alarms <= 3
    )  # at level 1 %, more than three of thirty happen in 3 of 100,000 runs


def test_decisions_that_wait_for_their_rewards_still_do():
    earlier, later = drifting(1, 0.0)
    before = ib.fit_logs(earlier, windows=6, policy="linucb")
    decision = before.decide({f"x{j}": [0.0, 1.0] for j in range(4)})
    after = before.update_from(later).model
    after.learn(decision.id, reward=1.0)
    assert after.policy.rounds == 4001


def labelled(seed, shift, clicks, rounds=6000):
    """Three arms, one context column; the slope of b drifts, that of a moves by `shift` in the last
    quarter.
    """
    rng = np.random.default_rng(seed)
    x, arm = rng.normal(size=rounds), rng.integers(3, size=rounds)
    slopes = np.tile([0.6, 0.0, -0.6], (rounds, 1))
    slopes[:, 1] += np.repeat(0.7 * rng.normal(size=8), rounds // 8)
    slopes[3 * rounds // 4 :, 0] += shift
    score = slopes[np.arange(rounds), arm] * x + np.array([0.0, 0.2, 0.4])[arm]
    gauss = score + rng.normal(size=rounds)
    reward = (
        (rng.random(rounds) < 1.0 / (1.0 + np.exp(-score))).astype(int)
        if clicks
        else gauss
    )
    table = pa.table(
        {"reward": reward, "x": x, "banner": np.array(["a", "b", "c"])[arm]}
    )
    return table.slice(0, 3 * rounds // 4), table.slice(3 * rounds // 4)


@pytest.mark.parametrize("clicks", [False, True], ids=["numbers", "clicks"])
def test_an_effect_of_an_arm_that_moved_is_named_and_raises_the_alarm(clicks):
    earlier, later = labelled(0, 0.8, clicks)
    update = ib.fit_logs(earlier, windows=6).update_from(later, windows=2)
    assert update.alarm
    moved = next(move for move in update.moves if move.name == "a × x")
    slopes = np.array([0.6, 1.4])
    # The level of a is 0 in log-odds: a slope takes the probability of a click from ½ to expit(slope).
    before, now = 1.0 / (1.0 + np.exp(-slopes)) - 0.5 if clicks else slopes
    assert abs(moved.before - before) < 4.0 * moved.before_error
    assert abs(moved.now - now) < 4.0 * moved.now_error
    assert len(update.moves) == 6


def test_arms_whose_drift_goes_on_raise_no_alarm():
    alarms = 0
    for seed in range(12):
        earlier, later = labelled(seed, 0.0, clicks=seed % 2 == 0, rounds=3200)
        alarms += ib.fit_logs(earlier, windows=6).update_from(later, windows=2).alarm
    assert (
        alarms <= 2
    )  # at level 1 %, more than two of twelve happen in 2 of 10,000 runs


def test_a_short_last_window_is_joined_as_at_fit_and_the_next_rounds_go_on():
    """Eight weeks, then a day: it joins the last week; the days after it are added there, later ones are new."""
    rng = np.random.default_rng(3)
    days = np.datetime64("2024-01-01", "us") + np.arange(71 * 100) * np.timedelta64(
        864, "s"
    )
    x = rng.normal(size=len(days))
    log = pa.table({"time": days, "x": x, "reward": x + rng.normal(size=len(days))})
    weeks = ib.fit_logs(log.slice(0, 5600), every="1w")
    day = weeks.update_from(log.slice(5600, 100)).model
    assert day.moments.counts.tolist() == [700.0] * 7 + [800.0]
    rest = day.update_from(log.slice(5700, 600)).model
    assert rest.moments.counts.tolist() == [700.0] * 7 + [1400.0]
    later = rest.update_from(log.slice(6300, 100)).model
    assert later.moments.counts.tolist() == [700.0] * 7 + [
        1400.0,
        100.0,
    ]  # no window grows for ever
