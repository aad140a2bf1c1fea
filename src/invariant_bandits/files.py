"""One file form for everything that is stored: named arrays with a checked header, written whole or not at all.

A file is a safetensors container (no pickle, no code) whose metadata carry the product, the format version, the
kind of content, a JSON description and a SHA-256 over all of it. Reading verifies every one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.description import ANYTHING, Description
from invariant_bandits.replacing import replace_file as replace_file

PRODUCT = "invariant-bandits"
FORMAT_VERSION = 1
LONGEST_HEADER = 1 << 28
DTYPES = {"F64": "float64", "F32": "float32", "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
"""Types of arrays, as containers call them and as numpy does."""
Describe: TypeAlias = Callable[[Mapping[str, Any], list[str]], Description]
"""What a file says of itself, and the names of its arrays -> what it must hold, or InputError."""


class FileError(InputError):
    """A stored file that is damaged, foreign or too new."""


def write(
    path: str | PathLike[str], kind: str, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, Any]
) -> None:
    """Store `arrays` and the JSON-able `about` under `path`, replacing it in one step."""
    replace_file(path, encode(kind, arrays, about))


def encode(kind: str, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, Any]) -> bytes:
    """The content of a file that holds `arrays` and the JSON-able `about`."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described = json.dumps(dict(about), sort_keys=True, allow_nan=False)
    header = {
        "product": PRODUCT,
        "format": str(FORMAT_VERSION),
        "kind": kind,
        "about": described,
        "sha256": digest(kind, described, arrays),
    }
    return _in_order(save(arrays, metadata=header))


def _in_order(content: bytes) -> bytes:
    """The same file with its metadata in the order of the alphabet: the same state has the same bytes."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + text.ljust(length) + content[8 + length :]


def contents(path: str | PathLike[str]) -> bytearray:
    """The bytes of a file, for `decode`."""
    with Path(path).open("rb") as file:
        content = bytearray(os.fstat(file.fileno()).st_size)
        read = file.readinto(content)
        return content[:read] if read != len(content) else content


def decode(
    content: bytes | bytearray, kind: str, name: str, describe: Describe = lambda about, names: ANYTHING
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The arrays and the description in the content of a file, or FileError that says what is wrong.

    Arrays are views of the content, which is the caller's no more: nothing is made room for before types and shapes
    have been compared with what the file must hold. `name` is for messages.
    """
    content = content if isinstance(content, bytearray) else bytearray(content)
    metadata, layout, places = _opened(name, content)
    _check_origin(name, metadata, kind)
    about = _said(name, metadata.get("about", ""))
    try:
        described = describe(about, list(layout))
        described.check_layout(layout)
        start = 8 + int.from_bytes(content[:8], "little")
        arrays = {
            key: np.frombuffer(content, dtype, prod(shape), start + places[key]).reshape(shape)
            for key, (dtype, shape) in layout.items()
        }
        if digest(kind, metadata["about"], arrays) != metadata.get("sha256"):
            raise FileError(f"{name} is damaged: its checksum does not match its content")
        described.check_values(arrays)
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{name} does not hold a whole {kind}: {_one_line(error)}") from None
    return arrays, about


def _one_line(error: Exception) -> str:
    """What an error says; a KeyError says no more than a key."""
    return f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())


def _check_origin(name: str, metadata: Mapping[str, str], kind: str) -> None:
    if metadata.get("product") != PRODUCT:
        raise FileError(f"{name} was not written by {PRODUCT}")
    if metadata.get("format") != str(FORMAT_VERSION):
        raise FileError(
            f"{name} has format {metadata.get('format')}, this version reads format {FORMAT_VERSION}:"
            " a newer release may be needed"
        )
    if metadata.get("kind") != kind:
        raise FileError(f"{name} holds {metadata.get('kind')!r}, not {kind!r}")


def _said(name: str, text: str) -> dict[str, Any]:
    """What a file says of itself: a dictionary in the one form in which `encode` writes it."""
    try:
        about = json.loads(text)
        if json.dumps(about, sort_keys=True, allow_nan=False) != text:
            raise ValueError("its description was not written like this")
    except (RecursionError, ValueError) as error:
        raise FileError(f"{name} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise FileError(f"{name} is damaged: its description is no dictionary")
    return about


def kind_of(path: str | PathLike[str]) -> str | None:
    """What a file that was written here holds, such as "model"; None for any other file. Its content is not checked."""
    with Path(path).open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 0 < length <= LONGEST_HEADER:
            return None
        try:
            metadata, _ = _header(str(path), start + file.read(length))
        except FileError:
            return None
    return metadata.get("kind") if metadata.get("product") == PRODUCT else None


def _opened(
    name: str, content: bytearray
) -> tuple[dict[str, str], dict[str, tuple[str, tuple[int, ...]]], dict[str, int]]:
    """The metadata, the types and shapes of all arrays, and where each begins: together they fill the file exactly."""
    metadata, entries = _header(name, content)
    layout: dict[str, tuple[str, tuple[int, ...]]] = {}
    places: dict[str, int] = {}
    try:
        for key, entry in entries.items():
            dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            if not all(type(size) is int and size >= 0 for size in (*shape, begin, end)):
                raise ValueError(f"{key} has impossible sizes")
            width = np.dtype(dtype).itemsize
            if prod(shape) * width != end - begin or begin % width:
                raise ValueError(f"{key} has another size than its shape, or lies askew")
            layout[key], places[key] = (dtype, shape), begin
        filled = 0
        for begin, end in sorted(tuple(entry["data_offsets"]) for entry in entries.values()):
            if begin != filled:
                raise ValueError("its arrays overlap or leave gaps")
            filled = end
        if filled != len(content) - 8 - int.from_bytes(content[:8], "little"):
            raise ValueError("its arrays do not fill it")
    except Exception as error:
        raise FileError(f"{name} is damaged: {_one_line(error)}") from None
    if not _is_compact(content):
        raise FileError(f"{name} is damaged: its header has been rearranged")
    return metadata, layout, places


def _header(name: str, content: bytes | bytearray) -> tuple[dict[str, str], dict[str, Any]]:
    """The metadata and the entries of all arrays, as the container has them."""
    try:
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or length % 8 or not 0 < length <= min(len(content) - 8, LONGEST_HEADER):
            raise ValueError("it is too short, or not such a file")
        entries = json.loads(content[8 : 8 + length])
        if not isinstance(entries, dict) or not isinstance(entries.get("__metadata__"), dict):
            raise ValueError("its header is no dictionary with metadata")
        metadata = entries.pop("__metadata__")
        if not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("its metadata are no texts")
        return metadata, entries
    except (RecursionError, ValueError) as error:
        raise FileError(f"{name} is damaged or foreign: {error}") from None


def _is_compact(content: bytearray) -> bool:
    """Whether the header is as `encode` writes it: no spaces but at its end, every key once."""
    text = content[8 : 8 + int.from_bytes(content[:8], "little")]
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode() == text.rstrip(b" ")


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """What a TOML file says, or FileError."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileError(f"{path} is not readable as TOML: {error}") from None


def under(arrays: Mapping[str, np.ndarray[Any, Any]], prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays whose names begin with `prefix`, under what follows it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def digest(kind: str, described: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """SHA-256, in hexadecimal digits, over all that a stored file says."""
    content = hashlib.sha256()
    for part in (PRODUCT, str(FORMAT_VERSION), kind, described):
        content.update(f"{len(part)}:{part}".encode())
    for name in sorted(arrays):
        array = arrays[name]
        content.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()
