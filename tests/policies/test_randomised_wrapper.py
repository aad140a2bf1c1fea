"""Randomised: exact propensities around any policy, one formula for all, and names for every combination."""

import copy

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
from invariant_bandits.policies.registry import POLICIES, PolicySpec, find_policy

DIM = policy_laws.DIM
FEATURES = np.random.default_rng(3).normal(size=(5, DIM))


def learned(policy, rounds=30):
    """The policy after rounds of another's choice."""
    rng = np.random.default_rng(0)
    policy.update_many(rng.normal(size=(rounds, DIM)), rng.normal(size=rounds))
    return policy


INNER = {
    "AutoISD": lambda: ib.AutoISD.from_history(policy_laws.history()),
    "LinUCB": lambda: ib.LinUCB(DIM, noise_scale=0.5),
    "LinTS": lambda: ib.LinTS(DIM, noise_scale=0.2),
    "EpsilonGreedy": lambda: ib.EpsilonGreedy(DIM, epsilon=0.3),
}


@pytest.mark.parametrize("kind", ["uniform", "inverse-gap"])
@pytest.mark.parametrize("name", INNER)
def test_choices_have_exactly_the_propensities_that_are_told(name, kind):
    """4,000 draws, chi square with four degrees of freedom: beyond 30 with probability 5e-6 per case."""
    policy = ib.Randomised(
        learned(INNER[name]()), floor=0.3, kind=kind, sharpness=2.0, seed=1
    )
    expected = 4000 * policy.propensities(FEATURES)
    actions = policy.select_many(np.repeat(FEATURES[None], 4000, axis=0))
    seen = np.bincount(actions, minlength=5)
    assert expected.min() > 20.0
    assert ((seen - expected) ** 2 / expected).sum() < 30.0


@pytest.mark.parametrize("name", INNER)
def test_a_uniform_floor_is_a_mixture_with_the_policys_own_propensities(name):
    inner = learned(INNER[name]())
    own = inner.propensities(FEATURES)
    np.testing.assert_allclose(
        ib.Randomised(inner).propensities(FEATURES), 0.01 + 0.95 * own, rtol=1e-12
    )
    assert np.array_equal(ib.Randomised(inner, floor=0.0).propensities(FEATURES), own)
    np.testing.assert_allclose(
        ib.Randomised(inner, floor=1.0).propensities(FEATURES), 0.2, rtol=1e-12
    )


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_inverse_gap_weighting_is_what_it_says_in_any_unit_of_the_reward(scale):
    rng = np.random.default_rng(0)
    inner = ib.LinUCB(DIM, noise_scale=0.5 * scale, exploration=0.0)
    rows = rng.normal(size=(40, DIM))
    inner.update_many(rows, scale * (rows @ [1.0, -1.0, 0.5, 0.0]))
    mean = inner.scores(FEATURES).mean
    best = int(mean.argmax())
    expected = 1.0 / (5 + 7.0 * (mean.max() - mean) / (0.5 * scale))
    expected[best] = 0.0
    expected[best] = 1.0 - expected.sum()
    policy = ib.Randomised(inner, kind="inverse-gap", sharpness=7.0)
    np.testing.assert_allclose(policy.propensities(FEATURES), expected, rtol=1e-12)
    floored = ib.Randomised(
        inner, floor=0.4, kind="inverse-gap", sharpness=7.0
    ).propensities(FEATURES)
    np.testing.assert_allclose(
        np.delete(floored, best),
        np.maximum(np.delete(expected, best), 0.08),
        rtol=1e-12,
    )


def test_the_choice_of_a_policy_that_explores_keeps_the_rest():
    """An optimistic choice that is not the best on average gets what the others leave."""
    inner = ib.LinUCB(2, exploration=5.0)
    inner.update_many(np.tile([1.0, 0.0], (50, 1)), np.ones(50))
    assert inner.select(np.eye(2)) == 1
    assert inner.scores(np.eye(2)).mean.argmax() == 0
    for sharpness in (1.0, 1e6):
        policy = ib.Randomised(inner, kind="inverse-gap", sharpness=sharpness)
        np.testing.assert_allclose(
            policy.propensities(np.eye(2)), [0.5, 0.5], rtol=1e-12
        )


def test_draws_differ_between_contexts_and_in_a_batch_although_nothing_is_learned():
    """Rewards may come late: 2,000 decisions of one state are drawn independently, 5.6 standard errors
    are allowed.
    """
    policy = ib.Randomised(ib.LinUCB(DIM), floor=1.0, seed=0)
    rng = np.random.default_rng(1)
    contexts = [policy.select(rng.normal(size=(2, DIM))) for _ in range(2000)]
    batch = policy.select_many(np.repeat(FEATURES[None, :2], 2000, axis=0)).tolist()
    for drawn in (contexts, batch):
        assert abs(np.mean(drawn) - 0.5) < 5.6 * 0.5 / np.sqrt(2000)
        assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 5.6 / np.sqrt(2000)
    assert batch[0] == policy.select(FEATURES[:2])
    assert policy.select(FEATURES) == policy.select(FEATURES)


def test_the_wrapped_policy_learns_and_speaks_as_it_would_alone():
    alone = INNER["AutoISD"]()
    policy = ib.Randomised(copy.deepcopy(alone), seed=2)
    for own in (alone, policy):
        learned(own)
    assert policy_laws.bits(policy.policy) == policy_laws.bits(alone)
    assert str(policy.explain()) == str(alone.explain())
    assert (policy.rounds, policy.noise_scale) == (alone.rounds, alone.noise_scale)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = policy.nothing_of_the_kind


class Third:
    """A policy of somebody's own, the least that can be wrapped."""

    dim, rounds = DIM, 0

    def select(self, features):
        return 2

    def update(self, features, reward, *, offered=None, action=None):
        self.rounds += 1


def test_a_policy_of_ones_own_can_be_wrapped():
    policy = ib.Randomised(Third(), floor=0.5)
    np.testing.assert_allclose(policy.propensities(FEATURES), [0.1, 0.1, 0.6, 0.1, 0.1])
    policy.update_many(FEATURES, np.zeros(5))
    assert policy.rounds == 5
    with pytest.raises(
        ib.InputError, match="policy must be a policy, got Third, which lacks scores"
    ):
        ib.Randomised(Third(), kind="inverse-gap")


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("floor must be", {"floor": 1.5}),
        ("floor must", {"floor": -0.1}),
        ("floor must", {"floor": "often"}),
        (
            "kind must be one of 'uniform', 'inverse-gap', got 'softmax'",
            {"kind": "softmax"},
        ),
        ("sharpness must", {"sharpness": 0.0}),
        ("seed must", {"seed": -1}),
        ("policy must be a policy, got str", {"policy": "linucb"}),
        ("policy must be a policy, got LinUCB", {"policy": ib.LinUCB}),
    ],
)
def test_bad_settings_are_refused_by_name(words, change):
    with pytest.raises(ib.InputError, match=words):
        ib.Randomised(**({"policy": ib.LinUCB(2)} | change))
    with pytest.raises(ib.InputError, match="draw must"):
        ib.Randomised(ib.LinUCB(2)).decide(np.eye(2), draw=-1)


# -- by name --


@pytest.mark.parametrize(
    "name",
    [entry.name for entry in POLICIES if not entry.name.startswith("randomised")],
)
def test_every_registered_policy_has_a_randomised_form(name):
    past = policy_laws.example_past()
    entry = find_policy(f"randomised-{name}")
    inner = find_policy(name)
    assert entry.keeps_baseline == inner.keeps_baseline
    policy = PolicySpec(entry.name, {"floor": 0.2}).build(past)
    assert type(policy.policy) is inner.kind
    assert (
        policy.propensities(np.random.default_rng(0).normal(size=(3, DIM))).min()
        >= 0.2 / 3
    )


def test_names_of_wrappers_take_the_options_of_both():
    entry = find_policy("randomised-inverse-gap-linucb-warm")
    assert entry.takes("exploration")
    assert entry.takes("sharpness")
    assert not entry.takes("warm")
    assert not entry.takes("policy")
    spec = PolicySpec(entry.name, {"exploration": 0.3, "sharpness": 9.0})
    policy = spec.build(policy_laws.example_past())
    assert (
        policy.kind,
        policy.sharpness,
        policy.policy.exploration,
        policy.rounds,
    ) == (
        "inverse-gap",
        9.0,
        0.3,
        600,
    )
    with pytest.raises(
        ib.InputError, match=r"policy must be one of .*auto-isd, .*, got 'linucbb'"
    ):
        find_policy("randomised-linucbb")
    with pytest.raises(
        ib.InputError, match="'randomised-linucb' has no option 'share'"
    ):
        PolicySpec("randomised-linucb", {"share": 0.1}).check()


def test_a_name_may_carry_options():
    entry = find_policy("randomised-linucb-warm, floor=0.1, exploration=0.3")
    assert entry.name == "randomised-linucb-warm,floor=0.1,exploration=0.3"
    assert find_policy(entry.name).options == entry.options
    assert not entry.takes("floor")
    policy = PolicySpec(entry.name, {"sharpness": 3.0}).build(
        policy_laws.example_past()
    )
    assert (policy.floor, policy.policy.exploration, policy.rounds) == (0.1, 0.3, 600)
    assert find_policy("auto-isd,noise=known,intercept=false").options == {
        "noise": "known",
        "intercept": False,
    }
    assert PolicySpec("lints,seed=3").build(policy_laws.example_past()).seed == 3
    for name, words in {
        "linucb,fast": "options of a policy must be like 'linucb,exploration=0.3', got 'fast'",
        "linucb,=3": "got '=3'",
        "linucb,floor=0.1": "policy 'linucb' has no option 'floor'",
        "linucbb,floor=0.1": "policy must be one of",
    }.items():
        with pytest.raises(ib.InputError, match=words):
            find_policy(name)


def test_a_cell_knows_the_code_of_the_wrapped_policy():
    from invariant_bandits.simulation.cells import grid_of

    grid = grid_of(
        {
            "policies": {
                "randomised": {"policy": "linucb", "floor": 0.1},
                "randomised-epsilon-greedy": {"epsilon": 0.3},
            }
        }
    )
    modules = grid.cells[0].modules()
    for module in ("randomised", "linear", "baselines"):
        assert f"invariant_bandits.policies.{module}" in modules


def test_a_wrapped_policy_is_saved_within_if_it_is_registered(tmp_path):
    policy = ib.Randomised(ib.LinUCB(2))
    policy.save(tmp_path / "policy")
    again = ib.load(tmp_path / "policy")
    assert (
        repr(again)
        == "Randomised(LinUCB(dim=2, memory=Forever(), rounds=0), floor=0.05, kind='uniform')"
    )
    with pytest.raises(ib.InputError, match="of a registered class"):
        ib.Randomised(Third()).save(tmp_path / "other")
