"""Logs as other systems write them: what their columns mean is found, and nothing that leaks is a feature."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.reports import values
from invariant_bandits.simulation.wild_logs import OTHER_LOGS, WILD_LOGS
from invariant_bandits.simulation.wild_more import LATER_LOGS, NEW_LOGS
from reading import read_feedback

SMALL = {"ride_pricing": 60_000}


@pytest.mark.parametrize("kind", WILD_LOGS)
def test_roles_and_drift_of_a_log_of_another_system_are_found(kind, tmp_path):
    """One fixed draw of each kind; other draws may miss a drifting effect or name one more."""
    rounds = {"rounds": SMALL[kind]} if kind in SMALL else {}
    log = WILD_LOGS[kind](tmp_path, 5, **rounds)
    schema = ib.open_log(str(log.path)).schema
    found = {
        role: column
        for role, column in schema.roles().items()
        if role not in log.options
    }
    assert found == {
        role: column for role, column in log.roles.items() if role not in log.options
    }
    assert not log.leaking & set(schema.features)
    if log.options:
        assert log.candidates <= set(schema.candidates)
        with pytest.raises(ib.InputError, match="--arm Guide"):
            ib.fit_logs(str(log.path))
        with pytest.raises(ib.InputError, match="--arm Guide"):
            read_feedback(str(log.path))
    model = ib.fit_logs(str(log.path), log.options, catalogue=log.catalogue)
    named = {
        (effect["arm"], effect["of"].split("=")[0])
        for effect in values.effects(model)
        if effect["drifts"]
    }
    assert named == log.drifting


def labelled(rng, rounds=3000):
    arm = rng.choice(list("abcd"), rounds)
    click = (rng.random(rounds) < 0.3).astype(float)
    time = 1_700_000_000 + 60 * np.arange(rounds)
    return {"time": time, "arm": arm, "x": rng.normal(size=rounds), "click": click}


def test_a_column_that_gives_the_reward_away_is_left_out_unless_kept():
    columns = labelled(np.random.default_rng(0))
    bought = columns["click"] * (np.arange(3000) % 4 == 0)
    table = pa.table(columns | {"bought": bought})
    schema = ib.open_log(table).schema
    assert schema.features == ("x",)
    assert "gives the reward away" in schema.reasons["!bought"]
    assert ib.open_log(table, {"keep": ["bought"]}).schema.features == ("x", "bought")
    assert ib.open_log(
        table, {"ignore": ["x"], "keep": ["bought"]}
    ).schema.features == ("bought",)


@pytest.mark.parametrize("reward", ["thumbs", "transferred"])
def test_a_number_that_goes_with_a_guessed_reward_is_asked_for(reward):
    """A thumb less its cost, and the seconds of a call that is then transferred, differ where the reward of
    two values is equal. The revenue of a click does not, and is a leak.
    """
    rng = np.random.default_rng(3)
    columns = labelled(rng)
    good = columns.pop("click")
    table = pa.table(columns | {reward: good, "net": good + 0.3 * rng.random(3000)})
    with pytest.raises(ib.InputError, match=f"(?s)--reward {reward}.*--reward net"):
        ib.open_log(table)
    assert ib.open_log(table, {"reward": "net"}).schema.reward == "net"
    revenue = good * rng.gamma(9.0, 1.0, 3000)
    table = pa.table(columns | {reward: good, "net": revenue})
    schema = ib.open_log(table).schema
    assert (schema.reward, schema.features) == (reward, ("x",))
    words = f"'net' follows from '{reward}': if it is what should be large, say so (--reward net)"
    assert schema.doubts == (words,)
    assert not ib.open_log(table, {"reward": reward}).schema.doubts


def test_a_feature_whose_name_says_what_follows_a_choice_is_doubted():
    columns = labelled(np.random.default_rng(4))
    names = ("hours to resolution", "past cost", "hours_played")
    columns |= dict.fromkeys(names, columns["x"] ** 2)
    married = np.random.default_rng(5).integers(0, 2, 3000)
    often = 0.1 + 0.6 * columns["click"]
    transferred = np.random.default_rng(6).random(3000) < often
    columns |= {"married": married, "transferred": transferred.astype(int)}
    model = ib.fit_logs(pa.table(columns))
    doubted = [note for note in model.notes if "what follows a choice" in note]
    assert len(doubted) == 2
    assert doubted[0].startswith("'hours to resolution'")
    assert "--ignore 'hours to resolution'" in doubted[0]
    assert doubted[1].startswith("'transferred'")
    kept = ib.open_log(
        pa.table(columns), {"keep": ["hours to resolution", "transferred"]}
    )
    assert not any("what follows a choice" in words for words in kept.schema.doubts)


def extreme_logs():
    columns = labelled(np.random.default_rng(1))
    of_arm = columns["arm"] == "a"
    yield "reward constant per arm", columns | {"click": np.where(of_arm, 1.5, 2.5)}
    yield "clicks constant per arm", columns | {"click": of_arm.astype(int)}
    yield "raw epochs", columns | {"x": columns["time"] * 1000}
    yield "leak", columns | {"x": columns["click"] + 1e-9 * columns["x"]}


@pytest.mark.parametrize(
    ("name", "columns"),
    list(extreme_logs()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_of_extreme_columns_can_be_stored(name, columns, tmp_path):
    model = ib.fit_logs(pa.table(columns), features=["x"])
    model.save(tmp_path / "model.ib")
    assert ib.load(tmp_path / "model.ib").arms.labels == model.arms.labels


@pytest.mark.parametrize("kind", ["loyalty_coupons", "ad_bidding"])
def test_roles_are_found_by_relations_where_names_are_unusual(kind, tmp_path):
    """The action by the column of its probabilities, a fraction if need be; a propensity is not a feature."""
    log = OTHER_LOGS[kind](tmp_path, 6, rounds=20_000)
    schema = ib.open_log(str(log.path)).schema
    assert schema.roles() == log.roles
    assert not (log.leaking | {"card_number", log.roles["propensity"]}) & set(
        schema.features
    )
    read = read_feedback(str(log.path))
    assert read.feedback.rounds == 20_000


def test_without_a_reward_every_column_that_may_be_one_is_listed_with_its_option():
    columns = labelled(np.random.default_rng(2))
    table = pa.table(
        {"user_id": columns["arm"], "spend": columns["x"], "bonus": columns["click"]}
    )
    with pytest.raises(
        ib.InputError, match=r"--reward spend .*\n  --reward bonus  2 different"
    ):
        ib.open_log(table)
    table = table.append_column("installed", table.column("bonus"))
    assert ib.open_log(table, {"ignore": ["bonus"]}).schema.reward == "installed"


def test_among_many_columns_text_and_the_last_ones_are_listed_as_rewards():
    """Rewards often stand last, and are words of which most are missing."""
    rng = np.random.default_rng(0)
    columns = {f"m{j:02d}": rng.normal(size=1000) for j in range(32)}
    columns["arm"] = rng.choice(["a", "b", "c"], 1000)
    columns["week8"] = rng.normal(size=1000)
    words = rng.choice(["high", "low", None], 1000, p=[0.2, 0.2, 0.6])
    columns["verdict"] = pa.array(words.tolist(), pa.string())
    with pytest.raises(ib.InputError) as refused:
        ib.open_log(pa.table(columns))
    said = str(refused.value)
    assert "more columns between these" in said
    assert "--reward week8 " in said
    assert "--reward verdict" in said
    assert "--reward-values" in said


def test_news_out_of_order_are_compared_after_sorting(tmp_path):
    """Only the columns in use are sorted; the others are not asked for again."""
    log = WILD_LOGS["news_articles"](tmp_path, 3, rounds=6000)
    read = read_feedback(str(log.path))
    assert (np.diff(read.feedback.times.astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("kind", NEW_LOGS | LATER_LOGS)
def test_roles_of_a_log_with_names_of_its_own_are_found_or_asked_for(kind, tmp_path):
    log = (NEW_LOGS | LATER_LOGS)[kind](tmp_path, 8, rounds=12_000)
    if log.options:
        with pytest.raises(
            ib.InputError, match="no column was found to be the reward"
        ) as refused:
            ib.open_log(str(log.path))
        assert all(f"--reward {name} " in str(refused.value) for name in log.candidates)
    schema = ib.open_log(str(log.path), log.options).schema
    assert schema.roles() == log.roles
    assert not log.leaking & set(schema.features)


def chosen_with(chances, rounds=10_000, seed=3):
    """Labels drawn with chances that depend on x, their propensities, and a reward that depends on both."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rounds)
    p = np.where(x > 0.0, *chances)
    label = rng.random(rounds) < p
    reward = x + 0.5 * label + rng.normal(size=rounds)
    return x, np.where(label, "b", "a"), np.where(label, p, 1.0 - p), reward


@pytest.mark.parametrize(
    ("name", "unit", "written"),
    [
        ("pct", "percent", lambda p: 100.0 * p),
        ("ipw", "weight", lambda p: 1.0 / p),
        ("logp", "log", np.log),
        ("q", "probability", lambda p: p),
    ],
)
def test_propensities_are_found_in_every_unit_and_read_as_probabilities(
    name, unit, written
):
    x, label, p, reward = chosen_with((0.7, 0.4))
    table = pa.table(
        {
            "t": np.arange(10_000),
            "x": x,
            "label_of": label,
            name: written(p),
            "reward": reward,
        }
    )
    log = ib.open_log(table, {"time": "t"})
    assert (log.schema.arm, log.schema.propensity, log.schema.propensity_unit) == (
        "label_of",
        name,
        unit,
    )
    np.testing.assert_allclose(read_feedback(log).feedback.propensities, p, rtol=1e-12)


def test_a_column_that_depends_on_the_choice_is_not_a_feature_but_its_cause_is():
    """x is chosen by and stays, what follows the choice goes, an attribute of the arm is no outcome."""
    x, label, p, reward = chosen_with((0.7, 0.4))
    late = 0.3 * reward + np.random.default_rng(4).normal(size=len(x))
    table = pa.table(
        {
            "x": x,
            "arm": label,
            "p": p,
            "late": late,
            "reward": reward,
            "y2": x**2,
            "z": -x,
        }
    )
    schema = ib.open_log(table).schema
    assert schema.features == ("x", "y2", "z")
    assert "known only after the choice: it depends on arm" in schema.reasons["!late"]


def test_a_column_that_counts_rows_or_never_changes_is_not_a_feature():
    columns = labelled(np.random.default_rng(5))
    table = pa.table(
        columns | {"match": np.arange(3000) + 7, "build": np.full(3000, 3)}
    )
    schema = ib.open_log(table).schema
    assert schema.features == ("x",)
    assert schema.reasons["!match"] == "it only counts the rows"
    assert ib.open_log(table, {"keep": ["build"]}).schema.features == ("x", "build")


def test_several_times_without_a_clue_are_asked_for():
    rng = np.random.default_rng(6)
    columns = labelled(rng)
    columns["occurred"] = rng.permutation(columns.pop("time"))
    table = pa.table(
        columns | {"born": columns["occurred"] - rng.integers(10**7, 10**8, 3000)}
    )
    with pytest.raises(
        ib.InputError,
        match=r"(?s)to be the time.*--time occurred .*--time born .*--time none",
    ):
        ib.open_log(table)
    assert ib.open_log(table, {"time": "occurred"}).schema.time == "occurred"
