"""Section: a heading, sentences and a table, said once and shown twice: as a part of a page and in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from invariant_bandits.reports import html
from invariant_bandits.reports.html import Cell, Mark

FIRST_ROWS = 60
WIDTH = 100


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


def as_text(title: str, headline: str, sections: Iterable[Section]) -> str:
    """The same for a terminal; long tables are cut, and say so."""
    return "\n".join([title, "=" * len(title), textwrap.fill(headline, WIDTH), *lines_of(sections)])


def lines_of(sections: Iterable[Section]) -> list[str]:
    """Lines of the sections, without a title above them."""
    lines = []
    for one in sections:
        lines += ["", one.title, "-" * len(one.title)]
        lines += [textwrap.fill(words, WIDTH, subsequent_indent="  ") for words in one.words]
        if one.rows:
            lines += ["", *_table(one.headings, one.rows[:FIRST_ROWS])]
        if len(one.rows) > FIRST_ROWS:
            lines.append(f"  … and {len(one.rows) - FIRST_ROWS} more")
    return lines


def _table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    texts = [[cell.words if isinstance(cell, Mark) else cell for cell in row] for row in rows]
    right = [all(html.kind_of(row[j]) == "number" for row in rows) for j in range(len(headings))]
    widths = [max(len(head), *(len(row[j]) for row in texts)) for j, head in enumerate(headings)]
    for row in (list(headings), *texts):
        cells = zip(row, widths, right, strict=True)
        padded = (text.rjust(width) if to_right else text.ljust(width) for text, width, to_right in cells)
        yield "  " + "  ".join(padded).rstrip()
