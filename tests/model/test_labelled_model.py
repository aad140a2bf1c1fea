"""A model of labelled arms: from the raw log to decisions by label; arms come, go and are never confused."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.features.arm_maps import SharedSlopes, SharedSlopesWarning
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.scan import open_scan
from invariant_bandits.model.fit import FIXED_ARMS, read_log_odds
from invariant_bandits.reports import model_page, values
from labelled_logs import LABELS, labelled_log
from reading import read_feedback, read_moments

CONTEXT = {"age": 31.0, "hour": 9.0, "country": "DE"}


@pytest.fixture(scope="module")
def log():
    return labelled_log(0, 12_000)


@pytest.fixture
def model(log):
    return ib.fit_logs(log.table(), every="30d")


def best_arm(log, age, among):
    """By the planted truth: levels plus slopes of the standardised age."""
    values = log.truth[:, 0] + log.truth[:, 1] * (age - 40.0) / 10.0
    return LABELS[max(among, key=lambda arm: values[arm])]


def test_a_raw_log_becomes_a_model_that_decides_by_label(model, log):
    """Ages 20 to 60, away from where two arms are equally good; the gap there is at least 0.4 in the
    log-odds.
    """
    assert model.arms.active == ("banner_A", "banner_B", "banner_D")
    for age in (20.0, 25.0, 52.0, 60.0):
        decision = model.decide({"age": age, "hour": 12.0, "country": "FR"})
        assert decision.action == best_arm(log, age, (0, 1, 3))
        assert set(decision.scores) == set(model.arms.active)
        assert all(0.0 < score < 1.0 for score in decision.scores.values())
        assert decision.propensity == 1.0


def test_expected_rewards_are_the_planted_chances(model, log):
    """4,000 rounds an arm: a chance is known to about 0.015; four of that."""
    for age in (30.0, 40.0, 50.0):
        scores = model.decide({"age": age, "hour": 12.0, "country": "FR"}).scores
        for arm in (0, 1, 3):
            odds = log.truth[arm, 0] + log.truth[arm, 1] * (age - 40.0) / 10.0
            assert scores[LABELS[arm]] == pytest.approx(
                1.0 / (1.0 + np.exp(-odds)), abs=0.06
            )


def test_other_names_of_the_arms_change_no_decision(log):
    names = dict(zip(LABELS, ("zebra", "ant", "mole", "bee"), strict=True))
    table = log.table()
    renamed = table.set_column(
        table.column_names.index("banner"),
        "banner",
        pa.array([names[label] for label in log.labels]),
    )
    one, other = ib.fit_logs(table, every="30d"), ib.fit_logs(renamed, every="30d")
    rng = np.random.default_rng(1)
    for _ in range(60):
        context = {
            "age": rng.normal(40, 10),
            "hour": rng.uniform(0, 24),
            "country": rng.choice(["DE", "FR"]),
        }
        mine, theirs = one.decide(context), other.decide(context)
        assert names[mine.action] == theirs.action
        reward = float(rng.random() < 0.4)
        one.learn(mine, reward)
        other.learn(theirs, reward)


def test_deciding_and_learning_are_selecting_and_updating(log):
    by_label, by_row = (ib.fit_logs(log.table(), every="30d") for _ in range(2))
    rng = np.random.default_rng(2)
    made = []
    for _ in range(20):
        context = {
            "age": rng.normal(40, 10),
            "hour": rng.uniform(0, 24),
            "country": "FR",
        }
        labels = list(rng.permutation(["banner_A", "banner_B", "banner_D"])[:2])
        decision = by_label.decide(context, labels)
        offered = {**context, "banner": labels}
        assert decision.action == labels[by_row.select(offered)]
        made.append(
            (
                decision,
                offered,
                labels.index(decision.action),
                float(rng.random() < 0.4),
            )
        )
    for decision, offered, place, reward in reversed(made):
        by_label.learn(decision.id, reward)
        by_row.update(offered, place, reward)
    np.testing.assert_array_equal(
        by_label.policy.arrays()["means"], by_row.policy.arrays()["means"]
    )


def test_unknown_and_retired_labels_are_named(model):
    for arms, words in (
        (
            ["banner_X"],
            "'banner_X' is not known; the arms are banner_A, banner_B, banner_C, banner_D",
        ),
        (
            ["banner_A", "banner_C"],
            "'banner_C' is retired; the active ones are banner_A, banner_B, banner_D",
        ),
        (["banner_A", "banner_A"], "different labels"),
        ([], "different labels, at least one"),
        ("banner_A", "must be a list of labels"),
    ):
        with pytest.raises(ib.InputError, match=words):
            model.decide(CONTEXT, arms)
    with pytest.raises(ib.InputError, match=r"^context: no value for hour; needed: "):
        model.decide({"age": 31.0, "country": "DE"})
    assert model.ledger.made == 0


def test_a_new_arm_is_tried_and_learned_and_a_retired_one_is_never_chosen_again(
    model, tmp_path
):
    """The new arm always earns, the others never do: after 200 rounds it must have been found."""
    waiting = model.decide(CONTEXT)
    before = model.identity
    model.add_arm("banner_E")
    model.retire_arm("banner_A")
    assert model.identity != before
    for words, change in (
        ("labels are never used again", lambda: model.add_arm("banner_A")),
        ("labels are never used again", lambda: model.add_arm("banner_C")),
        ("not known", lambda: model.retire_arm("banner_Z")),
        ("not empty", lambda: model.add_arm("")),
        ("without a catalogue", lambda: model.add_arm("banner_F", {"size": 1.0})),
    ):
        with pytest.raises(ib.InputError, match=words):
            change()
    assert model.learn(waiting, 1.0)  # decided before there was a new arm
    chosen = []
    for turn in range(300):
        if turn == 150:
            model.save(tmp_path / "model")
            model = ib.Model.load(tmp_path / "model")
        decision = model.decide(CONTEXT)
        chosen.append(decision.action)
        model.learn(decision, float(decision.action == "banner_E"))
    assert set(chosen) <= {"banner_B", "banner_D", "banner_E"}
    assert chosen[200:].count("banner_E") == 100
    for label in ("banner_B", "banner_D"):
        model.retire_arm(label)
    with pytest.raises(ib.InputError, match="only active one"):
        model.retire_arm("banner_E")


def test_a_new_arm_begins_from_what_its_features_say():
    """Clicks follow the size of a banner: a new large one is expected to earn more than a new small one."""
    rng = np.random.default_rng(3)
    labels, n = [f"b{i:02d}" for i in range(20)], 20_000
    size = np.linspace(-1.0, 1.0, 20)
    arms = rng.integers(20, size=n)
    click = rng.random(n) < 1.0 / (1.0 + np.exp(1.0 - 1.5 * size[arms]))
    table = pa.table(
        {
            "banner": np.array(labels)[arms],
            "age": rng.normal(size=n),
            "click": click.astype(int),
        }
    )
    catalogue = pa.table({"banner": labels, "size": 10.0 * size + 50.0})
    model = ib.fit_logs(table, catalogue=catalogue)
    model.add_arm("large", {"size": 60.0})
    model.add_arm("small", {"size": 40.0})
    scores = model.decide({"age": 0.0}, ["large", "small"]).scores
    assert scores["large"] > scores["small"] + 0.2
    with pytest.raises(
        ib.InputError, match="colour are not of the catalogue, which has size"
    ):
        model.add_arm("odd", {"colour": "red"})
    with pytest.raises(ib.InputError, match="size must be numbers"):
        model.add_arm("odd", {"size": "big"})


def test_a_row_of_a_frame_is_a_context(model):
    frame = pd.DataFrame([CONTEXT, CONTEXT | {"age": 60.0}])
    wanted = model.decide(CONTEXT).scores
    for row in (
        frame.iloc[0],
        next(frame.itertuples()),
        pl.from_pandas(frame).row(0, named=True),
        frame[:1],
    ):
        assert model.decide(row).scores == wanted
    many = model.decide_many(frame)
    assert list(many["scores"]) == [wanted, model.decide(frame.iloc[1]).scores]


def test_an_unknown_category_is_counted_and_said_once(model):
    with pytest.warns(
        UserWarning, match="column 'country': 'XX' is none of the 2 categories"
    ):
        model.decide(CONTEXT | {"country": "XX"})
    for country in ("DE", "XX", "YY", None):  # a second warning would be an error
        model.decide(CONTEXT | {"country": country})
    assert model.unknown_categories == {"country": {"XX": 2, "YY": 1}}


def test_frames_go_in_and_come_out(model):
    contexts = pd.DataFrame(
        {"age": [20.0, 60.0], "hour": 9.0, "country": "DE"}, index=[7, 9]
    )
    made = model.decide_many(contexts)
    assert list(made.columns) == ["id", "action", "propensity", "scores", "version"]
    assert list(made.index) == [7, 9]
    assert [
        item.action for item in model.decide_many(contexts.to_dict("records"))
    ] == list(made["action"])
    assert model.decide(contexts.iloc[:1]).action == made["action"].iloc[0]
    assert model.learn_many(zip(made["id"], [1.0, 0.0], strict=True)) == 2
    with pytest.raises(ib.InputError, match="one row"):
        model.decide(contexts)


@pytest.mark.parametrize("policy", ["linucb", "frozen", "epsilon-greedy"])
def test_other_policies_decide_among_arms_too(policy, log):
    model = ib.fit_logs(log.table(), policy=policy)
    assert (
        model.decide({"age": 60.0, "hour": 9.0, "country": "DE"}).scores["banner_D"]
        > 0.4
    )
    with pytest.raises(ib.InputError, match="cannot take new arms"):
        model.add_arm("banner_E")


def test_the_log_is_evaluated_as_it_is(log):
    read = read_feedback(log.table())
    found = ib.compare(read.feedback, ["auto-isd", "uniform"])
    assert found.verdict("auto-isd").startswith("yes, by")
    assert found.verdict("uniform").startswith("no difference")


def test_the_page_names_arms_and_effects_and_what_drifts():
    """The slope of age of one arm is drawn anew every month; everything else is still."""
    rng = np.random.default_rng(5)
    n, months = 24_000, 12
    age, arm, month = (
        rng.normal(size=n),
        rng.integers(3, size=n),
        np.arange(n) * months // n,
    )
    slope = np.tile([0.5, 0.0, -0.5], (months, 1))
    slope[:, 1] += rng.normal(size=months)
    chance = 1.0 / (1.0 + np.exp(0.8 - slope[month, arm] * age))
    click = (rng.random(n) < chance).astype(int)
    table = pa.table(
        {
            "ad": np.array(["a<b", "b$", "c"])[arm],
            "age": age,
            "hour": rng.normal(size=n),
            "click": click,
        }
    )
    model = ib.fit_logs(table, windows=months)
    words = model_page.text(model)
    assert "1 of 12 effects drift (b$ × age)" in words
    found = values.of_model(model)
    assert [
        (effect["arm"], effect["of"]) for effect in found["effects"] if effect["drifts"]
    ] == [("b$", "age")]
    assert found["drifting_dim"] == 1
    page = model_page.report(model)
    assert "a&lt;b" in page
    assert "a<b" not in page
    model.add_arm("new")
    assert "new" in model_page.text(model)
    as_linucb = ib.fit_logs(table, policy="linucb", windows=months)
    assert "(b$ × age)" in model_page.headline(as_linucb)


def test_a_few_clicks_of_many_arms_are_no_evidence_of_anything():
    """About 50 clicks of 30 arms, nothing drifts and no context matters: nothing of that kind is claimed."""
    rng = np.random.default_rng(6)
    n = 10_000
    context = {f"x{j}": rng.normal(size=n) for j in range(8)}
    labels = np.array([f"item {j}" for j in range(30)])[rng.integers(30, size=n)]
    table = pa.table(
        {**context, "item": labels, "click": (rng.random(n) < 0.005).astype(int)}
    )
    with pytest.warns(SharedSlopesWarning):
        model = ib.fit_logs(table)
    prior = model.arm_evidence()[0].prior
    assert isinstance(model.feature_map, SharedSlopes)
    assert abs(np.mean(prior.mean[:30]) - np.log(0.005 / 0.995)) < 0.6
    assert np.abs(prior.mean[30:]).max() < 0.3
    assert not any(effect.drifts for effect in prior.effects)
    assert "30 have too few clicks to tell" in model_page.headline(model)


def test_a_randomised_model_of_arms_stays_randomised_when_an_arm_joins(log):
    model = ib.fit_logs(
        log.table(), every="30d", policy="randomised-auto-isd,floor=0.2"
    )
    model.add_arm("banner_Z")
    decision = model.decide(CONTEXT)
    assert set(decision.scores) == {*model.arms.active} >= {"banner_Z"}
    assert decision.propensity in (pytest.approx(0.05), pytest.approx(0.85))
    drawn = {
        model.decide(CONTEXT).action for _ in range(400)
    }  # one arm is missed with probability 4 · 0.95^400 = 5e-9
    assert drawn == set(model.arms.active)
    model.learn(decision, 1.0)
    assert (type(model.policy), model.policy.floor, model.policy.rounds) == (
        ib.Randomised,
        0.2,
        1,
    )


def test_a_model_takes_this_months_log_as_if_all_had_been_there_at_once(log, tmp_path):
    """The same features and the same point of expansion: the same statistics, policy and decisions, bit
    for bit.
    """
    table, every = log.table(), "30d"
    cut = int(np.searchsorted(log.times, log.times[0] + np.timedelta64(300, "D")))
    earlier, later = table.slice(0, cut), table.slice(cut)
    before = ib.fit_logs(earlier, every=every)
    before.save(tmp_path / "model")
    update = ib.Model.load(tmp_path / "model").update_from(later)
    after = update.model
    whole = read_moments(
        table, edges=after.moments.edges, features=before.feature_map
    ).moments
    np.testing.assert_allclose(after.moments.gram, whole.gram, rtol=1e-9, atol=1e-7)
    np.testing.assert_array_equal(after.moments.counts, whole.counts)
    scan = open_scan(open_log(table), edges=after.moments.edges)
    odds = read_log_odds(scan, before.feature_map, before.log_odds.theta)
    np.testing.assert_allclose(
        after.log_odds.moments.gram, odds.moments.gram, rtol=1e-9, atol=1e-7
    )
    assert sum(arm.plays for arm in after.arms.arms) == len(log.times)
    assert after.arms.active == before.arms.active
    assert "new rounds" in model_page.text(update.model, update)


def test_a_label_that_is_new_in_this_months_log_becomes_an_arm(log):
    cut = int(
        np.searchsorted(log.times, log.times[0] + np.timedelta64(210, "D"))
    )  # before banner_D was launched
    table = log.table()
    before = ib.fit_logs(table.slice(0, cut), every="30d")
    assert "banner_D" not in before.arms.labels
    after = before.update_from(table.slice(cut)).model
    assert after.arms.labels[-1] == "banner_D"
    decision = after.decide({"age": 60.0, "hour": 9.0, "country": "DE"})
    odds = log.truth[3] @ [1.0, 2.0]
    assert decision.scores["banner_D"] == pytest.approx(
        1.0 / (1.0 + np.exp(-odds)), abs=0.1
    )


def test_isd_linucb_runs_on_labelled_logs_whatever_the_arms_are_called():
    """No arm is the reference: other names, in another order, lead to the same scores and decisions."""
    table = labelled_log(3).table()
    names = {"banner_A": "z", "banner_B": "c", "banner_C": "q", "banner_D": "a"}
    renamed = table.set_column(
        1, "banner", pa.array([names[word] for word in table["banner"].to_pylist()])
    )
    one, other = (
        ib.fit_logs(log, policy="isd-linucb", every="30d") for log in (table, renamed)
    )
    assert one.policy.split.dim == one.feature_map.dim
    rng = np.random.default_rng(0)
    for _ in range(100):
        context = {
            "age": rng.normal(40.0, 10.0),
            "hour": rng.uniform(0.0, 24.0),
            "country": "DE",
        }
        mine, theirs = one.decide(context), other.decide(context)
        assert theirs.scores == pytest.approx(
            {names[arm]: score for arm, score in mine.scores.items()}
        )
        assert theirs.action == names[mine.action]
        reward = float(rng.integers(2))
        one.learn(mine, reward)
        other.learn(theirs, reward)
    assert "drifting" in str(one.explain())


def _log_of_fixed_arms(with_context):
    rng = np.random.default_rng(5)
    arms = rng.integers(3, size=3000)
    columns = {
        "arm": np.array(["a", "b", "c"])[arms],
        "reward": arms + rng.normal(size=3000),
    }
    if with_context:
        columns["age"] = rng.normal(size=3000)
    return pa.table(columns)


def test_fit_recommends_tests_without_limit_where_every_round_offers_the_same_arms():
    log = _log_of_fixed_arms(with_context=False)
    model = ib.fit_logs(log)
    assert FIXED_ARMS in model.notes
    assert "--caution none" in model_page.report(model)
    unlimited = ib.fit_logs(log, caution=None)
    assert unlimited.policy.caution is None
    assert FIXED_ARMS not in unlimited.notes
    assert FIXED_ARMS not in ib.fit_logs(_log_of_fixed_arms(with_context=True)).notes
    assert FIXED_ARMS not in ib.fit_logs(log, policy="linucb").notes


def test_caution_goes_to_policies_that_have_it_and_stays_with_the_model():
    log = _log_of_fixed_arms(with_context=False)
    model = ib.fit_logs(log, policy="randomised", caution=0.02)
    assert model.policy.policy.caution == 0.02
    unlimited = ib.fit_logs(log, caution=None)
    assert unlimited.update_from(log.slice(0, 500)).model.policy.caution is None
    with pytest.raises(ib.InputError, match="'linucb' has no option 'caution'"):
        ib.fit_logs(log, policy="linucb", caution=None)
