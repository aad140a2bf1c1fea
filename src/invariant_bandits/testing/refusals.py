"""Laws of refusing: what cannot be used is refused in one line, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.testing.checking import law
from invariant_bandits.testing.playing import Make, bits, played, refused, some_rounds


def _spoiled(good: Array, value: float) -> Array:
    bad = good.copy()
    bad[1, 2] = value
    return bad


def _bad_offered(good: Array) -> Iterator[Any]:
    yield from (_spoiled(good, value) for value in (np.nan, np.inf, -np.inf))
    yield from (
        good[:, :-1],
        good[:0],
        good[0],
        good[None],
        "features",
        None,
        good.astype(complex),
        [[1.0, 2.0], [3.0]],
    )


@law("bad input is refused and changes nothing")
def bad_input_is_refused_and_changes_nothing(make: Make) -> None:
    """NaN, infinity, wrong shapes, text."""
    policy, good = played(make, 20), some_rounds(1)[0]
    before = bits(policy)
    for features in _bad_offered(good):
        for method in (policy.select, policy.scores, policy.propensities):
            refused("features", partial(method, features))
    many = np.stack([good, good])
    for batch in (good, many[:, :, :-1], many[:0], np.stack([good, _spoiled(good, np.nan)]), "features", None):
        refused("features", partial(policy.select_many, batch))
    rows = (_spoiled(good, np.nan)[1], _spoiled(good, np.inf)[1], good[0, :-1], good, np.array([]), "row", None)
    for row in rows:
        refused("features", partial(policy.update, row, 1.0, offered=good, action=0))
    for reward in (np.nan, np.inf, -np.inf, "one", None, np.ones(2), 1j):
        refused("reward", partial(policy.update, good[0], reward, offered=good, action=0))
    assert bits(policy) == before


@law("numbers too large to square are refused")
def numbers_too_large_to_square_are_refused(make: Make) -> None:
    """Finite numbers whose squares overflow would end in NaN."""
    policy, good = played(make, 20), some_rounds(1)[0]
    before, huge = bits(policy), good * 1e180
    for call in (
        lambda: policy.select(huge),
        lambda: policy.scores(huge),
        lambda: policy.propensities(huge),
        lambda: policy.select_many(huge[None]),
        lambda: policy.update(huge[0], 1.0, offered=good, action=0),
        lambda: policy.update(good[0], 1e180, offered=good, action=0),
    ):
        refused("squares", call)
    assert bits(policy) == before
