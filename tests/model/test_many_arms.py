"""Logs of more labels than can have coefficients of their own: levels are pooled, slopes shared."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.checks import InputError
from invariant_bandits.features.arm_maps import SharedSlopesWarning
from invariant_bandits.reports.model_page import report, text
from many_arms import SPORT, many_arms
from reading import read_rounds

CONTEXT = {"x0": 1.0, "x1": 0.0, "x2": 0.0}


@pytest.fixture(scope="module", params=[True, False], ids=["clicks", "rewards"])
def fitted(request):
    world = many_arms(1, clicks=request.param)
    return world, ib.fit_logs(
        world.log, {"arm": "item", "reward": "reward"}, catalogue=world.catalogue
    )


def test_slopes_and_levels_are_recovered_and_rare_arms_are_near_the_population(fitted):
    world, model = fitted
    policy, clicks = model.policy, model.policy.link == "logit"
    shared = dict(zip(model.names, policy.prior.mean.tolist(), strict=True))
    # Standard errors of slopes are below 0.02; log-odds of a slope that breaks are attenuated a little.
    assert shared["x1"] == pytest.approx(-0.4, abs=0.08)
    sport = np.sqrt(0.4 * 0.6)  # features of the catalogue have standard deviation 1
    name = next(
        name
        for name in model.names
        if name.startswith("topic=") and name.endswith("x0")
    )
    assert abs(shared[name]) == pytest.approx(SPORT * sport, abs=0.08)
    assert policy.spread[0] == pytest.approx(0.25, rel=0.5)
    assert model.arms.labels == tuple(sorted(world.labels))
    often, rarely = world.plays >= 200, (world.plays > 0) & (world.plays < 5)
    levels = policy.deviations[:, 0]
    error = (levels - world.own)[often]
    assert np.sqrt((error**2).mean()) < (0.3 if clicks else 0.2)
    assert levels[often].std() > 2.0 * levels[rarely].std()
    never = world.plays == 0
    variances = policy.covariances[:, 0, 0]
    assert variances[never] == pytest.approx(np.full(never.sum(), policy.spread[0]))
    assert variances[often].max() < 0.15 * policy.spread[0]


def test_the_slope_that_breaks_is_named_and_nothing_else(fitted):
    _, model = fitted
    effects = model.effects()
    named = effects[effects.verdict == "drifts"]
    assert named[["arm", "effect", "changed"]].to_numpy().tolist() == [
        ["all arms", "x2", "5"]
    ]
    assert "x2" in model._repr_html_()
    assert "x2" in text(model)
    assert "all arms" in report(model)


def test_it_decides_learns_is_stored_and_takes_new_arms(fitted, tmp_path):
    _, model = fitted
    offered = list(model.arms.labels[:100])
    decision = model.decide(CONTEXT, arms=offered)
    assert len(decision.scores) == 100
    assert decision.scores[decision.action] > np.median(list(decision.scores.values()))
    model.learn(decision, 1.0)
    model.save(tmp_path / "model")
    loaded = ib.load(tmp_path / "model")
    same = loaded.decide(CONTEXT, arms=offered, id="same")
    assert same == model.decide(CONTEXT, arms=offered, id="same")
    loaded.add_arm("sporty", features={"topic": "sport"})
    loaded.add_arm("plain", features={"topic": "news"})
    scores = loaded.decide(CONTEXT, arms=["sporty", "plain"]).scores
    assert scores["sporty"] > scores["plain"]
    loaded.retire_arm(offered[0])
    with pytest.raises(InputError, match="is retired"):
        loaded.decide(CONTEXT, arms=offered)
    assert "item0000" not in loaded.decide(CONTEXT).scores


def test_what_cannot_be_done_says_so(fitted):
    world, model = fitted
    schema = {"arm": "item", "reward": "reward"}
    with pytest.raises(InputError, match="'linucb' takes at most 500 arms"):
        ib.fit_logs(world.log, schema, policy="linucb")
    with pytest.raises(InputError, match="arm_model 'own' takes at most 500 arms"):
        ib.fit_logs(world.log, schema, arm_model="own")
    with pytest.raises(InputError, match="at most 500 arms"):
        next(iter(read_rounds(world.log, schema)))
    with pytest.raises(InputError, match="fit both logs together"):
        model.update_from(world.log)
    with pytest.raises(InputError, match="arm 'unknown' is not known"):
        model.decide(CONTEXT, arms=["unknown"])


def test_few_arms_may_be_pooled_if_asked():
    world = many_arms(2, rounds=6000, arms=40)
    with pytest.warns(
        SharedSlopesWarning, match="all 40 arms share the slopes of x0, x1, x2"
    ):
        model = ib.fit_logs(
            world.log, {"arm": "item", "reward": "reward"}, arm_model="pooled"
        )
    assert model.feature_map.names == ("level", "x0", "x1", "x2")
    assert np.corrcoef(model.policy.deviations[:, 0], world.levels)[0, 1] > 0.7


def test_levels_that_walk_are_followed_to_the_end_of_the_log():
    world = many_arms(3, rounds=40_000, arms=600, clicks=False, walk=0.4)
    policy = ib.fit_logs(
        world.log, {"arm": "item", "reward": "reward"}, catalogue=world.catalogue
    ).policy
    assert policy.steps[0] > 0.0
    often = world.plays >= 100
    error = np.sqrt(((policy.deviations[:, 0] - world.own)[often] ** 2).mean())
    assert error < 0.6 * world.own[often].std()


@pytest.mark.parametrize("rewards", ["tiny", "constant", "no clicks"])
def test_odd_rewards_make_a_model_that_can_be_stored(rewards):
    world = many_arms(4, rounds=3000, arms=600, clicks=rewards == "no clicks")
    own = world.log.column("reward").to_numpy()
    changed = {
        "tiny": 1e-8 * own,
        "constant": np.full(3000, 3.0),
        "no clicks": np.zeros(3000),
    }[rewards]
    log = world.log.set_column(4, "reward", pa.array(changed))
    roles = {"arm": "item", "reward": "reward"}
    with warnings.catch_warnings(action="ignore", category=SharedSlopesWarning):
        model = ib.fit_logs(log, roles, catalogue=world.catalogue, keep_going=True)
    assert model.policy.link == ("logit" if rewards == "no clicks" else "identity")
    model.learn(
        model.decide(CONTEXT, arms=list(model.arms.active[:20])), float(changed[0])
    )
    model.to_bytes()
