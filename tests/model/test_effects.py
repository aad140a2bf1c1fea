"""Effects over the windows: planted changes are found, with their size and time, in units of the reward."""

from collections import Counter
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import invariant_bandits as ib
from invariant_bandits.decomposition.effects import (
    EffectPath,
    direction_effects,
    effect_paths,
)
from invariant_bandits.decomposition.estimator import block_verdict
from invariant_bandits.features.arm_maps import SharedSlopes
from invariant_bandits.plotting import curves
from invariant_bandits.reports import model_page, values
from news_logs import BREAK, SCHEMA, news_log

plt.switch_backend("Agg")
START = np.datetime64("2024-01-01", "us")


def sigmoid(odds):
    return 1.0 / (1.0 + np.exp(-odds))


def banner_clicks(seed, rounds=16_000, step=0.9):
    """Clicks on two banners over eight weeks: after the fourth week the slope of age of "b" falls by `step`."""
    rng = np.random.default_rng(seed)
    share = np.arange(rounds) / rounds
    age, arm = rng.normal(size=rounds), rng.integers(2, size=rounds)
    slope = np.where(arm == 1, 0.6 - step * (share >= 0.5), 0.3)
    clicked = rng.random(rounds) < sigmoid(-1.0 + slope * age)
    when = START + (share * 56 * 86_400_000_000).astype("timedelta64[us]")
    columns = {
        "time": when,
        "banner": np.array(["a", "b"])[arm],
        "age": age,
        "clicked": clicked.astype(int),
    }
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def model():
    return ib.fit_logs(banner_clicks(0), every="1w")


def test_a_break_is_told_from_what_to_what_and_when_in_probabilities(model):
    effects = model.effects()
    assert effects[effects.drifts][["arm", "effect"]].to_numpy().tolist() == [
        ["b", "age"]
    ]
    first = effects.iloc[0]
    # One standard deviation of age above the mean: the probability falls from 0.401 to 0.214, about 0.269.
    assert first.before == pytest.approx(sigmoid(-0.4) - sigmoid(-1.0), abs=0.03)
    assert first.after == pytest.approx(sigmoid(-1.3) - sigmoid(-1.0), abs=0.03)
    assert first.changed == "2024-01-29"
    assert first.unit == "probability points"
    levels = effects[effects.effect == "level"].set_index("arm")
    assert levels.estimate["a"] == pytest.approx(sigmoid(-1.0), abs=0.02)
    assert levels.unit["a"] == "probability"


def test_curves_cover_the_truth():
    """95 % intervals, 0.004 wider for the estimated level: 24 logs × 8 windows, below 88 % with probability
    0.1 %.
    """
    covered = []
    for seed in range(24):
        frame = ib.fit_logs(banner_clicks(100 + seed, 6000), every="1w").effects(
            by_window=True
        )
        curve = frame[(frame.arm == "b") & (frame.effect == "age")]
        base = sigmoid(np.log(0.269 / 0.731))
        truth = np.where(curve.window <= 4, sigmoid(-0.4), sigmoid(-1.3)) - base
        covered += (
            (curve.low <= truth + 0.004) & (curve.high >= truth - 0.004)
        ).tolist()
    assert len(covered) == 192
    assert np.mean(covered) >= 0.88


def test_frame_json_page_and_terminal_say_the_same(model):
    path = effect_paths(model)[0]
    words = path.in_words(model.moments.edges)
    assert "points, 2024-01-29" in words
    assert f"{100.0 * path.before:+.3g} → {100.0 * path.after:+.3g} points" in words
    assert "b × age" in model_page.headline(model)
    assert words in model_page.report(model)
    (row,) = [
        effect for effect in values.of_model(model)["effects"] if effect["drifts"]
    ]
    curve = model.effects(by_window=True).iloc[:8]
    assert [window["value"] for window in row["windows"]] == curve.value.tolist()
    assert row["before"] == model.effects().before[0]


def test_a_break_of_interest_and_topic_is_named_and_not_blamed_on_articles():
    """40 articles × 8 columns and a catalogue; it alone is named in 39 of 40 such logs of 12,000 rounds."""
    log, catalogue = news_log(3)
    model = ib.fit_logs(log, SCHEMA, catalogue=catalogue)
    effects = model.effects()
    assert isinstance(model.feature_map, SharedSlopes)
    assert effects[effects.drifts][["arm", "effect"]].to_numpy().tolist() == [
        ["topic=sport", "interest"]
    ]
    assert effects.before[0] > 0.04
    assert effects.after[0] < effects.before[0] - 0.1
    broke = START + np.timedelta64(int(BREAK * 80), "D")
    assert abs(np.datetime64(effects.changed[0]) - broke) < np.timedelta64(10, "D")
    assert {"all arms", "topic=science", "length", "article 00"} <= set(effects.arm)


def test_a_slope_that_drifts_in_all_arms_is_named_once():
    rng = np.random.default_rng(1)
    x, arm = rng.normal(size=12_000), rng.choice(["a", "b", "c"], size=12_000)
    slope = np.repeat(rng.normal(size=8), 1500)
    log = pd.DataFrame(
        {
            "x": x,
            "arm": arm,
            "reward": slope * x + (arm == "a") + rng.normal(size=12_000),
        }
    )
    effects = ib.fit_logs(log).effects()
    assert effects[effects.drifts][["arm", "effect"]].to_numpy().tolist() == [
        ["all arms", "x"]
    ]


def test_rows_have_effects_as_well():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(8000, 3)) * np.repeat(
        rng.uniform(0.5, 2.0, (8, 3)), 1000, axis=0
    )
    slope = np.repeat([1.0, -1.0], 4000)
    reward = slope * x[:, 1] + x[:, 0] + rng.normal(size=8000)
    model = ib.fit_logs(
        pd.DataFrame({"reward": reward, **{f"x{j}": x[:, j] for j in range(3)}})
    )
    effects = model.effects()
    assert effects[effects.drifts].effect.tolist() == ["x1"]
    scale = float(x[:, 1].std())
    assert effects.before[0] == pytest.approx(scale, rel=0.15)
    assert effects.after[0] == pytest.approx(-scale, rel=0.15)
    assert effects.changed[0] == "5"


def test_stable_is_said_only_where_a_drift_would_have_been_detected():
    large, small = (
        ib.fit_logs(banner_clicks(7, rounds, step=0.0)) for rounds in (60_000, 1200)
    )
    verdicts = large.effects().set_index(["arm", "effect"]).verdict
    assert verdicts["b", "age"] == verdicts["a", "level"] == "stable"
    slope = small.effects().set_index(["arm", "effect"]).loc[("b", "age")]
    assert slope.verdict == "no drift detected"
    assert slope.detectable > 0.5 * slope.estimate
    said = next(
        path for path in effect_paths(small) if path.title == "b × age"
    ).in_words(None)
    assert said == f"no drift detected above {100.0 * slope.detectable:.2g} points"


def test_indicators_of_missing_values_do_not_look_as_if_they_drifted():
    """Rows with a filled-in value vary five times as much. Equal noise called them drifting in 52 of 100 logs of
    rows and in 78 of 100 of arms; now in 0 of 400 each (1.5 % missing), and in 0 of 400 with 20 % missing.
    """
    named = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, arm = rng.normal(size=(6000, 2)), rng.choice(["a", "b"], size=6000)
        reward = 2.0 * x[:, 0] + x[:, 1] + rng.normal(size=6000)
        x[rng.random(6000) < 0.015, 0] = np.nan
        rows = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "reward": reward})
        for log in (rows, rows.assign(arm=arm)):
            named += [
                path.title for path in effect_paths(ib.fit_logs(log)) if path.drifts
            ]
    assert named == []


@pytest.mark.parametrize("labelled", [True, False])
def test_a_short_last_week_is_not_a_window_of_its_own(labelled):
    log = banner_clicks(3, 8043)
    when = np.minimum(np.arange(8043) / 8000.0, 1.0) * 56 * 86_400_000_000
    log["time"] = START + (when + 1000.0 * np.arange(8043)).astype("timedelta64[us]")
    if not labelled:
        log = log.drop(columns="banner").assign(clicked=log.clicked + 0.5)
    model = ib.fit_logs(log, every="1w")
    assert model.moments.windows == 8
    assert model.moments.counts[-1] == 1043
    assert any(
        "the last window has few rounds (43 rounds, others 1,000)" in note
        for note in model.notes
    )
    if labelled:
        assert model.log_odds.moments.windows == 8
        mean, error = values.recent_rewards(*values.arm_rewards(model))
        assert np.all(error < 0.03)
        assert np.abs(mean - 0.27).max() < 0.06


def test_plots_take_axes_and_return_them(model):
    _, axes = plt.subplots(1, 2)
    drawn = model.plot(axes, theme="dark")
    assert drawn.tolist() == list(axes)
    assert axes[0].get_title(loc="left").startswith("b × age\n")
    assert axes[0].get_ylabel() == "points per sd"
    assert len(model.plot(most=4)) == 6
    assert model.plot(axes[0]).tolist() == [axes[0]]
    plt.close("all")


def test_notebooks_show_results_with_nothing_in_them_as_markup(model):
    html = ib.fit_logs(
        banner_clicks(0).replace("b", "<b>$x$"), every="1w"
    )._repr_html_()
    assert "<svg" in html
    assert "&lt;b&gt;$x$ × age" in html
    assert "<b>" not in html
    logs = ib.simulation.PaperWorld().log(400, np.random.default_rng(0))
    fit = ib.InvariantSubspaceDecomposition()
    assert "InvariantSubspaceDecomposition" in fit._repr_html_()
    assert (
        "no drift detected"
        in fit.fit(logs.features, logs.rewards, windows=4)._repr_html_()
    )
    result = ib.simulate(
        ["linucb", "uniform"],
        ib.simulation.PaperEpisodes(logged=200),
        50,
        replications=2,
        seed=0,
    )
    assert "<svg" in result._repr_html_()
    compared = ib.compare(
        ib.evaluation.Feedback.from_arrays(**played(logs)), ["linucb", "uniform"]
    )
    assert "<svg" in compared._repr_html_()


def played(logs):
    n, k = logs.offered.shape[:2]
    return {
        "offered": logs.offered,
        "actions": logs.actions,
        "rewards": logs.rewards,
    } | {"propensities": np.full(n, 1.0 / k)}


@pytest.mark.parametrize("recipe", ["windowed", "published"])
def test_the_picture_of_a_decomposition_says_what_its_summary_says(recipe):
    """The paper's world as in "The paper in ten minutes": three dimensions drift, in blocks of several."""
    episode = ib.simulation.PaperEpisodes(logged=8000).draw(
        500, np.random.default_rng(7)
    )
    fit = ib.InvariantSubspaceDecomposition(recipe=recipe)
    if recipe == "windowed":
        fit.fit(episode.moments)
        assert fit.split_.residual_dim == 3
        assert len(fit.blocks_) < 10, "some block has several directions"
    else:
        fit.fit(episode.logs.features, episode.logs.rewards)
    effects = direction_effects(fit)
    assert sum(effect.drifts for effect in effects) == fit.split_.residual_dim
    summed = Counter()
    for block, columns in enumerate(fit.blocks_):
        summed[block_verdict(fit, block)] += len(columns)
    assert Counter(effect.verdict for effect in effects) == summed
    for verdict, count in summed.items():
        assert fit.summary().count(f"  {verdict}  ") <= count
        assert verdict in fit.summary()
    axes = fit.plot(most=10)
    titles = [axis.get_title(loc="left") for axis in axes if axis.get_visible()]
    for effect, title in zip(effects, titles, strict=True):
        assert ("no drift detected" in title) == (effect.verdict == "no drift detected")
        assert not (effect.drifts and ("stable" in title or "no drift" in title))


def test_no_curve_leaves_its_frame_and_what_is_beyond_is_marked_at_the_edge():
    """Window 5 knows next to nothing: its value, 40, would flatten the others if the frame held it."""
    values, half = (
        np.array([1.0, 1.1, 0.9, 1.0, 40.0, 1.05]),
        np.array([0.1, 0.1, 0.1, 0.1, 90.0, 0.1]),
    )
    numbers = {
        "estimate": 1.0,
        "error": 0.1,
        "drift": 0.0,
        "detectable": 0.1,
        "p_value": 0.5,
    }
    path = EffectPath(
        **numbers,
        drifts=False,
        arm="",
        name="x",
        values=values,
        low=values - half,
        high=values + half,
    )
    (axis,) = curves([path])
    high = axis.get_ylim()[1]
    assert high < 3.0
    curve, *marked = [
        line for line in axis.lines if line.get_marker() in ("o", "v", "^")
    ]
    drawn = np.asarray(curve.get_ydata(), dtype=float)
    np.testing.assert_array_equal(
        np.isfinite(drawn), [True, True, True, True, False, True]
    )
    (beyond,) = [line for line in marked if len(line.get_xdata())]
    assert (
        beyond.get_marker(),
        list(beyond.get_xdata()),
        list(beyond.get_ydata()),
    ) == ("^", [5], [high])
    assert axis.get_ylabel() == "reward per sd"
    level = replace(path, is_level=True)
    assert curves([level])[0].get_ylabel() == "reward"


def test_effects_are_computed_once_until_the_model_changes(monkeypatch, model):
    model = replace(model)
    computed = []
    arm_evidence = ib.Model.arm_evidence

    def counted(model):
        computed.append(model)
        return arm_evidence(model)

    monkeypatch.setattr(ib.Model, "arm_evidence", counted)
    titles = [path.title for path in effect_paths(model)]
    model_page.report(model)
    assert [path.title for path in effect_paths(model)] == titles
    assert len(computed) == 1
    model.add_arm("a new one")
    assert len(effect_paths(model)) == len(titles)
    assert len(computed) == 2
