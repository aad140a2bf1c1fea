"""Laws of refusing: what cannot be used is refused in one line, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
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
        [[1.0, 2.0], [3.0]],
    )
    yield from _no_numbers(good)


def _no_numbers(good: Array) -> Iterator[Any]:
    """The same in forms that are no numbers, though arrays of numbers could be made of some."""
    yield from (good.astype(kind) for kind in (complex, str, bytes, object, "datetime64[s]", "timedelta64[s]"))
    yield from (np.ma.array(good, mask=good < 0.0), np.ma.array(good), np.full(good.shape, 10**400, dtype=object))
    yield [10**400, *good.ravel().tolist()[1:]] if good.ndim == 1 else [[10**400] * len(one) for one in good]


def _no_number() -> Iterator[Any]:
    yield from (10**400, -(10**400), "1.0", b"1", np.datetime64(1, "s"), np.timedelta64(1, "s"), 1j, np.ma.masked)


@law("bad input is refused and changes nothing")
def bad_input_is_refused_and_changes_nothing(make: Make) -> None:
    """NaN, infinity, wrong shapes, text, dates, masked arrays, whole numbers beyond all floats."""
    policy, good = played(make, 20), some_rounds(1)[0]
    before = bits(policy)
    for features in _bad_offered(good):
        for method in (policy.select, policy.scores, policy.propensities):
            refused("features", partial(method, features))
    many = np.stack([good, good])
    for batch in (good, many[:, :, :-1], many[:0], np.stack([good, _spoiled(good, np.nan)]), "features", None):
        refused("features", partial(policy.select_many, batch))
    rows = (_spoiled(good, np.nan)[1], _spoiled(good, np.inf)[1], good[0, :-1], good, np.array([]), "row", None)
    for row in (*rows, *_no_numbers(good[0])):
        refused("features", partial(policy.update, row, 1.0, offered=good, action=0))
    for reward in (np.nan, np.inf, -np.inf, "one", None, np.ones(2), *_no_number()):
        refused("reward", partial(policy.update, good[0], reward, offered=good, action=0))
    assert bits(policy) == before


@law("a batch is refused like its rounds")
def a_batch_is_refused_like_its_rounds(make: Make) -> None:
    """`select_many` refuses what `select` refuses, and nothing else; finite numbers of all sizes among it."""
    policy, good = played(make, 20), some_rounds(1)[0]
    before = bits(policy)
    for features in _bad_offered(good):
        refused("features", partial(policy.select_many, _batch(features, features)))
    for size in (0.0, 1e-300, 1e3, 1e9, 1e50, 1e90, 3e99, 1e100, 1e101, 1e120, 1e150, 1e180, 1e300):
        alone = _accepts(partial(policy.select, size * good))
        batch = np.stack([good, size * good, good])
        assert _accepts(partial(policy.select_many, batch)) == alone, f"features times {size:g}, alone: {alone}"
    assert bits(policy) == before


def _batch(*rounds: Any) -> Any:
    """Rounds as a batch, masks kept."""
    if any(isinstance(one, np.ma.MaskedArray) for one in rounds):
        return np.ma.stack(rounds)
    return np.stack(rounds) if all(isinstance(one, np.ndarray) for one in rounds) else list(rounds)


def _accepts(call: Callable[[], Any]) -> bool:
    """Whether a call is answered; False if it is refused with InputError, and no other error will do."""
    try:
        call()
    except InputError:
        return False
    return True


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
