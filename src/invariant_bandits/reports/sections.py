"""Section: a heading, sentences and a table, said once and shown twice: as a part of a page and in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from invariant_bandits.reports import html
from invariant_bandits.reports.html import Cell, Mark
from invariant_bandits.visible import visible_line

FIRST_ROWS = 60
WIDTH = 100
"""Of lines where there is no terminal."""
NARROWEST = 12
"""Words are not wrapped into columns narrower than this."""
INDENT = 2


@dataclass(frozen=True)
class Section:
    """words: sentences; headings and rows: of a table, if there is one; picture: HTML that only the page shows."""

    title: str
    words: Sequence[str] = ()
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    picture: str = ""


def number(words: str) -> Mark:
    """A cell that is aligned to the right."""
    return Mark(words, "number")


def as_page(title: str, headline: str, sections: Iterable[Section]) -> str:
    """A whole page that fetches nothing."""
    return html.page(title, _parts(title, headline, list(sections)))


def _parts(title: str, headline: str, sections: list[Section]) -> Iterator[str]:
    yield html.heading(title, level=1)
    yield html.paragraph(headline)
    yield html.contents({_anchor(one): one.title for one in sections})
    for one in sections:
        yield html.heading(one.title, anchor=_anchor(one))
        yield from (html.paragraph(words) for words in one.words)
        if one.picture:
            yield one.picture
        if one.rows:
            yield html.table(one.headings, one.rows)


def _anchor(section: Section) -> str:
    return "-".join(section.title.lower().split())


def as_text(title: str, headline: str, sections: Iterable[Section], width: int = WIDTH) -> str:
    """The same for a terminal of this width; long tables are cut, and say so."""
    return "\n".join([title, "=" * len(title), filled(headline, width), *lines_of(sections, width)])


def lines_of(sections: Iterable[Section], width: int = WIDTH) -> list[str]:
    """Lines of the sections, at most so wide, without a title above them."""
    lines = []
    for one in sections:
        lines += ["", one.title, "-" * len(one.title)]
        lines += [filled(words, width) for words in one.words]
        if one.rows:
            lines += ["", *table_lines(one.headings, one.rows[:FIRST_ROWS], width)]
        if len(one.rows) > FIRST_ROWS:
            lines.append(f"  … and {len(one.rows) - FIRST_ROWS} more")
    return lines


def filled(words: str, width: int = WIDTH) -> str:
    """A paragraph of lines at most so wide, all but the first indented."""
    return textwrap.fill(words, width, subsequent_indent=" " * INDENT, break_on_hyphens=False)


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[Cell]], width: int = WIDTH) -> list[str]:
    """Lines of a table, at most so wide: long words are wrapped, then columns go below, the first ones repeated.

    >>> table = [["LinUCB", number("+1.5 [+1.1, +1.9]"), number("+0.2 [-0.1, +0.5]")]]
    >>> print("\\n".join(table_lines(("policy", "value", "gain"), table, width=30)))
      policy              value
      LinUCB  +1.5 [+1.1, +1.9]
    <BLANKLINE>
      policy               gain
      LinUCB  +0.2 [-0.1, +0.5]
    """
    texts = [
        [visible_line(cell.words if isinstance(cell, Mark) else cell) for cell in row] for row in (headings, *rows)
    ]
    right = [bool(rows) and all(html.kind_of(row[j]) == "number" for row in rows) for j in range(len(headings))]
    widths = [max(len(row[j]) for row in texts) for j in range(len(headings))]
    for j in sorted(range(len(headings)), key=lambda j: -widths[j]):
        if not right[j]:
            too_much = sum(widths) + INDENT * len(widths) - width
            widths[j] = max(widths[j] - max(too_much, 0), min(widths[j], NARROWEST))
    lines: list[str] = []
    keys = [j for j in range(min(2, len(widths))) if j == 0 or (not right[j] and widths[j] <= NARROWEST)]
    for columns in _pages(keys, widths, width):
        lines += [""] if lines else []
        for row in texts:
            lines += _row_lines([row[j] for j in columns], [widths[j] for j in columns], [right[j] for j in columns])
    return lines


def _pages(keys: Sequence[int], widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Which columns are shown together; those of `keys`, the first ones, always are."""
    first = INDENT * len(keys) + sum(widths[j] for j in keys)
    page, used = list(keys), first
    for j in range(len(keys), len(widths)):
        if used + INDENT + widths[j] > width and len(page) > len(keys):
            yield page
            page, used = list(keys), first
        page.append(j)
        used += INDENT + widths[j]
    yield page


def _row_lines(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """One row, in several lines where a cell is wrapped."""
    wrapped = [
        textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]
        for text, width in zip(texts, widths, strict=True)
    ]
    for line in range(max(map(len, wrapped))):
        cells = [parts[line] if line < len(parts) else "" for parts in wrapped]
        padded = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(cells, widths, right, strict=True)
        )
        yield (" " * INDENT + (" " * INDENT).join(padded)).rstrip()
