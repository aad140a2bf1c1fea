"""Comparing policies on a log: the right verdicts where the truth is planted, none where nothing can be
known.
"""

import numpy as np
import pandas as pd
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation.comparison import COMPARED, verdict
from invariant_bandits.evaluation.estimators import logged_value
from invariant_bandits.evaluation.intervals import estimated
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation.paper import PaperWorld
from logged_worlds import ACTIONS, DIM, World, of_rounds
from reading import read_feedback

ESTIMATORS = ("DR", "SNIPS", "IPS", "replay")


def uniform_log(rounds=3000, seed=0):
    return World(logging=np.zeros(DIM)).log(rounds, np.random.default_rng(seed))[0]


def bare(feedback):
    """The same rounds without propensities."""
    return Feedback.from_arrays(of_rounds(feedback), feedback.actions, feedback.rewards)


DEFAULT = {name: PolicySpec(name) for name in COMPARED}


def some(*labels):
    return {label: DEFAULT[label] for label in labels}


@pytest.mark.system
def test_every_default_policy_gets_a_value_by_every_estimator_and_learned_ones_help():
    """Under uniform logging LinUCB and its kin earn about 1.3 more than the log; uniform play earns
    the same.
    """
    result = ib.compare(uniform_log(), jobs=2)
    assert result.policies == tuple(DEFAULT)
    assert [(line.policy, line.estimator) for line in result.lines] == [
        (name, kind) for name in DEFAULT for kind in ESTIMATORS
    ]
    for name in result.policies:
        words = result.verdict(name)
        assert words.startswith(
            "no difference can be seen" if name == "uniform" else "yes, by 1."
        ), (
            name,
            words,
        )
    assert not result.calibration.flagged


@pytest.mark.system
def test_the_same_comparison_for_any_number_of_processes():
    heard = []
    one, two = (
        ib.compare(
            uniform_log(1000),
            some("linucb-cold", "frozen"),
            jobs=jobs,
            progress=lambda *at: heard.append(at),
        )
        for jobs in (1, 2)
    )
    assert one.rows() == two.rows()
    assert one.summary() == two.summary()
    assert (
        heard == [(done, 11) for done in range(1, 12)] * 2
    )  # nine settings are tried first


def test_the_later_part_never_reaches_the_fit():
    """Frozen decides with the first part only: new rewards in the second change its value, not its
    decisions.
    """
    feedback = uniform_log(1000)
    rewards = feedback.rewards.copy()
    rewards[500:] = -rewards[500:]
    changed = Feedback.from_arrays(
        of_rounds(feedback), feedback.actions, rewards
    ).with_uniform_propensities()
    before, after = (
        ib.compare(item, some("frozen", "linucb-cold")) for item in (feedback, changed)
    )
    assert before.agreement["frozen"] == after.agreement["frozen"]
    assert before.agreement["linucb-cold"] != after.agreement["linucb-cold"]
    assert before.line("frozen", "IPS").value.value == pytest.approx(
        -after.line("frozen", "IPS").value.value
    )


def test_with_full_information_the_value_is_what_the_policy_earns():
    world, rng = World(), np.random.default_rng(1)
    offered = rng.standard_normal((1000, ACTIONS, DIM))
    rewards = world.means(offered) + rng.standard_normal((1000, 1))
    feedback = Feedback.from_full_information(offered, rewards, seed=2)
    result = ib.compare(
        feedback,
        {
            "linucb-cold": lambda past: ib.LinUCB(past.dim),
            "uniform": lambda: ib.Uniform(DIM),
        },
    )
    assert [item.estimator for item in result.lines] == ["exact", "exact"]
    policy, earned, baseline = ib.LinUCB(DIM), [], feedback.rewards[:500].mean()
    for features, values in zip(offered[500:], rewards[500:], strict=True):
        action = policy.select(features)
        policy.update(features[action], values[action] - baseline)
        earned.append(values[action])
    line = result.line("linucb-cold")
    assert line.value.value == pytest.approx(np.mean(earned), rel=1e-14)
    assert line.against_log.value == pytest.approx(
        np.mean(earned) - feedback.rewards[500:].mean(), rel=1e-12
    )
    assert result.line("uniform").against_reference.high < 0.0
    assert result.calibration is None


def test_without_propensities_nothing_is_concluded_and_the_ways_out_are_named():
    result = ib.compare(bare(uniform_log(1000)), some("frozen", "uniform"))
    assert result.lines == ()
    assert (
        result.verdict("frozen")
        == "cannot be known, because the log has no propensities"
    )
    assert result.agreement["uniform"] == pytest.approx(1 / ACTIONS)
    assert (
        result.logged.value == logged_value(uniform_log(1000).between(500, 1000)).value
    )
    for words in (
        "uniform",
        "have propensities estimated",
        "direct method's assumption",
    ):
        assert words in result.notes[0]


def test_what_the_caller_allows_is_used_and_said():
    log = bare(uniform_log())
    assumed = ib.compare(log, some("frozen"), propensities="uniform")
    np.testing.assert_allclose(
        assumed.line("frozen", "IPS").value.value,
        ib.compare(uniform_log(), some("frozen")).line("frozen", "IPS").value.value,
    )
    assert "as the caller says" in assumed.notes[0]
    learned = ib.compare(log, some("frozen"), propensities="estimated")
    assert learned.verdict("frozen").startswith("yes, by 1.")
    assert "logistic" in learned.notes[0]
    direct = ib.compare(log, some("frozen"), with_direct=True)
    assert direct.verdict("frozen").startswith(
        "if the direct method's assumption holds: yes, by 1."
    )
    assert "Note: direct: assumes that rewards are linear" in direct.summary()


def test_wrong_propensities_stop_every_verdict_that_rests_on_them():
    log = World(logging=np.array([1.0, 1.0, 0.0])).log(2000, np.random.default_rng(3))[
        0
    ]
    result = ib.compare(
        bare(log), some("frozen"), propensities="uniform", with_direct=True
    )
    assert result.calibration.flagged
    for kind in ESTIMATORS:
        assert not result.line("frozen", kind).against_log.concludes
    assert "the propensities are wrong: feature" in result.verdict("frozen")
    assert result.line("frozen", "direct").value.concludes


def test_a_policy_that_cannot_be_fitted_is_said_so_and_the_others_go_on():
    offered = np.random.default_rng(0).standard_normal((400, ACTIONS, 2))
    twice = np.concatenate([offered, offered[:, :, :1]], axis=2)
    feedback = Feedback.from_arrays(
        twice,
        np.arange(400) % ACTIONS,
        twice[np.arange(400), np.arange(400) % ACTIONS, 0],
    )
    result = ib.compare(
        feedback, some("auto-isd", "linucb-cold"), propensities="uniform"
    )
    words = "not evaluated: auto-isd could not be fitted or played, because features are collinear: x0, x2"
    assert result.verdict("auto-isd").startswith(words)
    assert "rewards are equal" not in result.verdict("auto-isd")
    assert f"  auto-isd: {words}" in result.summary()
    assert list(result.failures) == ["auto-isd"]
    assert result.line("auto-isd") is None
    assert result.line("linucb-cold").value.concludes


def test_a_maker_that_makes_no_policy_is_named():
    result = ib.compare(uniform_log(200), {"none": lambda past: None})
    assert (
        "policy must have the methods select, update, got NoneType"
        in result.verdict("none")
    )


def test_the_first_part_may_end_at_a_time():
    log = uniform_log(400)
    timed = Feedback.from_arrays(
        of_rounds(log),
        log.actions,
        log.rewards,
        times=np.arange(400),
        propensities=log.propensities,
    )
    result = ib.compare(timed, some("uniform"), fit_until=100)
    assert (result.fitted_rounds, result.logged.rounds) == (100, 300)


def test_other_errors_are_not_swallowed():
    def broken(past):
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError) as caught:
        ib.compare(uniform_log(200), {"broken": broken})
    assert caught.value.__notes__ == ["while evaluating policy 'broken'"]


def test_rows_hold_what_the_lines_hold_and_the_table_names_everyone():
    result = ib.compare(uniform_log(1000), some("linucb-cold", "uniform"))
    rows = result.rows()
    assert len(rows) == 2 * 4 * 3
    assert rows[1]["quantity"] == "against log"
    assert rows[1]["value"] == result.lines[0].against_log.value
    table = result.summary()
    for words in (
        "linucb-cold",
        "replay",
        "Would it have helped?",
        "nothing speaks against them",
        "on the next 500",
    ):
        assert words in table


@pytest.mark.parametrize(
    ("center", "words"),
    [
        (0.5, "yes, by 0.5"),
        (-0.5, "no, it would have lost 0.5"),
        (0.0, "no difference can be seen"),
    ],
)
def test_verdicts_say_which_side_of_zero_the_interval_is_on(center, words):
    gains = center + 0.1 * np.tile([1.0, -1.0, 2.0, -2.0], 50)
    difference = estimated(gains, np.ones(200), effective_sample=200.0)
    assert verdict(difference).startswith(words)
    assert verdict(difference.refused("planted")) == "cannot be known, because planted"


# -- what policies start from --


def test_a_frozen_policy_decides_as_before_whatever_it_is_told():
    frozen = ib.Frozen.from_past(ib.Past.from_feedback(uniform_log(200), 10))
    offered = np.random.default_rng(0).standard_normal((50, ACTIONS, DIM))
    before = [frozen.select(features) for features in offered]
    for features in offered:
        frozen.update(features[0], -100.0, offered=features, action=0)
    assert [frozen.select(features) for features in offered] == before


def test_warm_and_frozen_start_from_ridge_regression_on_the_whole_past():
    log = uniform_log(500)
    past = ib.Past.from_feedback(log, 100)
    baseline = past.baseline
    assert baseline == log.rewards.mean()
    gram = log.features.T @ log.features + 0.1 * np.eye(DIM)
    ridge = np.linalg.solve(gram, log.features.T @ (log.rewards - baseline))
    policies = {
        name: spec.build(past)
        for name, spec in some("linucb-warm", "frozen", "linucb-cold").items()
    }
    np.testing.assert_allclose(policies["linucb-warm"].coefficients, ridge, rtol=1e-10)
    assert policies["linucb-cold"].rounds == 0
    for features in np.random.default_rng(1).standard_normal((100, ACTIONS, DIM)):
        assert policies["frozen"].select(features) == (features @ ridge).argmax()


def test_the_noise_scale_of_the_past_is_that_of_the_rewards():
    """Noise of 1 over 8,000 rounds of drifting rewards: its standard error is 0.008."""
    logs = PaperWorld(drift=0.0).log(8000, np.random.default_rng(0))
    past = ib.Past.from_feedback(
        Feedback.from_arrays(logs.offered, logs.actions, logs.rewards), 10
    )
    assert past.noise_scale == pytest.approx(1.0, abs=0.032)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (
            "propensities must be one of 'logged', 'estimated', 'uniform', got 'guessed'",
            {"propensities": "guessed"},
        ),
        ("policies is empty", {"policies": {}}),
        ("fraction must lie strictly between 0 and 1", {"fit_fraction": 1.0}),
        ("jobs must be a whole number of at least 1", {"jobs": 0}),
    ],
)
def test_bad_input_is_named(message, changes):
    with pytest.raises(ib.InputError, match=message):
        ib.compare(uniform_log(200), **changes)


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    result = ib.compare(uniform_log(400), some("frozen", "uniform"))
    for ask in (result.verdict, result.line):
        with pytest.raises(
            ib.InputError, match="policy must be one of frozen, uniform, got 'frosen'"
        ):
            ask("frosen")


class AlwaysLast:
    """A policy of one's own: the least that `simulate` plays."""

    def select(self, features):
        return len(features) - 1

    def update(self, features, reward, *, offered=None, action=None):
        pass


def test_a_class_of_ones_own_is_compared_as_certain_of_its_choices():
    """Its value by IPS is the mean of w·r with w = K where the log played the last action; simulate plays it,
    too.
    """
    log = uniform_log(3000)
    result = ib.compare(log, {"last": AlwaysLast}, reference="last")
    later = log.split(0.5)[1]
    expected = (ACTIONS * (later.actions == ACTIONS - 1) * later.rewards).mean()
    assert result.line("last", "IPS").value.value == pytest.approx(expected)
    assert not result.failures
    assert ib.simulate(
        {"last": AlwaysLast}, ib.simulation.PaperEpisodes(logged=200), 20, 2, 0
    ).regret["last"].shape == (
        2,
        20,
    )
    full = Feedback.from_full_information(
        of_rounds(log), np.zeros((3000, ACTIONS)) + np.arange(ACTIONS), seed=0
    )
    assert (
        ib.compare(full, {"last": AlwaysLast}).line("last").value.value == ACTIONS - 1
    )

    class Beyond(AlwaysLast):
        def select(self, features):
            return len(features)

    assert "select must return an action from 0 to" in ib.compare(
        log, {"beyond": Beyond}
    ).verdict("beyond")


def test_a_comparison_prints_itself_and_becomes_a_frame_and_a_picture():
    pytest.importorskip("pandas")
    plt = pytest.importorskip("matplotlib.pyplot")
    result = ib.compare(uniform_log(1000), some("frozen", "uniform"))
    assert str(result) == result.summary()
    assert (
        repr(result)
        == "Comparison(frozen, uniform; by DR, SNIPS, IPS, replay; 500 rounds)"
    )
    frame = result.to_frame()
    assert len(frame) == 2 * 4 * 3
    one = frame[
        (frame.policy == "frozen")
        & (frame.estimator == "DR")
        & (frame.quantity == "against log")
    ].iloc[0]
    assert (one.value, one.low) == (
        result.line("frozen").against_log.value,
        result.line("frozen").against_log.low,
    )
    axis = result.plot()
    assert [text.get_text() for text in axis.get_yticklabels()] == ["frozen", "uniform"]
    plt.close(axis.figure)
    unknown = ib.compare(bare(uniform_log(400)), some("frozen")).plot(theme="dark")
    assert "cannot be known" in unknown.texts[0].get_text()
    plt.close(unknown.figure)


def test_a_frame_is_compared_as_what_is_read_from_it():
    rng = np.random.default_rng(5)
    arm = rng.choice(["a", "b", "c"], size=900)
    columns = {
        "arm": arm,
        "x": rng.normal(size=900),
        "reward": (arm == "b") + rng.normal(size=900),
    }
    frame = pd.DataFrame(columns | {"propensity": 1.0 / 3.0})
    asked = {"policies": ["linucb-cold", "uniform"], "estimators": ["DR"], "windows": 4}
    read = read_feedback(frame, windows=4)
    values = [
        ib.compare(log, **asked).line("linucb-cold").value
        for log in (frame, read, read.feedback)
    ]
    assert values[0].value == values[1].value == values[2].value


def test_features_of_a_labelled_log_are_called_by_their_names():
    """An arm that was launched after the rounds that policies are fitted on has no data there."""
    rng = np.random.default_rng(6)
    arm = np.where(
        np.arange(1200) < 800,
        rng.choice(["a", "b"], 1200),
        rng.choice(["a", "new"], 1200),
    )
    columns = {
        "arm": arm,
        "x": rng.normal(size=1200),
        "reward": rng.normal(size=1200),
        "propensity": 0.5,
    }
    result = ib.compare(
        pd.DataFrame(columns), ["isd-linucb", "uniform"], estimators=["DR"], windows=4
    )
    assert "features are constant: new, new × x" in result.failures["isd-linucb"]
