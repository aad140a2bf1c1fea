"""The study of randomised decisions: planted values, coverage of a log's own propensities, an honest page."""

import copy

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits import plotting
from invariant_bandits.evaluation import estimators
from invariant_bandits.reports import plots
from invariant_bandits.simulation.stress_worlds import StressEpisodes
from invariant_bandits_reproduction.studies import randomised_study as study
from invariant_bandits_reproduction.studies.harness import StudyOutcome
from invariant_bandits_reproduction.studies.randomised_study import (
    LINES,
    Randomisation,
    RandomisedLogs,
)

SHORT = 800


@pytest.fixture(scope="module")
def world():
    """One world with 60 stretches of 800 rounds after its logs, each as if it came next."""
    return study.fainter(
        StressEpisodes(logged=2000, drift="walk").draw(
            60 * SHORT, np.random.default_rng(5)
        ),
        0.3,
    )


def test_the_stated_value_of_a_challenger_is_what_it_earns(world):
    """48,000 rounds of the challenger's own play; off by more than 5 standard errors with
    probability 6e-7.
    """
    challenger = ib.Frozen.from_past(world.past).coefficients
    chosen = (world.offered @ challenger).argmax(axis=1)
    earned = world.means[np.arange(len(chosen)), chosen]
    stated = study.true_value(challenger, world.offered, world.coefficients)
    assert abs(earned.mean() - stated) < 5.0 * earned.std() / np.sqrt(len(earned))
    assert earned.std() > 0.1


def test_a_fainter_world_has_the_same_noise(world):
    plain = StressEpisodes(logged=2000, drift="walk").draw(
        60 * SHORT, np.random.default_rng(5)
    )
    np.testing.assert_allclose(
        world.rewards - world.means, plain.rewards - plain.means, atol=1e-12
    )
    np.testing.assert_allclose(world.means, 0.3 * plain.means)
    own, others = (
        item.logs.rewards
        - np.einsum("tp,tp->t", item.logs.features, item.logs.coefficients)
        for item in (world, plain)
    )
    np.testing.assert_allclose(own, others, atol=1e-12)


def test_logs_of_a_randomised_policy_evaluated_with_its_propensities_cover_the_truth(
    world,
):
    """60 logs: at a coverage of 0.95 fewer than 49 hold the truth with probability 4e-5, per estimator."""
    auto = ib.AutoISD.from_history(world.moments)
    challenger = ib.Frozen.from_past(world.past).coefficients
    covered, weights = np.zeros(2), []
    for stretch in range(60):
        rounds = slice(stretch * SHORT, (stretch + 1) * SHORT)
        names = ("offered", "coefficients", "noise", "expected", "outcomes")
        episode = study.replace(
            world, **{name: getattr(world, name)[rounds] for name in names}
        )
        log = study.written_log(
            ib.Randomised(copy.deepcopy(auto), floor=0.4, seed=stretch), episode
        )
        scores = (log.offered @ challenger).reshape(SHORT, -1)
        target = np.eye(scores.shape[1])[scores.argmax(axis=1)].ravel()
        truth = study.true_value(challenger, world.offered[::10], episode.coefficients)
        found = (estimators.doubly_robust(log, target), estimators.snips(log, target))
        assert all(estimate.concludes for estimate in found)
        covered += [item.low <= truth <= item.high for item in found]
        weights.append(estimators.importance_weights(log, target))
    assert (covered >= 49).all()
    mean = np.concatenate(weights)
    assert abs(mean.mean() - 1.0) < 5.0 * mean.std() / np.sqrt(len(mean))
    assert mean.max() == pytest.approx(12.5)  # K / floor


@pytest.mark.system
def test_results_do_not_depend_on_the_number_of_processes_and_only_defaults_play_everywhere():
    small = {
        "world": StressEpisodes(logged=600, dim=4, residual_dim=1, drift="walk"),
        "truth_rounds": 500,
    }
    settings = (study.SETTINGS[0], study.DEFAULTS[0])
    one, two = (
        study.run(
            settings, replications=2, others=1, rounds=60, seed=1, jobs=jobs, **small
        ).values
        for jobs in (1, 2)
    )
    assert [len(one[setting].regret) for setting in settings] == [1, 2]
    for setting in settings:
        for name in ("regret", "low", "truth"):
            np.testing.assert_array_equal(
                getattr(one[setting], name), getattr(two[setting], name)
            )
    assert one[settings[0]].regret[0] < one[settings[1]].regret[0]


def planted(regret, half, held, logs=100):
    """A setting whose intervals all have this half width, and of which `held` hold the truth 0."""
    centre = np.where(np.arange(logs) < held, 0.0, 9.0)[:, None] * np.ones(len(LINES))
    return RandomisedLogs(
        centre - half,
        centre + half,
        0.0 * centre,
        regret=np.full(logs, regret) + 1e-3 * np.arange(logs),
    )


def test_the_page_says_what_was_planted(tmp_path):
    nothing = np.full((100, len(LINES)), np.nan)
    results = {
        study.SETTINGS[0]: RandomisedLogs(
            nothing, nothing, 0.0 * nothing, regret=0.1 + 1e-3 * np.arange(100)
        ),
        study.DEFAULTS[0]: planted(0.15, 0.2, 95),
        study.DEFAULTS[1]: planted(0.12, 0.1, 91),
    }
    outcome = StudyOutcome(results, replications=100, seed=3)
    page = study.report(outcome, pictures="../figures")
    assert "| floor 0.05, DR, value | 0.950 (0.888–0.978) | ✓ |" in page
    assert "| inverse gap, 100, DR, value | 0.910" in page
    assert [verdict.reached for _, verdict in study.verdicts(outcome)] == [
        True,
        True,
        False,
        False,
    ]
    assert (
        "| floor 0 | 0.1495 ± 0.0029 | | none | none | none | 100% | –, – | – |" in page
    )
    assert (
        "+0.0500 ± 0.0000 | 0.200 | 0.200 | 0.200 | 0% | 0.950, 0.950 | 16,000 |"
        in page
    )
    assert study.priced(results) == {
        "uniform": [("0.05", pytest.approx(0.05), pytest.approx(0.2))],
        "inverse-gap": [("100", pytest.approx(0.02), pytest.approx(0.1))],
    }
    for theme in plotting.THEMES:
        picture = study.price_chart(study.priced(results), theme_name=theme)
        assert plots.save(picture, tmp_path / theme, ["png"])[0].stat().st_size > 5000
    with pytest.raises(ib.InputError, match="rows is empty"):
        study.price_chart({})


def test_settings_have_names_and_wrap_as_they_say():
    assert Randomisation("uniform", 0.05).name == "floor 0.05"
    assert study.DEFAULTS[1].name == "inverse gap, 100"
    assert set(study.DEFAULTS) < set(study.SETTINGS)
    wrapped = study.DEFAULTS[1].wrapped(ib.LinUCB(2), seed=1)
    assert (wrapped.kind, wrapped.sharpness, wrapped.floor) == (
        "inverse-gap",
        100.0,
        0.0,
    )
