"""Sources of rows, and what the formats of files share.

A source is cut into tasks (row groups of a Parquet file, a CSV file, one table) whose order is the
order of the log. A source of files can be sent to another machine: it holds paths only.
"""

from __future__ import annotations

import codecs
import glob
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from invariant_bandits.checks import InputError
from invariant_bandits.logs.decode import TimeFormat, is_number
from invariant_bandits.logs.schema import Schema, format_names
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError

BATCH_ROWS = 65_536
LEAST_SAMPLE, SAMPLE_ROWS = 1000, 10_000
SAMPLE_VALUES = 2_000_000
"""Of wide logs, so many values are looked at before what their columns mean is decided."""
MOST_COLUMNS = 10_000


Batches: TypeAlias = Iterator[tuple[int, Any]]
"""Pairs (row within the file, record batch)."""


@dataclass(frozen=True)
class Task:
    """A part of the log that is read in one go.

    Parameters
    ----------
    file : str
        Path of the file, or a name for what is in memory.
    part : int
        Which part of the file (its first row group, for Parquet), 0 if there is one only.
    first_row : int
        Its first row within the file.
    position : int
        Its first row within the whole log; 0 where the source does not count rows, then the survey does.
    """

    file: str
    part: int
    first_row: int
    position: int


class Source:
    """Rows in the order of the log, as Arrow record batches; what a format makes of its files or objects.

    A format derives its source from this class. It sets `arrow_schema` and `tasks` and has `batches`; several
    threads may read different tasks at the same time.

    Attributes
    ----------
    arrow_schema : pyarrow.Schema
        Names and types of the columns.
    tasks : sequence of Task
        Its parts in the order of the log.
    total_rows : int or None
        The number of rows, where it is known before reading.
    in_files : bool
        Whether other machines can open it by its paths.
    schema : Schema or None
        What the columns mean, if they can mean one thing only; None if that has to be inferred.
    skips_lines : bool
        Whether `skipped` names lines of the file that are not rows of the log.
    parses : bool
        Whether its files are text, which costs more to read than typed columns.
    dictionaries : sequence of str
        Columns of categories, which `batches` may give as Arrow dictionaries.
    """

    arrow_schema: Any
    tasks: Sequence[Task]
    total_rows: int | None = None
    in_files: bool = True
    schema: Schema | None = None
    skips_lines: bool = False
    parses: bool = False
    dictionaries: Sequence[str] = ()

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield pairs (row within the file, record batch) of a task.

        Parameters
        ----------
        task : Task
            One of `tasks`.
        columns : sequence of str
            The columns that are wanted, in this order.
        """
        raise NotImplementedError

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the rows of a task's file that could not be parsed, by reason.

        They are known once the batches of the task are read.
        """
        return {}

    def give_dictionaries(self, columns: Sequence[str]) -> None:
        """Say which columns hold categories."""
        self.dictionaries = tuple(columns)


@dataclass
class FileSource(Source):
    """What sources of files share: one task per file.

    Parameters
    ----------
    paths : tuple of str
        The files in the order of the log.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        self.tasks = tuple(Task(path, 0, 0, 0) for path in self.paths)


def shared_schema(paths: Sequence[str], schema_of: Callable[[str], Any]) -> Any:
    """Return the Arrow schema of the first file.

    FileError if it is not usable, or a later file lacks a column.
    """
    first = schema_of(paths[0])
    require_usable_names(paths[0], first.names)
    for path in paths[1:]:
        missing = sorted(set(first.names) - set(schema_of(path).names))
        if missing:
            raise FileError(
                f"{path} lacks the columns {', '.join(missing)} that {paths[0]} has"
            )
    return first


class SourceAround(Source):
    """A source that changes the columns of another one, `inner`."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.tasks = inner.tasks
        self.total_rows = inner.total_rows
        self.in_files = inner.in_files
        self.schema = inner.schema
        self.skips_lines = inner.skips_lines
        self.parses = inner.parses

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the rows that the other one could not parse."""
        return self.inner.skipped(task)

    def give_dictionaries(self, columns: Sequence[str]) -> None:
        """Say to the other one which columns hold categories."""
        self.inner.give_dictionaries(columns)


class DatedSource(SourceAround):
    """A source with its times as timestamps.

    Parameters
    ----------
    inner : Source
        The rows as they are.
    column : str
        The times.
    form : TimeFormat
        What makes timestamps of them.
    """

    def __init__(self, inner: Source, column: str, form: TimeFormat) -> None:
        super().__init__(inner)
        self.column, self.form = column, form
        index = inner.arrow_schema.get_field_index(column)
        dated = inner.arrow_schema.field(index).with_type(pa.timestamp("us"))
        self.arrow_schema = inner.arrow_schema.set(index, dated)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches with timestamps."""
        for row, batch in self.inner.batches(task, columns):
            if self.column in columns:
                index = batch.schema.get_field_index(self.column)
                batch = batch.set_column(
                    index, self.column, self.form(batch.column(index))
                )
            yield row, batch


def first_rows(source: Source) -> Any:
    """Return a table of copies of the first rows, so that the batches they came from are let go."""
    names = source.arrow_schema.names
    most = max(min(SAMPLE_ROWS, SAMPLE_VALUES // max(len(names), 1)), LEAST_SAMPLE)
    copies: list[Any] = []
    for _, batch in (
        pair for task in source.tasks for pair in source.batches(task, names)
    ):
        if (
            copies and batch.schema != copies[0].schema
        ):  # another file, whose types differ
            break
        copies.append(batch.take(pa.array(range(min(len(batch), most)))))
        if sum(map(len, copies)) >= LEAST_SAMPLE:
            break
    if not copies:
        files = ", ".join(task.file for task in source.tasks[:3])
        raise InputError(f"the log is empty: {files or 'no rows'}")
    return pa.Table.from_batches(copies)


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Errors of pyarrow and of the disk about a file become FileError with its path."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FileError(
            f"{path} is not readable: {' '.join(str(error).split())}"
        ) from error


def require_usable_names(path: str, names: Sequence[str]) -> None:
    """FileError if a file has too many columns, two of the same name, or a name that is none."""
    if len(names) > MOST_COLUMNS:
        raise FileError(
            f"{path} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read"
        )
    if len(set(names)) < len(names):
        twice = [
            name or "(no name)" for name, times in Counter(names).items() if times > 1
        ]
        raise FileError(
            f"{path} has several columns of the same name: {format_names(twice)}; rename them"
        )


def flattened(table: Any) -> Any:
    """The table with the fields of objects as columns of their own, such as "user.age"."""
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def cut_at(table: Any, skipped: Sequence[int]) -> Batches:
    """Batches of a block with their first row in it, cut where rows were skipped."""
    row = passed = 0
    for batch in table.to_batches():
        while passed < len(skipped) and skipped[passed] < row + len(batch):
            before = batch.slice(0, skipped[passed] - row)
            if len(before):
                yield row, before
            batch = batch.slice(len(before))
            row = skipped[passed] + 1
            passed = passed + 1
        if len(batch):
            yield row, batch
        row += len(batch)


def join_batches(batches: Sequence[Any]) -> Any:
    """One record batch of several; a column whose types differ holds numbers if all are, else text."""
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.concat_batches(batches)
    columns = []
    for name in first.names:
        parts = [batch.column(name) for batch in batches]
        if len({part.type for part in parts}) > 1:
            kind = (
                pa.float64()
                if all(is_number(part.type) for part in parts)
                else pa.string()
            )
            parts = [part.cast(kind) for part in parts]
        columns.append(pa.concat_arrays(parts))
    return pa.RecordBatch.from_arrays(columns, names=first.names)


ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\x04\x22\x4d\x18": "lz4",
}


def is_remote(path: str) -> bool:
    """Whether a path is an address, not a file of this machine."""
    return ADDRESS.match(path) is not None


def open_file(path: str) -> Any:
    """A file opened for reading at any place, a pyarrow.NativeFile; close it."""
    if not is_remote(path):
        return pa.OSFile(path)
    system, inner = _file_system(path)
    return pa.PythonFile(system.open(inner, "rb"), mode="r")


def open_stream(path: str) -> Any:
    """Return the content of a file from its beginning, decompressed; close it.

    Its first bytes say whether it is compressed.
    """
    file = open_file(path)
    head = file.read(4)
    file.seek(0)
    codec = next(
        (name for magic, name in MAGIC.items() if head.startswith(magic)), None
    )
    return file if codec is None else pa.CompressedInputStream(file, codec)


def find_files(place: str) -> tuple[str, list[str]]:
    """Return the folder of a path, folder or pattern, and the files in it, sorted.

    Hidden files are left aside.
    """
    if is_remote(place):
        return _find_remote(place)
    path = Path(place)
    if path.is_dir():
        below = (
            file
            for file in path.rglob("*")
            if not _is_hidden(file.relative_to(path).parts)
        )
        return place, sorted(str(file) for file in below if file.is_file())
    if path.is_file():
        return str(path.parent), [place]
    return _root(place), sorted(
        name for name in glob.glob(place, recursive=True) if Path(name).is_file()
    )


def _find_remote(address: str) -> tuple[str, list[str]]:
    system, inner = _file_system(address)
    scheme = address.partition("://")[0]
    with naming_file(address):
        if system.isfile(inner):
            return address.rpartition("/")[0], [address]
        if glob.has_magic(inner):
            root, names = _root(address), system.glob(inner)
        else:
            root, names = address, system.find(inner) if system.exists(inner) else []
    full = (
        str(system.unstrip_protocol(name)) if "://" not in name else name
        for name in names
    )
    named = sorted(f"{scheme}://{name.partition('://')[2]}" for name in full)
    inside = len(root.rstrip("/")) + 1
    return root, [
        name for name in named if not _is_hidden(tuple(name[inside:].split("/")))
    ]


def _file_system(address: str) -> tuple[Any, str]:
    """The fsspec file system behind an address, and the path within it."""
    scheme = address.partition("://")[0]
    try:
        import fsspec
    except ModuleNotFoundError:
        how = "pip install 'invariant-bandits[remote]'"
        raise FileError(
            f"{address}: {scheme}:// needs the package fsspec: {how}"
        ) from None
    try:
        system: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise FileError(f"{address}: {scheme}:// cannot be opened: {error}") from None
    return system


def _root(pattern: str) -> str:
    """The folder before the first wildcard of a pattern."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]


def _is_hidden(parts: tuple[str, ...]) -> bool:
    """Spark and others leave files such as _SUCCESS and .crc beside the data."""
    return any(part.startswith(("_", ".")) for part in parts)


MISSING = "__HIVE_DEFAULT_PARTITION__"


def partition_keys(rooted: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return path → key → Arrow scalar of the keys in the folders between root and file.

    `rooted` has pairs (root, path).

    Values are whole numbers, dates or text. All files have the same keys, or none; they are in the order of
    the keys, numbers as numbers, then of their names.
    """
    words = {path: _words(path.removeprefix(root)) for root, path in rooted}
    names = tuple(next(iter(words.values()), {}))
    for path, keys in words.items():
        if tuple(keys) != names:
            own, first = (
                "/".join(map("{}=…".format, some)) or "none" for some in (keys, names)
            )
            raise FileError(
                f"{path}: all folders must have the same keys, got {own} after {first}"
            )
    columns = {name: _typed([keys[name] for keys in words.values()]) for name in names}
    keys_of = {
        path: {name: columns[name][place] for name in names}
        for place, path in enumerate(words)
    }

    def rank(path: str) -> tuple[list[Any], str]:
        return [(not key.is_valid, key.as_py()) for key in keys_of[path].values()], path

    return {
        path: keys_of[path]
        for path in (sorted(keys_of, key=rank) if names else keys_of)
    }


def _words(path: str) -> dict[str, str | None]:
    """Key → value of the folders of a path."""
    pairs = [
        part.partition("=")
        for part in path.replace("\\", "/").split("/")[:-1]
        if "=" in part[1:]
    ]
    return {
        unquote(key): None if value == MISSING else unquote(value)
        for key, _, value in pairs
    }


def _typed(texts: Sequence[str | None]) -> Any:
    """Return an Arrow array of the first of whole numbers, dates and text that all values are."""
    for parse in (_whole, date.fromisoformat):
        with suppress(ValueError):
            return pa.array([None if text is None else parse(text) for text in texts])
    return pa.array(texts, pa.string())


def _whole(text: str) -> int:
    """A whole number as it is usually written; 007 is a name."""
    number = int(text)
    if str(number) != text and not (
        text.isdigit() and len(text) == 2
    ):  # months and hours have two digits
        raise ValueError(text)
    return number


class PartitionedSource(SourceAround):
    """A source of files with the keys of their folders as columns.

    A column of the files themselves goes before.

    Parameters
    ----------
    inner : Source
        The files.
    keys : mapping of str to mapping of str to Arrow scalar
        Path → key → value.
    """

    def __init__(self, inner: Source, keys: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(inner)
        self.keys, self.arrow_schema = keys, inner.arrow_schema
        for name, value in next(iter(keys.values())).items():
            if name not in inner.arrow_schema.names:
                self.arrow_schema = self.arrow_schema.append(pa.field(name, value.type))

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches of the files with the keys that are wanted."""
        own, keys = self.inner.arrow_schema.names, self.keys[task.file]
        read = [name for name in columns if name in own] or list(own[:1])
        for row, batch in self.inner.batches(task, read):
            for name in columns:
                if name not in own:
                    batch = batch.append_column(name, pa.repeat(keys[name], len(batch)))
            yield row, batch.select(list(columns))


BLOCK_BYTES = 8 << 20
SAMPLE_BYTES = 1 << 20
LONGEST_LINE = 128 << 20
LONGEST_VALUE = 32 << 20
"""A value in quotes that does not end before is not a value: a quote is not closed."""
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", **UTF_16}
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def text_blocks(
    path: str, *, quoted: bool = False, size: int | None = None
) -> Iterator[bytes]:
    """Yield blocks of whole lines of a file, UTF-8 without a byte order mark.

    UTF-8 and (by its mark) UTF-16 are recognised; bytes that are no UTF-8 are read as cp1252, which is
    Latin-1 with more characters.

    Parameters
    ----------
    path : str
        A file or an address, compressed or not.
    quoted : bool
        Whether line ends inside double quotes belong to a value.
    size : int, optional
        About how many bytes a block has.
    """
    with naming_file(path), open_stream(path) as stream:
        held = b""
        for part in _utf8(path, stream, size or BLOCK_BYTES):
            held += part
            cut = _end_of_lines(held, quoted)
            if cut:
                yield held[:cut]
                held = held[cut:]
            elif len(held) > LONGEST_LINE:
                raise FileError(
                    f"{path} has a line of more than {LONGEST_LINE >> 20} MB: no log of rows"
                )
        if held:
            yield held


def first_lines(path: str, *, quoted: bool = False) -> bytes:
    """Whole lines of the beginning of a file, about a megabyte; empty for an empty file."""
    return next(text_blocks(path, quoted=quoted, size=SAMPLE_BYTES), b"")


def _utf8(path: str, stream: Any, size: int) -> Iterator[bytes]:
    """Yield pieces of the content as UTF-8."""
    piece = stream.read(size)
    mark = next((known for known in BYTE_ORDER_MARKS if piece.startswith(known)), b"")
    encoding = BYTE_ORDER_MARKS.get(mark, "utf-8")
    decoder = codecs.getincrementaldecoder(encoding)(errors=ERRORS)
    piece, is_first = piece[len(mark) :], True
    while piece:
        is_plain = encoding == "utf-8" and not decoder.getstate()[0] and _is_utf8(piece)
        text = piece if is_plain else decoder.decode(piece).encode()
        junk = NO_TEXT.search(text, 0, SAMPLE_BYTES) if is_first else None
        if junk:
            raise FileError(
                f"{path} is not text: byte {junk.start()} is {junk.group()[0]:#04x}"
            )
        yield text
        piece, is_first = stream.read(size), False
    yield decoder.decode(b"", final=True).encode()


def _is_utf8(piece: bytes) -> bool:
    try:
        return piece.isascii() or bool(piece.decode())
    except UnicodeDecodeError:
        return False


def _replacement(error: UnicodeError) -> tuple[str, int]:
    """What stands for bytes that cannot be decoded: where they should be UTF-8, they are taken for cp1252."""
    assert isinstance(error, UnicodeDecodeError)
    bad = error.object[error.start : error.end]
    if error.encoding != "utf-8":
        return "\ufffd", error.end
    return "".join(bytes([byte]).decode("cp1252", "replace") for byte in bad), error.end


ERRORS = "invariant-bandits-cp1252"
codecs.register_error(ERRORS, _replacement)


def _end_of_lines(text: bytes, quoted: bool) -> int:
    """Return where the last whole line of a text ends, 0 if it has none.

    It ends behind a newline that is not inside quotes.
    """
    cut = text.rfind(b"\n") + 1
    if not quoted or b'"' not in text:
        return cut
    end, open_quotes = cut, text.count(b'"', 0, cut) % 2
    while end and open_quotes:
        before = text.rfind(b"\n", 0, text.rfind(b'"', 0, end)) + 1
        open_quotes = (open_quotes - text.count(b'"', before, end)) % 2
        end = before
    return end or (cut if len(text) > LONGEST_VALUE else 0)


@dataclass
class TextSource(FileSource):
    """What sources of text files share: they are parsed block by block."""

    unparsed: dict[str, list[int]] = field(init=False, default_factory=dict, repr=False)
    parses = True

    def parsed_batches(
        self,
        task: Task,
        parse: Callable[[bytes, Any], tuple[Any, Any, Sequence[int]]],
        *,
        quoted: bool,
    ) -> Batches:
        """Yield batches of a file.

        Parameters
        ----------
        task : Task
            The file.
        parse : callable, (block, state) -> (table, next state, rows that could not be parsed)
            The state before the first block is None.
        quoted : bool
            As in `text_blocks`.
        """
        row, state = 0, None
        unparsed = self.unparsed[task.file] = []
        for block in text_blocks(task.file, quoted=quoted):
            if block.isspace():
                continue
            with naming_file(task.file):
                table, state, bad = parse(block, state)
            unparsed += [row + line for line in bad]
            for first, batch in cut_at(table, bad):
                yield row + first, batch
            row += len(table) + len(bad)

    def unparsed_rows(self, task: Task) -> list[int]:
        """Return the rows of a file that could not be parsed."""
        return self.unparsed.get(task.file, [])


MOST_NESTED = 1000
"""Parsers call themselves for each level; a hundred thousand levels end the process."""


def too_deep(text: bytes) -> bool:
    """Whether lists and objects stand more than MOST_NESTED deep within one another in one of the lines.

    >>> too_deep(b"[[1]]"), too_deep(b"[" * 2000)
    (False, True)
    """
    start = 0
    while start + MOST_NESTED < len(
        text
    ):  # leap over lines that are too short to matter
        end = text.rfind(b"\n", start, start + MOST_NESTED)
        if end < 0:
            end = text.find(b"\n", start + MOST_NESTED)
            end = len(text) if end < 0 else end
            if _depth(text[start:end]) > MOST_NESTED:
                return True
        start = end + 1
    return False


def _depth(line: bytes) -> int:
    """How deep a line goes, at most; exactly if it may be much."""
    most = line.count(b"[") + line.count(b"{")
    if most <= MOST_NESTED:
        return most
    signs = re.findall(rb"[\[{\]}]", STRINGS.sub(b"", line))
    return max(accumulate((1 if sign in b"[{" else -1 for sign in signs), initial=0))


STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?')


def value_of(line: bytes) -> Any:
    """Return the JSON value of a line, or raise ValueError; a lone surrogate becomes a question mark.

    >>> value_of(rb'{"name": "\\ud83d"}')
    {'name': '?'}
    """
    if too_deep(line):
        raise ValueError(f"lists and objects stand more than {MOST_NESTED} deep")
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("lists and objects stand too deep") from None
    if b"\\ud" in line or b"\\uD" in line:
        value = json.loads(
            json.dumps(value, ensure_ascii=False).encode(errors="replace")
        )
    return value
