"""Files written whole or not at all, the states that they hold, and locks for objects with such states.

A state is plain settings and named arrays. A `StateSchema` gives the dtype, shape and range of every array.
Saving validates the state against its schema and replaces the file atomically. Loading validates the arrays
before anything is made of them. The container is safetensors; equal states have equal bytes.
"""

from __future__ import annotations

import copy
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, partial
from os import PathLike
from pathlib import Path
from threading import RLock
from types import UnionType
from typing import (
    Any,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from invariant_bandits.checks import Array, InputError, number_between, whole_number

# -- files --

_SCRATCH = re.compile(r"\d+-[0-9a-f]{8}")


def replace_file(path: str | PathLike[str], content: bytes) -> None:
    """Put `content` under `path` atomically; see `atomic_write`."""
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        file.write(content)


@contextmanager
def atomic_write(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a scratch path; when the block ends without an error, its content replaces the file at `path`.

    A reader sees the old file or the new one, never a part. The next writer removes what a killed writer left
    behind. A link is followed. A device, a pipe or a folder is refused.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp(), "log.csv")
    >>> with atomic_write(target) as scratch:
    ...     _ = scratch.write_text("x,reward")
    ...     target.exists()
    False
    >>> target.read_text()
    'x,reward'
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{path} is not a file and is not written to")
    _remove_left_behind(target)
    scratch = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with _locked_file(scratch) as handle:
            yield scratch
            os.fsync(handle)
            # A new file has the permissions that this user gives.
            if target.exists():
                shutil.copymode(target, scratch)
            os.replace(scratch, target)
    except OSError as error:
        of_another_file = error.filename not in (None, str(scratch), scratch)
        if error.errno is None or of_another_file:
            raise
        words = f"it could not be written: {os.strerror(error.errno)}"
        raise OSError(error.errno, words, str(target)) from None
    finally:
        scratch.unlink(missing_ok=True)
    _sync_folder(target.parent)


@contextmanager
def _locked_file(scratch: Path) -> Iterator[int]:
    """Create a file and hold a lock on it: a scratch file without a lock has lost its writer."""
    while True:
        handle = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            _lock(handle, wait=True)
            if scratch.exists():  # else another writer removed it before it was locked
                yield handle
                return
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool:
    """Lock a file; return whether that worked, which it never does on systems without such locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ModuleNotFoundError, OSError):
        return False
    return True


def _remove_left_behind(target: Path) -> None:
    """Remove scratch files of writers that ended before they were done: no process holds their lock."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*"):
        if (
            _SCRATCH.fullmatch(path.name.removeprefix(f".{target.name}."))
            and path.is_file()
        ):
            with suppress(OSError), path.open("rb") as file:
                if _lock(file.fileno()):
                    path.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush the folder's entry to the disk, where the system allows it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of a TOML file, or raise FileError."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (
        OSError,
        UnicodeDecodeError,
        tomllib.TOMLDecodeError,
        RecursionError,
    ) as error:
        raise FileError(f"{path} is not readable as TOML: {error}") from None


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with names such as "world.drift".

    >>> flatten({"world": {"drift": 1.0, "blocks": [4, 1]}, "logged": 500})
    {'world.drift': 1.0, 'world.blocks': [4, 1], 'logged': 500}
    """
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


# -- schemas --

Range: TypeAlias = float | tuple[float, ...]
"""A bound of every entry of an array, or one bound per entry of its last axis."""

LARGEST = 1e300
"""Numbers beyond this are near the end of floats: sums of a few of them would be infinite."""
MOST_ROUNDS = float(2**62)
"""A counter beyond this could not go on counting."""


@dataclass(frozen=True)
class ArraySpec:
    """What a stored array must be.

    Parameters
    ----------
    shape : tuple of int or str
        A letter is a size that is the same wherever it stands in a schema; "q+1" follows from it.
    dtype : str
        As numpy calls it.
    least, most : float or tuple of float
        Range of the entries. NaN is never in it.
    or_empty : bool
        Whether the shape may also be (0, …, 0), where nothing is known.
    or_nan : bool
        Whether entries may be NaN, where there is no answer.

    >>> ArraySpec(("q", "q+1"), least=0.0).check("factor", np.array([[1.0, -2.0]]), {})
    Traceback (most recent call last):
    invariant_bandits.checks.InputError: factor must be from 0.0 to 1e+300, got -2.0
    """

    shape: tuple[int | str, ...]
    dtype: str = "float64"
    least: Range = -LARGEST
    most: Range = LARGEST
    or_empty: bool = False
    or_nan: bool = False

    def check(self, name: str, array: Array, sizes: dict[str, int]) -> None:
        """Raise InputError if dtype, shape or an entry is wrong; `sizes` learns the sizes of new letters."""
        sized = zip(self.shape, array.shape, strict=False)
        fits = (self.or_empty and not any(array.shape)) or all(
            _fits(*pair, sizes) for pair in sized
        )
        if array.dtype != self.dtype or array.ndim != len(self.shape) or not fits:
            raise InputError(
                f"{name} must be {self.dtype} of shape ({', '.join(map(str, self.shape))}), "
                f"where {sizes}, got {array.dtype} {array.shape}"
            )
        inside = (array >= self.least) & (array <= self.most)
        if self.or_nan:
            inside |= np.isnan(array)
        if not inside.all():
            raise InputError(
                f"{name} must be from {self.least} to {self.most}, got {array[~inside].flat[0]}"
            )


def _fits(size: int | str, length: int, sizes: dict[str, int]) -> bool:
    """Whether an axis has its length; a letter without a size gets one."""
    if isinstance(size, int):
        return size == length
    letter, _, more = size.partition("+")
    known = sizes.setdefault(letter, length - int(more or 0))
    return known >= 0 and known + int(more or 0) == length


@dataclass(frozen=True)
class StateSchema:
    """What the settings and arrays of a state must be.

    Parameters
    ----------
    arrays : mapping of str to ArraySpec
        Every array of the state.
    sizes : mapping of str to int
        Letters of the shapes that the settings determine.
    parts : mapping of str to StateSchema
        States inside this one, by the prefix of their arrays; their letters are their own.
    others : bool
        Whether there may be other arrays, of finite numbers.
    """

    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, StateSchema] = field(default_factory=dict)
    others: bool = False

    def check(self, arrays: Mapping[str, Array]) -> None:
        """Raise InputError unless these are the arrays of such a state, all entries in their ranges."""
        sizes = dict(self.sizes)
        prefixes = tuple(self.parts)
        remaining = {
            name: a for name, a in arrays.items() if not name.startswith(prefixes)
        }
        for name, spec in self.arrays.items():
            if name not in remaining:
                raise InputError(f"{name} is missing")
            spec.check(name, remaining.pop(name), sizes)
        for name, array in remaining.items():
            if not self.others:
                raise InputError(f"{name} does not belong here")
            ArraySpec(array.shape, str(array.dtype)).check(name, array, sizes)
        for prefix, part in self.parts.items():
            part.check(under(arrays, prefix))


ANYTHING = StateSchema(others=True)
"""Of a state without a schema: finite numbers."""


def counters(*shape: int | str) -> ArraySpec:
    """Return the spec of whole numbers that count rounds."""
    return ArraySpec(shape=shape, dtype="int64", least=0.0, most=MOST_ROUNDS)


def prefixed(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same values under longer names."""
    return {f"{prefix}{name}": value for name, value in named.items()}


def under(named: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the values whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in named.items()
        if name.startswith(prefix)
    }


def finite_number(name: str, value: Any) -> float:
    """Return `value` as a finite float, or raise."""
    return number_between(name, value, -LARGEST, LARGEST)


def variance(name: str, value: Any) -> float:
    """Return `value` as a finite float of at least 0, or raise."""
    if value == 0 and not isinstance(value, bool):
        return 0.0
    return number_between(name, value, 0.0, LARGEST)


def count(name: str, value: Any) -> int:
    """Return `value` as an int of at least 0 that can be counted to, or raise."""
    return whole_number(name, value, 0, int(MOST_ROUNDS))


def truth_value(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, or raise."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {value!r:.80}")
    return value


# -- dataclasses as states --

Kind = TypeVar("Kind")
Arrays: TypeAlias = Mapping[str, Array]


def schema_of(kind: Any, names: Collection[str]) -> StateSchema:
    """Return the schema of a dataclass whose fields carry specs; `names` are those of the arrays present.

    Arrays whose field carries no spec may be any finite numbers. Checks that fields carry are those of
    `from_state`.
    """
    specs = {}
    parts = {}
    for each in fields(kind):
        kinds = _alternatives(_hints(kind)[each.name])
        inside = list(under(dict.fromkeys(names), f"{each.name}."))
        notes = [note for other in kinds for note in getattr(other, "__metadata__", ())]
        if notes and isinstance(notes[0], ArraySpec):
            if each.name in names or (
                each.default is MISSING and each.default_factory is MISSING
            ):
                specs[each.name] = notes[0]
        elif inside:
            outer = {name.partition(".")[0] for name in inside}
            # A list of dataclasses is none: what its items need, they check themselves.
            for nested in kinds:
                if is_dataclass(nested) and outer <= _hints(nested).keys():
                    parts[f"{each.name}."] = schema_of(nested, inside)
    return StateSchema(specs, parts=parts, others=True)


def to_state(value: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split a dataclass into plain settings and arrays, which are named by their path: "prior.mean".

    Fields hold arrays, numbers, texts, dates, or lists, mappings and dataclasses of these. A field whose
    metadata say `stored=False` is left out. If a field may hold any class that derives from a protocol, the
    state names the class.
    """
    arrays: dict[str, Array] = {}
    return _split(value, "", arrays), arrays


def _split(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = value.view("int64") if value.dtype.kind == "M" else value
        return str(value.dtype) if value.dtype.kind == "M" else None
    if is_dataclass(value):
        stored = [
            each
            for each in fields(value)
            if each.init and each.metadata.get("stored", True)
        ]
        names = {CLASS: type(value).__name__} if _has_protocol(type(value)) else {}
        value = names | {each.name: getattr(value, each.name) for each in stored}
    if isinstance(value, Mapping):
        inside = f"{path}." if path else ""
        plain = {
            str(name): _split(each, f"{inside}{name}", arrays)
            for name, each in value.items()
        }
        return {
            name: each
            for name, each in plain.items()
            if each is not None or f"{inside}{name}" not in arrays
        }
    if isinstance(value, list | tuple):
        return [
            _split(each, f"{path}.{index}", arrays) for index, each in enumerate(value)
        ]
    if isinstance(value, np.datetime64):
        return {str(value.dtype): int(value.astype("int64"))}
    return value.item() if isinstance(value, np.generic) else value


def from_state(
    kind: type[Kind], settings: Mapping[str, Any], arrays: Arrays, **others: Any
) -> Kind:
    """Make the dataclass that `to_state` split; `others` are fields that were left out."""
    hints = _hints(kind)
    names = dict.fromkeys([*settings, *(name.partition(".")[0] for name in arrays)])
    names.pop(CLASS, None)
    return kind(
        **others,
        **{
            name: _join(hints[name], settings.get(name), name, arrays) for name in names
        },
    )


def _join(hint: Any, plain: Any, path: str, arrays: Arrays) -> Any:
    if path in arrays:
        return arrays[path].view(plain) if isinstance(plain, str) else arrays[path]
    if plain is None:
        return None
    kinds = [each for each in _alternatives(hint) if each is not type(None)]
    for each in kinds:
        if isinstance(each, type) and is_dataclass(each) and isinstance(plain, dict):
            is_named = plain.get(CLASS) in (None, each.__name__)
            if is_named and plain.keys() - {CLASS} <= _hints(each).keys():
                return from_state(each, plain, under(arrays, f"{path}."))
    hint = kinds[0]
    if is_dataclass(hint):
        raise InputError(f"{path} must have the fields of {hint}, got {plain!r:.80}")
    if hasattr(hint, "__metadata__"):
        return hint.__metadata__[0](path, plain)
    if hint is float:
        return finite_number(path, plain)
    if hint in (str, int, bool) and type(plain) not in kinds:
        raise InputError(f"{path} must be {hint.__name__}, got {plain!r:.80}")
    return _join_items(hint, plain, path, arrays)


def _join_items(hint: Any, plain: Any, path: str, arrays: Arrays) -> Any:
    """Make a list, a tuple, a mapping or a date."""
    of = get_args(hint) or (Any, Any)
    if isinstance(plain, list):
        if get_origin(hint) is not tuple or of[-1] is ...:
            of = of[:1] * len(plain)
        items = [
            _join(*pair, f"{path}.{index}", arrays)
            for index, pair in enumerate(zip(of, plain, strict=True))
        ]
        return tuple(items) if get_origin(hint) is tuple else items
    if isinstance(plain, dict):
        dtype = next(iter(plain), "")
        if dtype.startswith("datetime64["):
            return np.int64(plain[dtype]).astype(dtype)
        return {
            name: _join(of[-1], item, f"{path}.{name}", arrays)
            for name, item in plain.items()
        }
    return plain


CLASS = "class"
"""Setting with the name of a class that derives from a protocol; no field can have this name."""


def _is_protocol(kind: Any) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _has_protocol(kind: type) -> bool:
    return any(map(_is_protocol, kind.__mro__))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the kinds of value that a field may hold: for a protocol, all classes that derive from it."""
    if _is_protocol(hint):
        return _derived(hint)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _derived(kind: type) -> tuple[type, ...]:
    known: list[type] = kind.__subclasses__()
    return (*known, *(each for base in known for each in _derived(base)))


_hints: Callable[[Any], dict[str, Any]] = cache(
    partial(get_type_hints, include_extras=True)
)


# -- objects whose state threads share --


class ThreadSafe:
    """Has a re-entrant lock, `_lock`, that every method holds while it changes the state or reads it.

    A derived class does the same with the state that it adds:

        def update(self, features, reward, *, offered=None, action=None):
            with self._lock:
                super().update(features, reward)
                self.total += reward

    Copies and unpickled objects have locks of their own; the original's lock is held while they are made. A
    lock that another thread holds during a fork stays locked in the child: spawn processes, or load the
    object in the child.
    """

    _lock: Any

    def __new__(cls, *_positional: Any, **_named: Any) -> Self:
        """Make an object with its lock, even if a derived class does not call this constructor."""
        made = super().__new__(cls)
        made._lock = RLock()
        return made

    def _unlocked(self) -> dict[str, Any]:
        """The attributes that make up the state."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def _put_back(self, state: dict[str, Any]) -> None:
        """Restore `state`; at no moment are there no attributes, since other threads may read them."""
        vars(self).update(state)
        for name in vars(self).keys() - state.keys() - {"_lock"}:
            delattr(self, name)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy(self._unlocked())

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self._lock:
            made = type(self).__new__(type(self))
            memo[id(self)] = made
            made.__setstate__(copy.deepcopy(self._unlocked(), memo))
            return made

    def __copy__(self) -> Self:
        """Copy deeply: two objects that shared arrays would learn from each other's rounds."""
        return copy.deepcopy(self)


def lock_of(thing: Any) -> AbstractContextManager[Any]:
    """Return what to hold while several calls must see one state; nothing, if the thing is not ThreadSafe."""
    return thing._lock if isinstance(thing, ThreadSafe) else nullcontext()


# -- states in files --

PRODUCT = "invariant-bandits"
FORMAT_VERSION = 1
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "I64": "int64",
    "I32": "int32",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Types of arrays, as safetensors and as numpy call them."""
SchemaFor: TypeAlias = Callable[[Mapping[str, Any], list[str]], StateSchema]
"""The settings and the names of the arrays in a file -> what it must hold, or InputError."""


class FileError(InputError):
    """Error: a stored file is damaged, written by another program, or written by a newer version.

    >>> import tempfile, pathlib, invariant_bandits as ib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "policy"
    >>> _ = path.write_text("not a policy")
    >>> try:
    ...     ib.load(path)
    ... except ib.FileError as error:
    ...     print(type(error).__name__)
    FileError
    """


def encode(kind: str, arrays: Arrays, settings: Mapping[str, Any]) -> bytes:
    """Return the content of a file with this state."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    about = json.dumps(dict(settings), allow_nan=False)
    metadata = {
        "product": PRODUCT,
        "format": str(FORMAT_VERSION),
        "kind": kind,
        "about": about,
        "sha256": digest(kind, about, arrays),
    }
    content = save(arrays, metadata=metadata)
    # safetensors writes metadata in random order: with its keys sorted, the same state has the same bytes.
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + text.ljust(length) + content[8 + length :]


def contents(path: str | PathLike[str]) -> bytearray:
    """Return the bytes of a file, for `decode`."""
    return bytearray(Path(path).read_bytes())


def decode(
    content: bytes | bytearray,
    kind: str,
    name: str,
    schema_for: SchemaFor = lambda settings, names: ANYTHING,
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the settings in the content of a file, or raise FileError.

    The arrays are writable views of a `bytearray`. `name` is for messages.
    """
    content = content if isinstance(content, bytearray) else bytearray(content)
    metadata, entries = _header(name, content)
    _check_origin(name, metadata, kind)
    try:
        settings = json.loads(metadata["about"])
        arrays = {}
        data = memoryview(content)[8 + int.from_bytes(content[:8], "little") :]
        for key, entry in entries.items():
            part = data[slice(*entry["data_offsets"])]
            flat = np.frombuffer(part, DTYPES[entry["dtype"]])
            arrays[key] = flat.reshape(entry["shape"])
        if sum(array.nbytes for array in arrays.values()) != len(data):
            raise FileError(f"{name} is damaged: its arrays do not fill it")
        if digest(kind, metadata["about"], arrays) != metadata["sha256"]:
            raise FileError(
                f"{name} is damaged: its checksum does not match its content"
            )
        schema_for(settings, list(arrays)).check(arrays)
    except FileError:
        raise
    except Exception as error:
        raise not_whole(name, kind, error) from None
    return arrays, settings


def not_whole(name: str, kind: str, error: Exception) -> FileError:
    """Return the refusal of a file from which no such object can be made."""
    reason = " ".join(str(error).split())
    if isinstance(error, KeyError):
        reason = f"{error} is missing"
    return FileError(f"{name} does not hold a whole {kind}: {reason}")


def _check_origin(name: str, metadata: Mapping[str, str], kind: str) -> None:
    if metadata.get("product") != PRODUCT:
        raise FileError(f"{name} was not written by {PRODUCT}")
    if metadata.get("format") != str(FORMAT_VERSION):
        raise FileError(
            f"{name} has format {metadata.get('format')}, this version reads format "
            f"{FORMAT_VERSION}: a newer release may be needed"
        )
    if metadata.get("kind") != kind:
        raise FileError(f"{name} holds {metadata.get('kind')!r}, not {kind!r}")


def kind_of(path: str | PathLike[str]) -> str | None:
    """Return what a file of this library holds, such as "model", or None; only the header is read."""
    with Path(path).open("rb") as file:
        start = file.read(8)
        length = min(int.from_bytes(start, "little"), os.fstat(file.fileno()).st_size)
        with suppress(FileError):
            metadata, _ = _header(str(path), start + file.read(length))
            return metadata.get("kind") if metadata.get("product") == PRODUCT else None
    return None


def _header(
    name: str, content: bytes | bytearray
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the metadata and the entries of all arrays in the header of a container."""
    try:
        length = int.from_bytes(content[:8], "little")
        entries = json.loads(content[8 : 8 + length])
        return dict(entries.pop("__metadata__")), entries
    except Exception as error:
        raise FileError(f"{name} is damaged or foreign: {error}") from None


def digest(kind: str, about: str, arrays: Arrays) -> str:
    """Return the SHA-256, in hexadecimal digits, of everything that a stored file says."""
    content = hashlib.sha256()
    for part in (PRODUCT, str(FORMAT_VERSION), kind, about):
        content.update(f"{len(part)}:{part}".encode())
    for name in sorted(arrays):
        array = arrays[name]
        content.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()
