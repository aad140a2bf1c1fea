"""Text files as blocks of whole lines in UTF-8, whatever their encoding and compression, read in the caller's thread.

Nothing is read ahead by threads that may still call Python when the interpreter ends: such a thread is unwound through
C++ frames that cannot be unwound, and the process is aborted.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any

from invariant_bandits.files import FileError
from invariant_bandits.logs.sources import naming_file
from invariant_bandits.logs.storage import open_stream

BLOCK_BYTES = 8 << 20
SAMPLE_BYTES = 1 << 20
LONGEST_LINE = 128 << 20
LONGEST_VALUE = 32 << 20
"""A value in quotes that does not end before is no value: a quote stands alone somewhere."""
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark its own begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def text_blocks(path: str, *, quoted: bool = False, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Blocks of whole lines of a file, UTF-8 without a byte order mark.

    UTF-8, UTF-16 and (by its mark) UTF-32 are recognised; bytes that are no UTF-8 are read as cp1252, which is Latin-1
    with more signs.

    Parameters
    ----------
    path : str
        A file or an address, compressed or not.
    quoted : bool
        Whether line ends inside double quotes belong to a value.
    size : int
        About how many bytes a block has.
    """
    with naming_file(path), open_stream(path) as stream:
        held = b""
        for part in _utf8(path, stream, size):
            held += part
            cut = _end_of_lines(held, quoted)
            if cut:
                yield _with_newlines(held[:cut])
                held = held[cut:]
            elif len(held) > LONGEST_LINE:
                raise FileError(f"{path} has a line of more than {LONGEST_LINE >> 20} MB: it is no log of rows")
        if held:
            yield _with_newlines(held)


def first_lines(path: str, *, quoted: bool = False) -> bytes:
    """Whole lines of the beginning of a file, about a megabyte; empty for an empty file."""
    return next(text_blocks(path, quoted=quoted, size=SAMPLE_BYTES), b"")


def _utf8(path: str, stream: Any, size: int) -> Iterator[bytes]:
    """The content as UTF-8, in pieces."""
    piece = stream.read(size)
    mark = next((one for one in BYTE_ORDER_MARKS if piece.startswith(one)), b"")
    encoding = BYTE_ORDER_MARKS.get(mark) or _without_mark(piece)
    piece = piece[len(mark) :]
    if encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        text = decoder.decode(piece).encode()
        _require_text(path, text)
        while piece:
            yield text
            piece = stream.read(size)
            text = decoder.decode(piece).encode()
        return
    _require_text(path, piece)
    ending = b""
    while piece:
        piece = ending + piece
        ending = _unfinished(piece)
        yield _mended(piece[: len(piece) - len(ending)])
        piece = stream.read(size)
    yield _mended(ending)


def _require_text(path: str, piece: bytes) -> None:
    junk = NO_TEXT.search(piece, 0, SAMPLE_BYTES)
    if junk:
        raise FileError(f"{path} is no text: byte {junk.start()} is {junk.group()[0]:#04x}")


def _without_mark(piece: bytes) -> str:
    """UTF-16 without a byte order mark has a zero in every second byte of plain letters."""
    head = piece[:4096]
    if len(head) >= 8 and head[1::2].count(0) > 0.6 * len(head[1::2]) and not head[::2].count(0):
        return "utf-16-le"
    if len(head) >= 8 and head[::2].count(0) > 0.6 * len(head[::2]) and not head[1::2].count(0):
        return "utf-16-be"
    return "utf-8"


def _unfinished(piece: bytes) -> bytes:
    """The beginning of a character of several bytes at the end of a piece."""
    for back in range(1, min(4, len(piece)) + 1):
        byte = piece[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return piece[-back:] if needed > back else b""
        if byte < 0x80:
            break
    return b""


def _mended(piece: bytes) -> bytes:
    """The same if it is UTF-8; otherwise with its other bytes read as cp1252."""
    if piece.isascii():
        return piece
    try:
        piece.decode()
    except UnicodeDecodeError:
        return piece.decode(errors="invariant-bandits-cp1252").encode()
    return piece


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    try:
        return bad.decode("cp1252"), error.end
    except UnicodeDecodeError:
        return bad.decode("latin-1"), error.end


codecs.register_error("invariant-bandits-cp1252", _as_cp1252)


def _with_newlines(block: bytes) -> bytes:
    """The block with newlines where it has carriage returns only."""
    return block if b"\n" in block else block.replace(b"\r", b"\n")


def _end_of_lines(text: bytes, quoted: bool) -> int:
    """Where the last whole line of a text ends, 0 if it has none; behind a newline that is not inside quotes."""
    cut = text.rfind(b"\n") + 1
    if not cut and text.rfind(b"\r", 0, -1) >= 0:
        cut = text.rfind(b"\r", 0, -1) + 1
    if not quoted or b'"' not in text:
        return cut
    end, open_quotes = cut, text.count(b'"', 0, cut) % 2
    while end and open_quotes:
        before = text.rfind(b"\n", 0, text.rfind(b'"', 0, end)) + 1
        open_quotes = (open_quotes - text.count(b'"', before, end)) % 2
        end = before
    return end or (cut if len(text) > LONGEST_VALUE else 0)
