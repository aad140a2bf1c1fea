"""A number bears the name of what it is, ends where the logs ended, and keeps its unit from `fit` to `update`."""

import numpy as np
import pandas as pd
import pytest

import invariant_bandits as ib
from invariant_bandits.decomposition.effects import direction_effects, effect_paths
from invariant_bandits.reports import model_page, values

WINDOWS, PER_WINDOW = 8, 1500
ROUNDS = WINDOWS * PER_WINDOW
LATE = np.arange(ROUNDS) >= ROUNDS // 2


def mixed_fit(seed=1):
    """The coefficient of x0 is −0.1 throughout, that of x1 goes from 0.5 to 1.5; both given directions mix
    them.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROUNDS, 3))
    slope = np.where(LATE, 1.5, 0.5)
    rewards = -0.1 * x[:, 0] + slope * x[:, 1] + x[:, 2] + rng.normal(size=ROUNDS)
    mostly_x0 = np.array([0.9, np.sqrt(0.19), 0.0])
    mostly_x1 = np.array([-np.sqrt(0.19), 0.9, 0.0])
    blocks = [mostly_x0[:, None], mostly_x1[:, None], np.eye(3)[:, [2]]]
    fit = ib.InvariantSubspaceDecomposition(
        blocks=blocks, feature_names=["x0", "x1", "x2"]
    )
    return fit.fit(x, rewards, windows=WINDOWS)


def test_a_drifting_direction_does_not_name_a_feature_that_stays_as_it_is():
    """Along 0.9·x0 + 0.44·x1 the coefficient goes from +0.13 to +0.56, all of it because of x1."""
    effects = direction_effects(mixed_fit())
    assert {effect.name for effect in effects} == {"x1", "x2"}


def test_features_that_are_correlated_with_a_drifting_one_are_not_named():
    """The top tenth of a score loses its effect, as the first position of a ranking does.

    The score is that of x0 and x1; x1 and x2 have no effect. Each fit names one of them with a probability of
    about 1 %, so that two of ten do with 0.5 %.
    """
    false = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(ROUNDS, 3))
        top = x[:, 1] + 0.6 * x[:, 0] > 1.0
        rewards = np.where(LATE, 0.5, 1.0) * x[:, 0] + np.where(LATE, 0.6, 1.5) * top
        rewards += rng.normal(size=ROUNDS)
        fit = ib.InvariantSubspaceDecomposition(feature_names=["x0", "x1", "x2", "top"])
        fit.fit(np.column_stack([x, top]), rewards, windows=WINDOWS)
        said = [effect.name for effect in direction_effects(fit) if effect.drifts]
        assert {"x0", "top"} <= set(" ".join(said).replace("·", " ").split())
        false += any("x1" in name or "x2" in name for name in said)
    assert false <= 1


def test_a_direction_named_by_one_feature_has_the_feature_s_own_numbers():
    """Along 0.9·x1 − 0.44·x0 the coefficient goes from 0.49 to 1.39, that of x1 from 0.5 to 1.5."""
    x1 = next(
        effect for effect in direction_effects(mixed_fit()) if effect.name == "x1"
    )
    assert (x1.before, x1.after) == pytest.approx((0.5, 1.5), abs=0.06)
    assert x1.windows == (WINDOWS // 2,)


def clicks_of_rows(seed=0, drift=True):
    """Clicks on rows with correlated columns; the coefficient of x1 changes its sign half-way."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROUNDS, 3)) @ np.array(
        [[1.0, 0.4, 0.2], [0.0, 1.0, 0.4], [0.0, 0.0, 1.0]]
    )
    x *= np.repeat(rng.uniform(0.6, 1.5, (WINDOWS, 3)), PER_WINDOW, axis=0)
    slope = np.where(LATE & drift, -0.08, 0.08)
    chance = np.clip(
        0.4 + slope * x[:, 1] - 0.02 * x[:, 0] + 0.04 * x[:, 2], 0.01, 0.99
    )
    columns = {f"x{j}": x[:, j] for j in range(3)}
    return pd.DataFrame({"clicked": (rng.random(ROUNDS) < chance) * 1, **columns})


@pytest.fixture(scope="module")
def rows_model():
    return ib.fit_logs(clicks_of_rows(), {"reward": "clicked", "arm": None}, windows=8)


def test_every_effect_with_the_name_of_a_feature_agrees_with_the_table_of_features(
    rows_model,
):
    said = values.of_model(rows_model)
    features = {row["name"]: row for row in said["features"]}
    named = [row for row in said["effects"] if row["effect"] in features]
    assert named
    for row in named:
        own = features[row["effect"]]
        assert row["estimate"] / row["error"] == pytest.approx(
            own["coefficient"] / own["error"]
        )
        assert row["last"] / row["last_error"] == pytest.approx(
            own["last_coefficient"] / own["last_error"]
        )


def test_effects_of_clicks_are_points_for_rows_as_for_arms(rows_model):
    effects = rows_model.effects()
    assert set(effects.unit) == {"probability points"}
    drifting = next(path for path in effect_paths(rows_model) if path.drifts)
    words = drifting.in_words(None)
    assert (
        f"{100.0 * drifting.before:+.3g} → {100.0 * drifting.after:+.3g} points"
        in words
    )
    assert f"last window {100.0 * drifting.last:+.3g}" in words
    text = model_page.text(rows_model)
    assert "numbers are in percentage points" in " ".join(text.split())
    assert f"{100.0 * drifting.estimate:+.3g} ± {100.0 * drifting.error:.2g}" in text


def arms_log(slope, rounds=ROUNDS, seed=0, clicks=False):
    """Two arms; the slope of b is `slope` (n,), in log-odds for clicks."""
    rng = np.random.default_rng(seed)
    x, arm = rng.normal(size=rounds), rng.integers(2, size=rounds)
    mean = np.where(arm == 1, slope, 0.3) * x
    if clicks:
        reward = (rng.random(rounds) < 1.0 / (1.0 + np.exp(1.0 - mean))).astype(float)
    else:
        reward = mean + rng.normal(size=rounds)
    return pd.DataFrame({"arm": np.array(["a", "b"])[arm], "x": x, "reward": reward})


def slope_of_b(model):
    return next(path for path in effect_paths(model) if path.title == "b × x")


def test_a_slow_drift_is_told_with_its_first_and_last_value():
    """From +0.5 to −0.5 on a line: ±0.44 in the middles of the first and last of eight windows, where the line
    has an error of 0.065. One break explains so short a log as well, but fits less.
    """
    log = arms_log(np.linspace(0.5, -0.5, 1600), rounds=1600)
    path = slope_of_b(ib.fit_logs(log, windows=8))
    assert path.windows == (0, 7)
    assert (path.before, path.after) == pytest.approx((0.44, -0.44), abs=0.3)
    assert path.in_words(None).endswith(", 1 to 8")


def test_a_break_is_told_with_the_last_window_beside_it():
    path = slope_of_b(ib.fit_logs(arms_log(np.where(LATE, -0.5, 0.5)), windows=8))
    assert path.windows == (4,)
    said = f"; last window {path.last:+.3g} ± {path.last_error:.2g}"
    assert path.in_words(None).endswith(said)
    assert path.last == path.values[-1]
    # A window has 750 rounds of b, so that its error is 0.037; five of these.
    assert path.last == pytest.approx(-0.5, abs=5 * 0.037)


def two_parts(clicks):
    """A log whose slope of b broke half-way, and a later one in which nothing moved."""
    size = 1.0 if clicks else 0.5
    earlier = arms_log(np.where(LATE, -size, size), clicks=clicks)
    return earlier, arms_log(np.full(3000, -size), rounds=3000, seed=1, clicks=clicks)


@pytest.mark.parametrize("clicks", [False, True])
def test_a_drift_within_the_logs_has_not_moved_since(clicks):
    """Against the mean over all windows its z is beyond −8; against the end of the logs, 4 by chance in one of
    16,000.
    """
    earlier, later = two_parts(clicks)
    before = ib.fit_logs(earlier, windows=8, policy="linucb")
    update = before.update_from(later)
    move = next(move for move in update.moves if move.name == "b × x")
    end = slope_of_b(before)
    assert end.drifts
    assert (move.before, move.before_error) == pytest.approx((end.last, end.last_error))
    assert abs(move.z) < 4.0
    assert move.unit == ("probability points" if clicks else "reward")
    assert not any(row["moved"] for row in values.moves(update))
    factor = 100.0 if clicks else 1.0
    assert (
        f"{factor * move.now:+.3g} ± {factor * move.now_error:.2g}"
        in model_page.text(update.model, update)
    )


def test_of_clicks_a_move_is_in_the_probabilities_that_fit_names():
    """The slope of b is −1 in log-odds at a level of −1: it takes 0.269 to 0.119."""
    earlier, later = two_parts(True)
    update = ib.fit_logs(earlier, windows=8, policy="linucb").update_from(later)
    moves = {move.name: move for move in update.moves}
    assert moves["b × x"].now == pytest.approx(0.119 - 0.269, abs=0.06)
    assert moves["b"].unit == "probability"
    assert moves["b"].now == pytest.approx(0.269, abs=0.06)


def test_of_rows_a_drift_within_the_log_has_not_moved_since(rows_model):
    later = clicks_of_rows(seed=1).iloc[ROUNDS // 2 : ROUNDS // 2 + 3000]
    update = rows_model.update_from(later)
    move = next(move for move in update.moves if move.name == "x1")
    assert abs(move.z) < 4.0
    assert move.before < -2.0 * move.before_error
    assert move.unit == "probability points"
