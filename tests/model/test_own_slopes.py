"""The context reaches the choice: arms have own slopes, and what cannot change the choice is said first."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.checks import InputError
from invariant_bandits.evaluation.comparison import expected_value
from invariant_bandits.features import sharing
from invariant_bandits.features.arm_maps import (
    OwnCoefficients,
    SharedSlopes,
    SharedSlopesWarning,
)
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.reports import model_page, values
from linear_logs import SCHEMA, linear_log
from reading import read_feedback

SILENT = "The context cannot change the choice, every context gets the same arm: all 6 arms share the slopes"


@pytest.mark.parametrize(
    "world",
    [
        {"arms": 8, "columns": 18, "rounds": 8000},
        {"arms": 4, "categories": 40, "rounds": 8000},
        pytest.param(
            {"arms": 10, "columns": 40, "rounds": 16_000}, marks=pytest.mark.slow
        ),
    ],
    ids=["8 × 18", "4 × one category of 40", "10 × 40"],
)
def test_decisions_earn_what_the_best_linear_policy_does(world):
    """Shared slopes earn at most a tenth of it; the seeds are fixed."""
    planted = linear_log(1, **world)
    model = ib.fit_logs(planted.log, SCHEMA)
    assert isinstance(model.feature_map, OwnCoefficients)
    assert model.shared_slopes is None
    assert planted.share_of_best(model) >= 0.95


def test_a_log_with_two_rounds_per_coefficient_gets_own_slopes_where_they_differ():
    """252 coefficients and 600 rounds; own slopes earn about .6 of the best, shared ones nothing."""
    planted = linear_log(2, arms=12, columns=20, rounds=600)
    model = ib.fit_logs(planted.log, SCHEMA)
    assert isinstance(model.feature_map, OwnCoefficients)
    assert planted.share_of_best(model) > 0.4


@pytest.fixture(scope="module")
def shared():
    """A log of 600 rounds whose arms have equal slopes, and the model of it."""
    planted = linear_log(3, arms=6, columns=20, rounds=600, differing=0)
    with pytest.warns(SharedSlopesWarning) as said:
        model = ib.fit_logs(planted.log, SCHEMA)
    return planted, model, str(said[0].message)


def test_shared_slopes_are_said_first_everywhere(shared):
    _, model, warning = shared
    assert isinstance(model.feature_map, SharedSlopes)
    for said in (
        warning,
        str(model.explain()),
        model_page.headline(model),
        values.warnings(model)[0],
    ):
        assert said.startswith(SILENT)
        assert "--arm-model own" in said
    read_first = next(
        section
        for section in model_page.sections(model)
        if section.title == "Read this first"
    )
    assert read_first.words[0].startswith(SILENT)
    assert model.explain().to_dict()["caution"].startswith(SILENT)
    again = ib.Model.from_bytes(model.to_bytes(), "again")
    assert again.shared_slopes == model.shared_slopes
    with pytest.warns(SharedSlopesWarning):
        linucb = ib.fit_logs(shared[0].log, SCHEMA, policy="linucb")
    assert linucb.explain().startswith(SILENT)


def test_the_warning_is_true(shared):
    planted, model, _ = shared
    assert len({model.select(context) for context in planted.contexts}) == 1


@pytest.fixture(scope="module")
def partial():
    """4 arms × 41 coefficients where a model carries 100; arms differ in the slopes of five columns."""
    planted = linear_log(4, arms=4, columns=40, rounds=4000, differing=5)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(sharing, "MOST_COEFFICIENTS", 100)
        with pytest.warns(
            SharedSlopesWarning, match=r"^These columns cannot change the choice"
        ) as said:
            model = ib.fit_logs(planted.log, SCHEMA)
    return planted, model, str(said[0].message)


def test_a_log_with_too_many_columns_has_own_slopes_where_arms_differ_most(partial):
    planted, model, warning = partial
    encoding = model.feature_map
    assert encoding.own_slopes == 18
    assert {f"x{j:03d}" for j in range(5)} <= set(
        encoding.context_names[1 : encoding.own]
    )
    assert planted.share_of_best(model) >= 0.95
    silent = encoding.silent_columns
    assert len(silent) == 40 - 18
    assert all(name in warning for name in silent[:20])
    assert values.warnings(model)[0] == warning


def test_columns_that_cannot_change_the_choice_do_not(partial):
    planted, model, _ = partial
    context = planted.contexts[0]
    moved = {**context, **dict.fromkeys(model.feature_map.silent_columns, 9.0)}
    here, there = model.scores(context).mean, model.scores(moved).mean
    np.testing.assert_allclose(here - here[0], there - there[0], atol=1e-9)


def test_a_model_with_some_own_slopes_serves_learns_and_grows(partial):
    planted, model, _ = partial
    model = ib.Model.from_bytes(model.to_bytes(), "again")
    context = planted.contexts[1]
    before = model.scores(context).mean
    for _ in range(5):
        model.learn(model.decide(context), 50.0)
    assert model.scores(context).mean.max() > before.max()
    model.add_arm("new")
    assert "new" in model.decide(context).scores
    drifting = model.effects().drifts
    assert len(drifting) > 4 * 19 + 22
    assert not drifting.any()


@pytest.fixture(scope="module")
def blocks():
    """8 arms × 27 coefficients, more than one covariance matrix carries; arm03's first slope breaks."""
    planted = linear_log(8, arms=8, columns=26, rounds=10_000)
    log = planted.log
    step = (log["arm"].to_numpy() == "arm03") & (np.arange(10_000) >= 5000)
    moved = log["reward"].to_numpy() + 1.5 * step * log["x000"].to_numpy()
    log = log.set_column(log.column_names.index("reward"), "reward", pa.array(moved))
    return planted, log, ib.fit_logs(log, SCHEMA)


def test_many_arms_have_a_covariance_each_and_the_slope_that_breaks_is_named(blocks):
    model = blocks[2]
    assert isinstance(model.feature_map, OwnCoefficients)
    assert model.policy.covariances.shape == (8, 27, 27)
    effects = model.effects()
    # 242 other effects at a level of 5 % together; the seed is fixed.
    named = effects[effects.drifts]
    assert named[["arm", "effect"]].to_numpy().tolist() == [["arm03", "x000"]]
    assert float(named["after"].iloc[0] - named["before"].iloc[0]) == pytest.approx(
        1.5, abs=0.3
    )
    assert "what all 8 arms share" in str(model.explain())


def test_a_model_with_a_covariance_per_arm_is_stored_learns_grows_and_is_updated(
    blocks,
):
    planted, log, model = blocks
    model = ib.Model.from_bytes(model.to_bytes(), "again")
    context = planted.contexts[1]
    assert model.decide(context, id="a") == blocks[2].decide(context, id="a")
    best = model.decide(context).action
    before = model.scores(context).mean
    for _ in range(5):
        model.learn(model.decide(context), -50.0)
    after = model.scores(context).mean
    # The arm that was played falls more than the others, which share its slopes.
    fall = before - after
    assert fall.argmax() == model.arms.labels.index(best)
    model.add_arm("new")
    assert "new" in model.decide(context).scores
    with pytest.raises(InputError, match="1 for the level of one arm"):
        model.policy.select(np.ones((2, model.policy.dim)))
    early = ib.fit_logs(log.slice(0, 5000), SCHEMA)
    update = early.update_from(log.slice(5000))
    assert update.moves[0].name == "arm03 × x000"
    assert update.model.moments.rounds == 10_000


def test_own_slopes_are_used_where_the_catalogue_does_not_explain_them():
    """Products with a feature that says nothing of the slopes cannot carry the context: .3 of the best."""
    planted = linear_log(5, arms=10, columns=15, rounds=4000)
    labels = [f"arm{place:02d}" for place in range(10)]
    catalogue = pa.table(
        {"arm": labels, "price": np.random.default_rng(0).normal(size=10)}
    )
    model = ib.fit_logs(planted.log, SCHEMA, catalogue=catalogue)
    assert isinstance(model.feature_map, OwnCoefficients)
    assert planted.share_of_best(model) >= 0.9


@pytest.mark.parametrize(("columns", "is_said"), [(15, False), (24, True)])
def test_a_catalogue_that_no_longer_relates_the_arms_is_said(columns, is_said):
    planted = linear_log(5, arms=10, columns=columns, rounds=6000)
    labels = [f"arm{place:02d}" for place in range(10)]
    catalogue = pa.table(
        {"arm": labels, "price": np.random.default_rng(0).normal(size=10)}
    )
    model = ib.fit_logs(planted.log, SCHEMA, catalogue=catalogue)
    assert isinstance(model.feature_map, OwnCoefficients)
    said = [note for note in model.notes if "does not relate the arms" in note]
    assert bool(said) == is_said


def test_simple_policies_have_own_slopes_in_every_comparison():
    """The gain of own slopes is 1.2 standard deviations of the noise per round; 1,500 rounds show it."""
    planted = linear_log(6, arms=6, columns=5, rounds=3000)
    read = read_feedback(
        planted.log, SCHEMA, features=FeatureOptions(arm_model="shared")
    )
    result = ib.compare(
        read, ["auto-isd", "linucb-warm", "frozen"], settings="published"
    )
    gains = {name: result.line(name).against_log for name in result.policies}
    assert gains["linucb-warm"].value > gains["auto-isd"].value + 0.5
    assert gains["frozen"].value > gains["auto-isd"].value + 0.5
    assert result.notes[0].startswith("the context cannot change the choice")
    own = read_feedback(planted.log, SCHEMA)
    same = ib.compare(own, ["auto-isd", "linucb-warm", "frozen"], settings="published")
    assert same.line("frozen").value.value == pytest.approx(
        result.line("frozen").value.value
    )
    assert not any("cannot change the choice" in note for note in same.notes)


def test_what_a_fit_says_it_would_have_earned_is_set_beside_own_slopes():
    planted = linear_log(6, arms=6, columns=5, rounds=3000)
    with warnings.catch_warnings(action="ignore", category=SharedSlopesWarning):
        model = ib.fit_logs(planted.log, SCHEMA, arm_model="shared")
    value = expected_value(
        model, planted.log, features=FeatureOptions(arm_model="shared")
    )
    gain = {line["policy"]: line["gain"] for line in value["lines"]}
    assert gain["frozen"] > gain["auto-isd"] + 0.5


def test_categories_without_a_feature_are_counted():
    planted = linear_log(7, arms=2, categories=30, rounds=3000)
    model = ib.fit_logs(planted.log, SCHEMA, features=FeatureOptions(max_categories=20))
    note = next(note for note in model.notes if "have no feature" in note)
    assert note.startswith("10 of 30 categories of country (")
    assert "--max-categories 30" in note
