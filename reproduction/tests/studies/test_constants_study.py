"""The study of constants: as they are nothing changes, each one is varied, and a small run makes a page."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies import constants as stages
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation.stress_worlds import FixedArms, StressEpisodes
from invariant_bandits_reproduction.studies import autoisd_pictures, constants_study
from invariant_bandits_reproduction.studies.constants_study import (
    AS_IS,
    CONSTANTS,
    DOUBLE,
    HALF,
    Variant,
    World,
)
from invariant_bandits_reproduction.studies.harness import cell_seed

SMALL = World("5 arms", FixedArms(5, logged=400), 60, None)


def test_every_constant_can_be_halved_and_doubled_and_is_put_back():
    before = {
        name: getattr(stages, name)
        for name in ("FEATURES", "BASELINES", "TRUST", "LEARNING", "TESTS")
    }
    episode = FixedArms(5, logged=400).draw(10, np.random.default_rng(0))
    assert len({constant.name for constant in CONSTANTS}) == len(CONSTANTS)
    for constant in CONSTANTS:
        for factor in (HALF, DOUBLE):
            policy = constant.scaled(factor)(episode.past, caution=None)
            assert policy.mixture.filters.weights.sum() == pytest.approx(1.0)
    assert before == {name: getattr(stages, name) for name in before}
    variant = next(
        each for each in CONSTANTS if each.name == "weight of “logs useless”"
    ).scaled(DOUBLE)
    past = StressEpisodes(logged=800).draw(10, np.random.default_rng(0)).past
    weights = variant(past, caution=None).mixture.hypothesis_weights()
    plain = Variant()(past, caution=None).mixture.hypothesis_weights()
    assert weights["logs useless"] > plain["logs useless"]


@pytest.mark.slow
def test_autoisd_as_it_is_plays_as_always_and_a_small_run_makes_a_page():
    outcome = constants_study.run(
        [SMALL], [SMALL], CONSTANTS[-9:], replications=2, seed=1
    )
    seed = cell_seed(1, 0)
    policies = {"plain": PolicySpec("auto-isd", {"caution": None})}
    plain = ib.simulate(policies, SMALL.environment, SMALL.horizon, 2, seed)
    np.testing.assert_array_equal(outcome.values["5 arms"][AS_IS], plain.final("plain"))
    others = [
        paths for name, paths in outcome.values["5 arms"].items() if name != AS_IS
    ]
    assert any((paths != outcome.values["5 arms"][AS_IS]).any() for paths in others)
    page = constants_study.report(outcome)
    assert "| mean regret as is |" in page
    assert "| `Learning.rest` | 8 |" in page
    assert "| world | caution 0 | 0.01 | 0.03 | no limit | guarded, caution 0 |" in page
    assert constants_study.verdicts(outcome) == []


def test_a_picture_of_the_page_comes_in_both_themes():
    for name in ("model", "trust", "choice"):
        for theme in ("light", "dark"):
            assert autoisd_pictures.PICTURES[name](theme).axes
