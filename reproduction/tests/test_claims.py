"""Claims are judged right where the truth is planted: they hold, fail or stay undecided as they should."""

import numpy as np
import pytest

from invariant_bandits.simulation.loop import SimulationResult
from invariant_bandits_reproduction import claims
from invariant_bandits_reproduction import regret_claims as statistics
from invariant_bandits_reproduction.claims import Bound, Claim
from invariant_bandits_reproduction.regret_claims import BootstrapTest, Sample


def result(finals, rounds=None, observations=None):
    """A result whose policies have these regret paths (n, R)."""
    paths = {
        name: np.atleast_2d(np.asarray(values, dtype=float))
        for name, values in finals.items()
    }
    count = next(iter(paths.values())).shape[1]
    at = np.arange(1, count + 1) if rounds is None else np.asarray(rounds)
    return SimulationResult(paths, at, {}, observations=observations or {})


def column(values):
    return np.asarray(values, dtype=float)[:, None]


def growing_as(exponent, n=60, seed=0):
    rounds = np.arange(1, 101)
    noise = np.exp(0.3 * np.random.default_rng(seed).standard_normal((n, 1)))
    return result({"policy": noise * rounds**exponent})


def claim_about(statistic, bound, cells, right_only=None):
    """A claim that a statistic of cells meets a bound."""
    test = BootstrapTest(statistic, bound, cells, "{value} times", right_only)
    return Claim("s", "c", test)


def sublinear(cell="cell"):
    return claim_about(
        statistics.growth_exponent(cell, "policy"),
        Bound(high=1.0),
        (cell,),
    )


@pytest.mark.parametrize(
    ("exponent", "word"), [(0.5, claims.HOLDS), (1.3, claims.FAILS)]
)
def test_the_growth_exponent_that_was_planted_is_found(exponent, word):
    verdict = sublinear().judge({"cell": growing_as(exponent)})
    assert verdict.measured.value == pytest.approx(exponent, abs=1e-9)
    assert verdict.word == word


def test_a_statistic_on_its_bound_is_undecided():
    rng = np.random.default_rng(1)
    values = rng.normal(1.0, 0.2, size=40)
    claim = claim_about(
        lambda sample: sample.mean("cell", "policy"),
        Bound(high=float(values.mean())),
        ("cell",),
    )
    assert (
        claim.judge({"cell": result({"policy": column(values)})}).word
        == claims.UNDECIDED
    )


@pytest.mark.parametrize(
    ("shift", "word"),
    [(-0.02, claims.UNDECIDED), (-0.5, claims.FAILS), (0.5, claims.HOLDS)],
)
def test_a_bound_is_missed_only_if_the_whole_interval_misses_it(shift, word):
    """The standard error of the mean is 0.03: a bound that much below it is missed, but not beyond doubt."""
    values = np.random.default_rng(1).normal(1.0, 0.2, size=40)
    bound = Bound(high=float(values.mean()) + shift)
    claim = claim_about(
        lambda sample: sample.mean("cell", "policy"),
        bound,
        ("cell",),
    )
    assert claim.judge({"cell": result({"policy": column(values)})}).word == word


def test_the_interval_of_a_mean_covers_it_about_as_often_as_promised():
    """200 samples of 40: a 95 % percentile interval covers in 93 %; fewer than 170 has probability below
    1e-4.
    """
    rng = np.random.default_rng(2)
    claim = claim_about(
        lambda sample: sample.mean("cell", "policy"),
        Bound(),
        ("cell",),
    )
    covered = 0
    for _ in range(200):
        verdict = claim.judge(
            {"cell": result({"policy": column(rng.normal(3.0, 1.0, 40))})}
        )
        covered += verdict.measured.low <= 3.0 <= verdict.measured.high
    assert 170 <= covered <= 199


def sweep(function, n=50, noise=0.05, seed=3):
    rng = np.random.default_rng(seed)
    cells = {float(x): f"cell-{x}" for x in (2, 4, 6, 8)}
    return cells, {
        cell: result(
            {
                "policy": column(function(x) + noise * rng.standard_normal(n)),
                "rival": column(np.full(n, 10 * x)),
            }
        )
        for x, cell in cells.items()
    }


def test_a_straight_line_is_straight_and_an_arch_is_not():
    cells, line = sweep(lambda x: 3 * x + 1)
    _, arch = sweep(lambda x: (x - 5) ** 2)
    straight = statistics.straightness(cells, "policy")
    assert straight(Sample(line)) > 0.999
    assert straight(Sample(arch)) < 0.1
    assert statistics.trend(cells, "policy")(Sample(line)) == pytest.approx(
        3.0, abs=0.02
    )
    assert statistics.ratio_of_trends(cells, "policy", "rival")(
        Sample(line)
    ) == pytest.approx(0.3, abs=0.002)


def test_the_largest_ratio_and_factor_are_those_of_the_worst_cell():
    _, line = sweep(lambda x: 3 * x + 1, noise=0.0)
    names = tuple(line)
    assert statistics.largest_ratio(names, "policy", "rival")(
        Sample(line)
    ) == pytest.approx(7 / 20)
    assert statistics.largest_factor(names, "policy", "rival")(
        Sample(line)
    ) == pytest.approx(80 / 25)
    assert statistics.largest_factor(names, "rival", "policy")(
        Sample(line)
    ) == pytest.approx(80 / 25)


def test_right_only_drops_the_runs_whose_own_split_was_wrong_and_counts_the_rest():
    values = column([1.0, 2.0, 300.0, 3.0])
    right = {"policy": {statistics.RIGHT_DIMENSIONS: np.array([1.0, 1.0, 0.0, 1.0])}}
    found = {"cell": result({"policy": values, "rival": values}, observations=right)}
    assert Sample(found).mean("cell", "policy") == pytest.approx(76.5)
    assert Sample(found, right_only=True).mean("cell", "policy") == pytest.approx(2.0)
    assert Sample(found, right_only=True).mean("cell", "rival") == pytest.approx(
        76.5
    )  # it estimates no split
    claim = claim_about(
        lambda sample: sample.mean("cell", "policy"),
        Bound(high=5.0),
        ("cell",),
        right_only="policy",
    )
    assert claim.judge(found).repetitions == "3"


def test_a_claim_about_runs_that_do_not_exist_is_not_testable():
    wrong = {"policy": {statistics.RIGHT_DIMENSIONS: np.zeros(5)}}
    found = {"cell": result({"policy": column(np.ones(5))}, observations=wrong)}
    claim = claim_about(
        lambda sample: sample.mean("cell", "policy"),
        Bound(high=5.0),
        ("cell",),
        right_only="policy",
    )
    assert claim.judge(found).word == claims.UNTESTED


def test_bootstrap_draws_keep_policies_of_a_repetition_together():
    """The ratio of two policies that move together has no spread; drawn apart it would have."""
    values = column(np.random.default_rng(4).uniform(1, 9, 30))
    found = {"cell": result({"policy": 2 * values, "rival": values})}
    claim = claim_about(
        statistics.ratio("cell", "policy", "rival"),
        Bound(high=3.0),
        ("cell",),
    )
    verdict = claim.judge(found)
    assert (verdict.measured.low, verdict.measured.high) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize(
    ("covered", "holds"), [(1.0, {"covered"}), (0.0, {"not covered"})]
)
def test_the_claims_of_coverage_fail_where_sets_miss_and_are_not_the_papers(
    covered, holds
):
    """Every run covered, or every run with a miss: only the claim that says so holds."""
    from invariant_bandits_reproduction.figures import guarantees

    results = {}
    for cell in guarantees.COVERAGE_CELLS.values():
        seen = {policy: {"covered": np.full(30, covered)} for policy in cell.policies}
        results[cell.name] = result(
            {policy: np.zeros((30, 1)) for policy in cell.policies}, observations=seen
        )
    judged = list(guarantees.coverage_claims())
    assert len(judged) == 12
    for claim in judged:
        kind = claim.name.split(",")[0]
        word = claim.judge(results, resamples=50).word
        assert word == (claims.HOLDS if kind in holds else claims.FAILS)
        assert claim.source == "ours"


def planted(world, value):
    """A test that A has `value` times the regret of B in a world, with its results."""
    rng = np.random.default_rng(5)
    rival = 100.0 + rng.normal(size=40)
    cell = result({"A": column(value * rival), "B": column(rival)})
    reading = f"{{value}} times in {world}"
    test = statistics.below([world], ("A", "B"), reading)
    claim = Claim("A loses less than B in every world.", world, test)
    return claim, claim.judge({world: cell}, resamples=50)


def test_a_sentence_says_what_became_of_a_claim_and_where():
    holds, fails = planted("the plain", 0.5), planted("the hills", 3.4)
    assert (
        claims.finding([holds]) == "Claimed: A loses less than B in every world; holds."
    )
    assert claims.finding([fails]) == (
        "Claimed: A loses less than B in every world; fails: 3.4 times in the hills."
    )
    assert claims.finding([holds, fails, holds]) == (
        "Claimed: A loses less than B in every world; fails: 3.4 times in the hills;"
        " holds in 2 of 3 tests."
    )


def test_closer_with_more_logs_fails_if_the_regret_is_farther_from_the_oracles():
    """The ratio to the oracle grows from 1.00 to 1.05: within a tenth, but not closer."""
    from invariant_bandits_reproduction.contenders import (
        ISD_ESTIMATED,
        ISD_ORACLE,
        LINUCB,
    )
    from invariant_bandits_reproduction.figures import stationary

    oracle = 20.0 + np.random.default_rng(6).normal(size=100)
    for factor, word in ((1.05, claims.FAILS), (0.95, claims.HOLDS)):
        found = {}
        for logged, cell in stationary.CODE.logged.items():
            ratio = factor if logged == 8000 else 1.0
            finals = {
                ISD_ESTIMATED: column(ratio * oracle),
                ISD_ORACLE: column(oracle),
                LINUCB: column(3.0 * oracle),
            }
            found[cell.name] = result(finals)
        _, closer, _ = stationary.estimated_claims(
            stationary.CODE, ISD_ESTIMATED, False, "estimator"
        )
        assert closer.judge(found, resamples=50).word == word
