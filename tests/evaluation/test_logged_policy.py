"""The value of a policy that is known by its log only, from the log of another."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib

LABELS = np.array(["a", "b", "c", "d"])
WORTH = np.array([[0.05, 0.10, 0.30, 0.20], [0.02, 0.20, 0.05, 0.10]])
"""Chance of a click by position and arm."""
SHARES = np.array([[0.1, 0.1, 0.7, 0.1], [0.1, 0.6, 0.1, 0.2]])
"""What the policy in question does."""
TRUTH = float((SHARES * WORTH).sum(axis=1).mean())


def log(rng, chances, rounds=3000, positions=True, labels=LABELS):
    """Labels, clicks, propensities and positions of a policy that does not look at the context."""
    position = rng.integers(2, size=rounds)
    arm = np.array([rng.choice(4, p=chances[k]) for k in position])
    columns = {
        "age": rng.normal(size=rounds),
        "item_id": labels[arm],
        "click": (rng.random(rounds) < WORTH[position, arm]).astype(int),
        "propensity_score": chances[position, arm],
    }
    return pa.table(columns | ({"position": position + 1} if positions else {}))


UNIFORM = np.full((2, 4), 0.25)


def test_intervals_hold_the_value_of_the_policy():
    """At 95 % of 20 logs: fewer than 16 with probability 0.0003."""
    held = {"DR": 0, "SNIPS": 0, "IPS": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        result = ib.value_of_logged(log(rng, SHARES), log(rng, UNIFORM))
        for name, estimate in result.estimates.items():
            assert estimate.concludes
            held[name] += estimate.low <= TRUTH <= estimate.high
    assert min(held.values()) >= 16


def test_positions_matter_where_both_logs_have_them():
    """Without them the shares of both positions are mixed, which is worth 0.027 less: many standard
    errors.
    """
    rng = np.random.default_rng(1)
    own, other = log(rng, SHARES, 20_000), log(rng, UNIFORM, 20_000)
    mixed = float((SHARES.mean(axis=0) * WORTH).sum(axis=1).mean())
    by_position = ib.value_of_logged(own, other)
    alike = ib.value_of_logged(own, other.drop_columns(["position"]))
    for name in ("DR", "SNIPS"):
        assert (
            by_position.estimates[name].low <= TRUTH <= by_position.estimates[name].high
        )
        assert by_position.estimates[name].low > mixed
        assert alike.estimates[name].high < TRUTH
    assert by_position.covers("SNIPS")
    assert not alike.covers("SNIPS")
    assert "position by position" in by_position.summary()
    assert sorted(key for key in by_position.shares if key is not None) == [1.0, 2.0]


def test_few_rounds_of_the_policy_widen_the_intervals():
    rng = np.random.default_rng(2)
    other = log(rng, UNIFORM, 20_000)
    short = ib.value_of_logged(log(rng, SHARES, 60), other).estimates["SNIPS"]
    long = ib.value_of_logged(log(rng, SHARES, 20_000), other).estimates["SNIPS"]
    assert short.standard_error > 1.5 * long.standard_error
    assert short.low <= TRUTH <= short.high


def test_arms_that_the_other_log_does_not_have_are_said():
    rng = np.random.default_rng(3)
    own = log(rng, SHARES, labels=np.array(["a", "b", "new", "d"]))
    result = ib.value_of_logged(own, log(rng, UNIFORM))
    assert not result.estimates["DR"].concludes
    assert "is not an arm of the other log" in result.estimates["DR"].reasons[-1]
    assert "cannot be known" in str(result)


def test_a_log_without_propensities_is_refused():
    rng = np.random.default_rng(4)
    with pytest.raises(ib.InputError, match="from_log has no propensities"):
        ib.value_of_logged(
            log(rng, SHARES), log(rng, UNIFORM).drop_columns(["propensity_score"])
        )


def test_a_log_without_labels_is_refused():
    rng = np.random.default_rng(5)
    plain = pa.table({"reward": rng.normal(size=50), "x": rng.normal(size=50)})
    with pytest.raises(
        ib.InputError, match="policy_log must have a column with labels"
    ):
        ib.value_of_logged(plain, log(rng, UNIFORM))


def open_bandit_dataset():
    """The folder of the samples: told by OPEN_BANDIT_DATASET, or in the package obp; None if neither is
    there.
    """
    told = os.environ.get("OPEN_BANDIT_DATASET")
    found = importlib.util.find_spec("obp")
    inside = (
        None
        if found is None or found.origin is None
        else Path(found.origin).parent / "dataset" / "obd"
    )
    folder = Path(told) if told else inside
    return folder if folder is not None and folder.is_dir() else None


@pytest.mark.skipif(
    open_bandit_dataset() is None,
    reason="OPEN_BANDIT_DATASET is not set, and obp is not installed",
)
@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_the_open_bandit_dataset(campaign):
    """What the Bernoulli Thompson sampler earned lies in the intervals of DR and SNIPS from the random
    log.
    """
    folder = open_bandit_dataset()
    result = ib.value_of_logged(
        folder / "bts" / campaign / f"{campaign}.csv",
        folder / "random" / campaign / f"{campaign}.csv",
        catalogue=folder / "random" / campaign / "item_context.csv",
    )
    assert result.covers("DR")
    assert result.covers("SNIPS")
