"""Forgery: one change to a stored file, after which its checksum is right again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from containers import TYPES, Parts, put_together, taken_apart, with_header
from wild import WILD_FLOATS, WILD_HEADERS, WILD_INTS, wild

Change = Callable[[Parts, np.random.Generator], Parts]
CHANGES: dict[str, Change] = {}


def change(words: str) -> Callable[[Change], Change]:
    """Add a way to change the parts of a file."""

    def added(function: Change) -> Change:
        CHANGES[words] = function
        return function

    return added


def forged(content: bytes, words: str, rng: np.random.Generator) -> bytes:
    """The file with one change of this kind; of models, often inside the policy or the moments that they hold."""
    if words in RAW:
        return RAW[words](content, rng)
    kind, arrays, about = taken_apart(content)
    inside = [name for name in ("policy", "moments", "log_odds") if kind == "model" and name in arrays]
    if inside and rng.random() < 0.6:
        name = str(rng.choice(inside))
        changed = forged(arrays[name].tobytes(), words, rng)
        return put_together((kind, {**arrays, name: np.frombuffer(changed, np.uint8)}, about))
    return put_together(CHANGES[words]((kind, arrays, about), rng))


# -- what a file says of itself --


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside plain values."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, one in inside for place in _places(one, (*path, key))]


def _holder(about: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        about = about[key]
    return about


@change("setting: another value")
def other_setting(parts: Parts, rng: np.random.Generator) -> Parts:
    """One value, at any depth."""
    kind, arrays, about = parts
    places = _places(about)
    path = places[rng.integers(len(places))]
    holder = _holder(about, path)
    holder[path[-1]] = wild(holder[path[-1]], rng)
    return kind, arrays, about


@change("setting: gone, new or exchanged")
def other_settings(parts: Parts, rng: np.random.Generator) -> Parts:
    """Names and places of values; sometimes all of them."""
    kind, arrays, about = parts
    places, how = _places(about), rng.integers(5)
    path, other = (places[rng.integers(len(places))] for _ in range(2))
    holder, second = _holder(about, path), _holder(about, other)
    if how == 0:
        del holder[path[-1]]
    elif how == 1 and isinstance(holder, dict):
        holder[f"{path[-1]}_"] = holder.pop(path[-1])
    elif how == 2 and isinstance(holder, dict):
        holder["".join(rng.choice(list("abcxyz_"), 5))] = wild(0, rng)
    elif how == 3:
        holder[path[-1]], second[other[-1]] = second[other[-1]], holder[path[-1]]
    else:
        about = wild(0, rng)
    return kind, arrays, json.loads(json.dumps(about)) if not _is_circular(about) else {}


def _is_circular(about: Any) -> bool:
    try:
        json.dumps(about)
    except ValueError:
        return True
    return False


# -- arrays --


def _one(arrays: dict[str, Any], rng: np.random.Generator) -> str:
    return sorted(arrays)[rng.integers(len(arrays))]


@change("array: other numbers")
def other_numbers(parts: Parts, rng: np.random.Generator) -> Parts:
    """A few entries wild, or all of them changed in one way."""
    kind, arrays, about = parts
    name = _one(arrays, rng)
    array, whole = arrays[name], arrays[name].dtype.kind in "iu"
    if not array.size:
        return kind, {**arrays, name: np.ones((1,) * array.ndim, array.dtype)}, about
    how = rng.integers(6)
    if how < 3:
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(array.size))
            value = wild(array.flat[at].item(), rng) if rng.random() < 0.5 else None
            if not isinstance(value, int | float):
                value = (WILD_INTS if whole else WILD_FLOATS)[rng.integers(len(WILD_INTS if whole else WILD_FLOATS))]
            array.flat[at] = _as(array.dtype, value)
    elif how == 3:
        value = (WILD_INTS if whole else WILD_FLOATS)[rng.integers(len(WILD_INTS if whole else WILD_FLOATS))]
        array[...] = _as(array.dtype, value)
    elif how == 4:
        factor = (-1.0, 1e-9, 1e9, 1e60, -1e-30, 1.001, 0.0, 2.0)[rng.integers(8)]
        with np.errstate(over="ignore", invalid="ignore"):
            arrays[name] = (array * factor).astype(array.dtype)
    else:
        arrays[name] = rng.permutation(array.reshape(-1)).reshape(array.shape)
    return kind, arrays, about


def _as(dtype: Any, value: Any) -> Any:
    """A number as an entry of this type, wrapped around if it is too large."""
    if np.dtype(dtype).kind not in "iu":
        return float(value) if abs(value) < 1e308 or value != value else np.sign(value) * 1e308
    whole = int(value) if np.isfinite(float(value) if abs(value) < 1e300 else 0.0) and abs(value) < 1e300 else 0
    bits = 8 * np.dtype(dtype).itemsize
    whole %= 2**bits
    return whole - 2**bits if np.dtype(dtype).kind == "i" and whole >= 2 ** (bits - 1) else whole


@change("array: another shape")
def other_shape(parts: Parts, rng: np.random.Generator) -> Parts:
    """Rows more or less, axes more or less, turned; often with the sizes of the settings left alone."""
    kind, arrays, about = parts
    name = _one(arrays, rng)
    array, how = arrays[name], rng.integers(6)
    if how == 0 and array.ndim and len(array):
        array = array[:-1]
    elif how == 1 and array.ndim and len(array):
        array = np.concatenate([array, array[-1:]])
    elif how == 2:
        array = array.T
    elif how == 3:
        array = array.reshape(-1)
    elif how == 4:
        array = array[None]
    else:
        array = np.zeros([0] * array.ndim, array.dtype)
    return kind, {**arrays, name: np.array(array)}, about


@change("array: another type")
def other_type(parts: Parts, rng: np.random.Generator) -> Parts:
    """Converted, or the same bytes read as another."""
    kind, arrays, about = parts
    name = _one(arrays, rng)
    wanted = sorted(TYPES)[rng.integers(len(TYPES))]
    array = np.ascontiguousarray(arrays[name])
    if rng.random() < 0.5 and array.ndim and array.size and array.dtype.itemsize == np.dtype(wanted).itemsize:
        return kind, {**arrays, name: array.view(wanted)}, about
    with np.errstate(all="ignore"):
        return kind, {**arrays, name: array.astype(wanted)}, about


@change("array: gone, new, renamed or exchanged")
def other_names(parts: Parts, rng: np.random.Generator) -> Parts:
    """Which arrays there are."""
    kind, arrays, about = parts
    name, other, how = _one(arrays, rng), _one(arrays, rng), rng.integers(4)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[f"{name}_"] = arrays.pop(name)
    elif how == 2:
        arrays["extra"] = rng.normal(size=int(rng.integers(0, 9)))
    else:
        arrays[name], arrays[other] = arrays[other], arrays[name]
    return kind, arrays, about


@change("several changes at once")
def several(parts: Parts, rng: np.random.Generator) -> Parts:
    """Two to four of the others: sizes of settings and of arrays may agree again."""
    others = [one for one in CHANGES.values() if one is not several]
    for _ in range(int(rng.integers(2, 5))):
        if not parts[1] or not _places(parts[2]):
            break
        parts = others[rng.integers(len(others))](parts, rng)
    return parts


@change("sizes in agreement")
def agreeing(parts: Parts, rng: np.random.Generator) -> Parts:
    """A size of the settings multiplied, and every axis of that length with it, filled by repetition."""
    kind, arrays, about = parts
    sizes = [path for path in _places(about) if type(_holder(about, path)[path[-1]]) is int]
    if not sizes:
        return other_shape(parts, rng)
    path = sizes[rng.integers(len(sizes))]
    before = _holder(about, path)[path[-1]]
    after = before + int(rng.integers(-2, 4))
    if not 0 < before < 200 or not after > 0:
        return other_shape(parts, rng)
    _holder(about, path)[path[-1]] = after
    for name, array in arrays.items():
        for axis, length in enumerate(array.shape):
            if before and length in (before, before + 1):
                array = np.take(array, np.arange(after + length - before) % length, axis=axis)
        arrays[name] = array
    return kind, arrays, about


# -- bytes --


def _other_header(content: bytes, rng: np.random.Generator) -> bytes:
    """Entries of the header that lie about arrays, or a header that is none."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    if rng.random() < 0.2:
        text = WILD_HEADERS[rng.integers(len(WILD_HEADERS))]
        text = text.ljust(-(-len(text) // 8) * 8)
        claimed = len(text) if rng.random() < 0.7 else int(WILD_INTS[rng.integers(len(WILD_INTS))]) % 2**64
        return claimed.to_bytes(8, "little") + text + data
    names = [name for name in header if name != "__metadata__"]
    entry = header[names[rng.integers(len(names))]]
    how = rng.integers(5)
    if how == 0:
        entry["dtype"] = str(rng.choice(["F64", "F32", "I64", "U8", "BOOL", "BF16", "X", ""]))
    elif how == 1:
        place = int(rng.integers(2))
        entry["data_offsets"][place] = wild(entry["data_offsets"][place], rng)
    elif how == 2 and entry["shape"]:
        place = int(rng.integers(len(entry["shape"])))
        entry["shape"][place] = wild(entry["shape"][place], rng)
    elif how == 3:
        entry["shape"] = [2**40, 2**40] if rng.random() < 0.5 else wild(0, rng)
    else:
        key = str(rng.choice(["dtype", "shape", "data_offsets"]))
        entry[key] = wild(0, rng)
    return with_header(header, data)


def _other_metadata(content: bytes, rng: np.random.Generator) -> bytes:
    """Product, format, kind or checksum."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    key = str(rng.choice(["product", "format", "kind", "sha256", "about"]))
    header["__metadata__"][key] = wild(0, rng)
    return with_header(header, data)


def _other_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Flipped bits, other bytes, cuts, insertions, repetitions, zeros; half of them in the header."""
    data, how = bytearray(content), rng.integers(7)
    end = len(data) if rng.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    at, length = int(rng.integers(min(end, len(data)))), int(rng.integers(1, 17))
    if how == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif how == 1:
        data[at] = int(rng.integers(256))
    elif how == 2:
        del data[at:]
    elif how == 3:
        del data[at : at + length]
    elif how == 4:
        data[at:at] = rng.bytes(length)
    elif how == 5:
        data[at:at] = data[at : at + length]
    else:
        data[at : at + length] = bytes(len(data[at : at + length]))
    return bytes(data)


RAW: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "header: other entries": _other_header,
    "header: other metadata": _other_metadata,
    "any bytes": _other_bytes,
}
KINDS = (*CHANGES, *RAW)
"""Every kind of change, in words."""
