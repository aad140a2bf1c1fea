"""What a stored state must be: one description, given where a class is defined, that saving, loading and tests share.

A description names the settings and arrays of a state: types, shapes in letters, ranges, and what else must hold of the
numbers. Names, types and shapes are compared with the header of a file before anything is read or made room for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, number_between, whole_number

Check: TypeAlias = Callable[[str, Any], Any]
"""(name, value) -> the value as it is used, or InputError; those of `checks` are such."""
Law: TypeAlias = Callable[[Array], str]
"""Values -> what is wrong with them, empty if nothing is."""
Layout: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name -> (type, shape) of every array, as the header of a file says."""

LARGEST = 1e300
MOST_ROUNDS = float(2**62)
"""A counter beyond this could not go on counting."""
NUMBERS_AT_ONCE = 2**20
"""Of matrices that are looked at together: checking takes little more memory than what is checked."""
ROUNDING = 1e-6
"""How far rounding may put the smallest eigenvalue of a matrix with unit diagonal below 0."""
_SIZE = re.compile(r"(\d*)([A-Za-z])(?:\+(\d+))?")


@dataclass(frozen=True)
class Numbers:
    """One stored array.

    Parameters
    ----------
    shape : tuple of int or str
        A letter is a size that is the same wherever it stands; "q+1" and "2q" follow from it.
    dtype : str
        As numpy calls it.
    least, most : float
        Range of every entry. NaN is never in it.
    law : Law, optional
        What else must hold.
    or_empty : bool
        Whether it may be of shape (0, …, 0), where nothing is known.
    or_nan : bool
        Whether entries may be NaN, where there is no answer.

    >>> Numbers(("q", "q+1"), least=0.0).wrong_values("factor", np.array([[1.0, -2.0]]))
    'factor must be from 0 to 1e+300, got -2.0'
    """

    shape: tuple[int | str, ...]
    dtype: str = "float64"
    least: float = -LARGEST
    most: float = LARGEST
    law: Law | None = None
    or_empty: bool = False
    or_nan: bool = False

    def wrong_layout(self, name: str, dtype: str, shape: tuple[int, ...], sizes: dict[str, int]) -> str:
        """What is wrong with type or shape, empty if nothing is; letters met for the first time enter `sizes`."""
        wanted = f"{name} must be {self.dtype} of shape ({', '.join(map(str, self.shape))}), got {dtype} {shape}"
        if dtype != self.dtype or len(shape) != len(self.shape):
            return wanted
        if self.or_empty and not any(shape):
            return ""
        if all(_fits(size, length, sizes) for size, length in zip(self.shape, shape, strict=True)):
            return ""
        known = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
        return f"{wanted} where {known}" if known else wanted

    def wrong_values(self, name: str, values: Array) -> str:
        """What is wrong with the entries, empty if nothing is."""
        found = _first_outside(values[~np.isnan(values)] if self.or_nan else values, self.least, self.most)
        if found is not None:
            return f"{name} must be from {self.least:g} to {self.most:g}, got {found}"
        wrong = "" if self.law is None else self.law(values)
        return f"{name} {wrong}" if wrong else ""


def counters(*shape: int | str) -> Numbers:
    """Whole numbers that count rounds."""
    return Numbers(shape, "int64", 0.0, MOST_ROUNDS)


@dataclass(frozen=True)
class Description:
    """What a state must be.

    Parameters
    ----------
    arrays : mapping of str to Numbers
        Every array that must be there.
    settings : mapping of str to Check
        Settings that are checked if they are there; constructors say which are needed.
    sizes : mapping of str to int
        Letters of the shapes that the settings tell.
    parts : mapping of str to Description
        States inside this one, by the prefix of their arrays; their letters are their own.
    laws : tuple of functions
        What else must hold of the arrays together, by name -> what is wrong, empty if nothing is.
    others : bool
        Whether any other finite numbers may be there, too.
    """

    arrays: Mapping[str, Numbers] = field(default_factory=dict)
    settings: Mapping[str, Check] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Description] = field(default_factory=dict)
    laws: tuple[Callable[[Mapping[str, Array]], str], ...] = ()
    others: bool = False

    def check_settings(self, given: Mapping[str, Any]) -> None:
        """Raise InputError unless every setting that is known has its type and lies in its range."""
        for name, check in self.settings.items():
            if name in given:
                check(name, given[name])

    def check_layout(self, layout: Layout) -> None:
        """Raise InputError unless names, types and shapes are those of such a state."""
        own, sizes = self._own(layout), dict(self.sizes)
        missing = sorted(self.arrays.keys() - own.keys())
        if missing:
            raise InputError(f"{missing[0]} is missing")
        for name, numbers in self.arrays.items():
            dtype, shape = own[name]
            _refuse(numbers.wrong_layout(name, dtype, shape, sizes))
        for name in own.keys() - self.arrays.keys():
            if not self.others or not own[name][0].startswith(("float", "int", "uint", "bool")):
                raise InputError(f"{name} does not belong here")
        for prefix, part in self.parts.items():
            part.check_layout(_under(layout, prefix))

    def check_values(self, arrays: Mapping[str, Array]) -> None:
        """Raise InputError unless all numbers are possible."""
        with np.errstate(all="ignore"):
            for name, values in self._own(arrays).items():
                _refuse(self.arrays.get(name, Numbers(values.shape)).wrong_values(name, values))
            for law in self.laws:
                _refuse(law(arrays))
        for prefix, part in self.parts.items():
            part.check_values(_under(arrays, prefix))

    def check(self, arrays: Mapping[str, Array]) -> None:
        """Raise InputError unless these are the arrays of such a state."""
        self.check_layout({name: (str(array.dtype), array.shape) for name, array in arrays.items()})
        self.check_values(arrays)

    def with_others(self) -> Description:
        """The same, with room for any other finite numbers."""
        return replace(self, others=True)

    def _own(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """What does not belong to a part."""
        return {name: one for name, one in named.items() if not name.startswith(tuple(self.parts))}


ANYTHING = Description(others=True)
"""Of a state that nobody described: finite numbers."""


def as_checked(checks: Mapping[str, Check], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as their checks return them: numbers of the right type, whatever JSON made of them."""
    return {name: checks[name](name, value) for name, value in given.items()}


def prefixed(prefix: str, arrays: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The same arrays under longer names."""
    return {f"{prefix}{name}": numbers for name, numbers in arrays.items()}


def _under(named: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): one for name, one in named.items() if name.startswith(prefix)}


def _refuse(wrong: str) -> None:
    if wrong:
        raise InputError(wrong)


def _fits(size: int | str, length: int, sizes: dict[str, int]) -> bool:
    """Whether an axis has its length; a letter without a size gets one."""
    if isinstance(size, int):
        return size == length
    factor, letter, more = _parsed(size)
    known = sizes.setdefault(letter, (length - more) // factor)
    return known >= 0 and factor * known + more == length


def _first_outside(values: Array, least: float, most: float) -> Any:
    """The first entry that is not in the range, or None; only looked for if the extreme ones are not."""
    if not values.size or (values.min() >= least and values.max() <= most):
        return None
    return values[~((values >= least) & (values <= most))].flat[0]


def _parsed(size: str) -> tuple[int, str, int]:
    found = _SIZE.fullmatch(size)
    assert found is not None, f"a size must be like 'q', 'q+1' or '2q', got {size!r}"
    return int(found[1] or 1), found[2], int(found[3] or 0)


# -- settings --


def finite_number(name: str, value: Any) -> float:
    """Return `value` as a finite float, or raise."""
    return number_between(name, value, -LARGEST, LARGEST)


def variance(name: str, value: Any) -> float:
    """Return `value` as a finite float of at least 0, or raise."""
    return 0.0 if value == 0 and not isinstance(value, bool) else number_between(name, value, 0.0, LARGEST)


def count(name: str, value: Any) -> int:
    """Return `value` as an int of at least 0 that can be counted to, or raise."""
    if whole_number(name, value, 0) > MOST_ROUNDS:
        raise InputError(f"{name} must be at most {MOST_ROUNDS:g}, got {value!r:.80}")
    return int(value)


def truth_value(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, or raise."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {value!r:.80}")
    return value


# -- laws of matrices, over stacks of them --


def adds_up_to_one(values: Array) -> str:
    """Probabilities (n,)."""
    return "" if abs(float(values.sum()) - 1.0) <= ROUNDING else "must add up to 1"


def increasing(values: Array) -> str:
    """Numbers (n,), each above the one before."""
    return "" if (np.diff(values) > 0).all() else "must increase strictly"


def orthonormal(values: Array) -> str:
    """Columns (p, q)."""
    off = np.abs(values.T @ values - np.eye(values.shape[1])).max(initial=0.0)
    return "" if off <= ROUNDING else "must have orthonormal columns"


def covariance(values: Array) -> str:
    """Whole matrices (..., d, d): symmetric, no variance below 0, up to rounding."""
    apart = np.abs(values - values.swapaxes(-1, -2)).max(axis=(-1, -2), initial=0.0)
    size = np.abs(values).max(axis=(-1, -2), initial=0.0)
    return no_variance_negative(values) if (apart <= ROUNDING * size).all() else "must be symmetric"


def no_variance_negative(values: Array) -> str:
    """Covariances (..., d, d) from their lower triangles: no variance below 0, up to rounding."""
    stack = values.reshape(-1, *values.shape[-2:]) if values.size else values
    step = max(1, NUMBERS_AT_ONCE // max(values.shape[-1] ** 2, 1))
    parts = (stack[first : first + step] for first in range(0, len(stack), step))
    return next((wrong for part in parts if (wrong := _wrong_covariances(part))), "")


def _wrong_covariances(values: Array) -> str:
    squares = np.diagonal(values, axis1=-2, axis2=-1)
    if (squares < 0.0).any():
        return "must have no negative variances"
    lower = np.tril(values)
    whole = lower + np.tril(lower, -1).swapaxes(-1, -2)
    scale = np.sqrt(np.where(squares > 0.0, squares, 1.0))
    whole = whole / scale[..., :, None] / scale[..., None, :]
    if not np.abs(whole).max(initial=0.0) <= 1.0 + ROUNDING:
        return "must be the lower triangle of a covariance"
    if whole.size and np.linalg.eigvalsh(whole).min() < -ROUNDING * whole.shape[-1]:
        return "must have no direction of negative variance"
    return ""


def sums_of_squares(values: Array) -> str:
    """Upper parts of [Σzzᵀ | Σzr] (..., q, q+1)."""
    return no_variance_negative(values[..., :-1].swapaxes(-1, -2))
