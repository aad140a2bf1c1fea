"""Files written whole or not at all: a reader sees the old one or the new one, whatever happens to the writer."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from invariant_bandits.checks import Array, InputError, number_between, whole_number


def replace_file(path: str | PathLike[str], content: bytes) -> None:
    """Put `content` under `path` so that a reader sees the old file or the new one, never a part.

    Where the system can (Linux), what is being written has no name until it is whole. What a process that was killed
    left behind is removed. A link is followed; what is no file (a device, a pipe, a folder) is refused.
    """
    target = _checked_target(path)
    with _beside(target) as scratch:
        try:
            _write_unnamed(scratch, content, target)
        except (AttributeError, NotImplementedError, OSError):
            with _held(scratch) as handle:
                _write_through(handle, content, _mode(target))
                os.replace(scratch, target)


@contextmanager
def atomic_write(path: str | PathLike[str]) -> Iterator[Path]:
    """A path to write to, by whatever writes; when the block ends well, its content is put under `path`.

    The same promises as of `replace_file`, but for a name while it is written.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp(), "log.csv")
    >>> with atomic_write(target) as scratch:
    ...     _ = scratch.write_text("x,reward")
    ...     target.exists()
    False
    >>> target.read_text()
    'x,reward'
    """
    target = _checked_target(path)
    with _beside(target) as scratch, _held(scratch) as handle:
        yield scratch
        os.fsync(handle)
        os.chmod(handle, _mode(target))
        os.replace(scratch, target)


def _checked_target(path: str | PathLike[str]) -> Path:
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{path} is not a file and is not written to")
    return target


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A name beside the target that nothing has in the end, and errors that name the target."""
    _remove_left_behind(target)
    scratch = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield scratch
    except OSError as error:
        if error.errno is None or (error.filename is not None and str(error.filename) != str(scratch)):
            raise
        raise OSError(error.errno, f"it could not be written: {os.strerror(error.errno)}", str(target)) from None
    finally:
        scratch.unlink(missing_ok=True)
    _write_folder_through(target.parent)


@contextmanager
def _held(scratch: Path) -> Iterator[int]:
    """A handle of a new file that is locked meanwhile: whoever finds it unlocked knows that its writer was killed."""
    while True:
        handle = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            _lock(handle, wait=True)
            if scratch.exists():  # else it was removed before it was locked
                yield handle
                return
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock a file if nobody else has, or once nobody has; whether it is locked, None where there are no such locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ModuleNotFoundError, OSError):
        return None
    return True


def _remove_left_behind(target: Path) -> None:
    """Remove scratch files of writers that are no more."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*"):
        owner = re.fullmatch(r"(\d+)-[0-9a-f]{8}", path.name.removeprefix(f".{target.name}."))
        if owner and path.is_file():
            with suppress(OSError):
                handle = os.open(path, os.O_RDONLY)
                try:
                    locked = _lock(handle)
                    if locked or (locked is None and not _is_running(int(owner[1]))):
                        path.unlink()
                finally:
                    os.close(handle)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _write_folder_through(folder: Path) -> None:
    """Have the new name on the disk, where folders can be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:  # some file systems cannot
        pass
    finally:
        os.close(handle)


def _write_unnamed(scratch: Path, content: bytes, target: Path) -> None:
    """Write a file that gets its name when it is on the disk."""
    handle = os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
    try:
        _lock(handle)
        _write_through(handle, content, _mode(target))
        # A directory makes Python call linkat, which alone follows the link; for an absolute path it has no meaning.
        os.link(f"/proc/self/fd/{handle}", scratch, src_dir_fd=handle)
        os.replace(scratch, target)
    finally:
        os.close(handle)


def _write_through(handle: int, content: bytes, mode: int) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.fsync(handle)
    os.chmod(handle, mode)


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those of any new file of this user."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


Check: TypeAlias = Callable[[str, Any], Any]
"""(name, value) -> the value as it is used, or InputError; those of `checks` are such."""
Constraint: TypeAlias = Callable[[Array], str]
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
class ArraySpec:
    """One stored array.

    Parameters
    ----------
    shape : tuple of int or str
        A letter is a size that is the same wherever it stands; "q+1" and "2q" follow from it.
    dtype : str
        As numpy calls it.
    least, most : float
        Range of every entry. NaN is never in it.
    constraint : Constraint, optional
        What else must hold.
    or_empty : bool
        Whether it may be of shape (0, …, 0), where nothing is known.
    or_nan : bool
        Whether entries may be NaN, where there is no answer.

    >>> ArraySpec(("q", "q+1"), least=0.0).wrong_values("factor", np.array([[1.0, -2.0]]))
    'factor must be from 0 to 1e+300, got -2.0'
    """

    shape: tuple[int | str, ...]
    dtype: str = "float64"
    least: float = -LARGEST
    most: float = LARGEST
    constraint: Constraint | None = None
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
        wrong = "" if self.constraint is None else self.constraint(values)
        return f"{name} {wrong}" if wrong else ""


def counters(*shape: int | str) -> ArraySpec:
    """Whole numbers that count rounds."""
    return ArraySpec(shape, "int64", 0.0, MOST_ROUNDS)


@dataclass(frozen=True)
class StateSchema:
    """What a state must be.

    Parameters
    ----------
    arrays : mapping of str to ArraySpec
        Every array that must be there.
    settings : mapping of str to Check
        Settings that are checked if they are there; constructors say which are needed.
    sizes : mapping of str to int
        Letters of the shapes that the settings tell.
    parts : mapping of str to StateSchema
        States inside this one, by the prefix of their arrays; their letters are their own.
    constraints : tuple of functions
        What else must hold of the arrays together, by name -> what is wrong, empty if nothing is.
    others : bool
        Whether any other finite numbers may be there, too.
    """

    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    settings: Mapping[str, Check] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, StateSchema] = field(default_factory=dict)
    constraints: tuple[Callable[[Mapping[str, Array]], str], ...] = ()
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
                _refuse(self.arrays.get(name, ArraySpec(values.shape)).wrong_values(name, values))
            for law in self.constraints:
                _refuse(law(arrays))
        for prefix, part in self.parts.items():
            part.check_values(_under(arrays, prefix))

    def check(self, arrays: Mapping[str, Array]) -> None:
        """Raise InputError unless these are the arrays of such a state."""
        self.check_layout({name: (str(array.dtype), array.shape) for name, array in arrays.items()})
        self.check_values(arrays)

    def with_others(self) -> StateSchema:
        """The same, with room for any other finite numbers."""
        return replace(self, others=True)

    def _own(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """What does not belong to a part."""
        return {name: one for name, one in named.items() if not name.startswith(tuple(self.parts))}


ANYTHING = StateSchema(others=True)
"""Of a state that nobody described: finite numbers."""


def as_checked(checks: Mapping[str, Check], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as their checks return them: numbers of the right type, whatever JSON made of them."""
    return {name: checks[name](name, value) for name, value in given.items()}


Part = TypeVar("Part")


def prefixed(prefix: str, parts: Mapping[str, Part]) -> dict[str, Part]:
    """The same arrays, or what they must be, under longer names."""
    return {f"{prefix}{name}": part for name, part in parts.items()}


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
    """ArraySpec (n,), each above the one before."""
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


PRODUCT = "invariant-bandits"
FORMAT_VERSION = 1
LONGEST_HEADER = 1 << 28
DTYPES = {"F64": "float64", "F32": "float32", "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
"""Types of arrays, as containers call them and as numpy does."""
Describe: TypeAlias = Callable[[Mapping[str, Any], list[str]], StateSchema]
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
