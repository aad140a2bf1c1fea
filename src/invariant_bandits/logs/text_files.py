"""Files of text: blocks of whole lines, in any usual encoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.logs.files import naming_file, open_stream
from invariant_bandits.logs.sources import Batches, FileSource, Task, cut_at
from invariant_bandits.storage import FileError

BLOCK_BYTES = 8 << 20
"""Text that is parsed at once: about as many rows as a batch of columns has."""
SAMPLE_BYTES = 1 << 20
"""Text that shows how a file is written: thousands of lines of usual length."""
LONGEST_LINE = 128 << 20
"""A line that is longer is no row: the file is not text, or one JSON array."""
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
    piece = piece[len(mark) :]
    is_first = True
    while piece:
        is_plain = encoding == "utf-8" and not decoder.getstate()[0] and _is_utf8(piece)
        text = piece if is_plain else decoder.decode(piece).encode()
        junk = NO_TEXT.search(text, 0, SAMPLE_BYTES) if is_first else None
        if junk:
            raise FileError(
                f"{path} is not text: byte {junk.start()} is {junk.group()[0]:#04x}"
            )
        yield text
        piece = stream.read(size)
        is_first = False
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
    end = cut
    open_quotes = text.count(b'"', 0, cut) % 2
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
            Whether line ends inside double quotes belong to a value.
        """
        row = 0
        state = None
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
