"""The parts of a page: headings, paragraphs, tables, figures as inline SVG, all escaped, light and dark."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as without_markup
from pathlib import Path
from typing import TypeAlias

from invariant_bandits.checks import escape_control_chars, escape_line
from invariant_bandits.plotting import THEMES
from invariant_bandits.plotting import svg_of as svg_of

DOCUMENT = Path(__file__).with_name("page.html").read_text()
STYLE = Path(__file__).with_name("page.css").read_text().strip()

Cell: TypeAlias = "str | Mark"


def escape(words: str) -> str:
    """Words as they are shown on a page: nothing in them is markup, nothing steers what follows."""
    return without_markup(escape_control_chars(words))


@dataclass(frozen=True)
class Mark:
    """A word with a judgement: kind is "good", "bad", "unsure" or "number" (aligned to the right)."""

    words: str
    kind: str


def page(title: str, parts: Iterable[str]) -> str:
    """A whole document."""
    return DOCUMENT.format(title=escape(title), style=STYLE, body="\n".join(parts))


def heading(words: str, level: int = 2, anchor: str | None = None) -> str:
    """<h1> to <h3>, with an anchor to jump to."""
    place = "" if anchor is None else f' id="{escape(anchor)}"'
    return f"<h{level}{place}>{escape(words)}</h{level}>"


def paragraph(words: str, soft: bool = False) -> str:
    """One paragraph, `soft` for what is said in passing."""
    return f'<p class="soft">{escape(words)}</p>' if soft else f"<p>{escape(words)}</p>"


def contents(entries: Mapping[str, str]) -> str:
    """Links to the anchors of this page: anchor -> words."""
    items = "".join(
        f'<li><a href="#{escape(anchor)}">{escape(words)}</a></li>'
        for anchor, words in entries.items()
    )
    return f"<nav><ul>{items}</ul></nav>"


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = ""
) -> str:
    """A table that scrolls by itself on a narrow screen; columns whose cells are numbers are aligned to the
    right.
    """
    rows = list(rows)
    kinds = ["number" if numeric else "" for numeric in numeric_columns(headings, rows)]
    top = "".join(
        _cell(Mark(words, kind), "th")
        for words, kind in zip(headings, kinds, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{words}<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>'


def numeric_columns(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> list[bool]:
    """Return which columns hold nothing but numbers and are aligned to the right."""
    numeric = [[getattr(cell, "kind", "") == "number" for cell in row] for row in rows]
    return [all(column) for column in zip(*numeric, strict=True)] or [False] * len(
        headings
    )


def _cell(cell: Cell, tag: str = "td") -> str:
    words, kind = (cell.words, cell.kind) if isinstance(cell, Mark) else (cell, "")
    opening = f'{tag} class="{escape(kind)}"' if kind else tag
    return f"<{opening}>{escape(words)}</{tag}>"


def preformatted(words: str) -> str:
    """Text as it stands."""
    return f"<pre>{escape(words)}</pre>"


def details(summary: str, parts: Iterable[str]) -> str:
    """Parts that open on demand."""
    return (
        f"<details><summary>{escape(summary)}</summary>\n{''.join(parts)}\n</details>"
    )


def picture(drawing: str, name: str, alternative: str, caption: str = "") -> str:
    """An SVG drawing of the light theme, inline; its colours are the variables of the page's style, so that
    it serves bright and dark screens.

    name: unique on the page, the identifiers inside the picture begin with it.
    """
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    for name_in_theme, colour in THEMES["light"].items():
        drawing = drawing.replace(colour, f"var(--{name_in_theme})")
    drawing = drawing.replace(
        "<svg ", f'<svg role="img" aria-label="{escape(alternative)}" ', 1
    )
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><div class="scroll">{drawing}</div>{words}</figure>'


FIRST_ROWS = 60
WIDTH = 100
"""Of lines where there is no terminal."""
NARROWEST, READABLE = 12, 40
"""Words are not wrapped into columns narrower than this, and into narrower ones than that only where it must
be.
"""
INDENT = 2


@dataclass(frozen=True)
class Section:
    """words: sentences; headings and rows: of a table, if there is one; picture: HTML that only the page
    shows.
    """

    title: str
    words: Sequence[str] = ()
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    picture: str = ""


def number(words: str) -> Mark:
    """A cell that is aligned to the right."""
    return Mark(words, "number")


def as_page(title: str, headline: str, sections: Iterable[Section]) -> str:
    """Return a whole page that fetches nothing."""
    links, body = {}, []
    for section in sections:
        anchor = "-".join(section.title.lower().split())
        links[anchor] = section.title
        body += [heading(section.title, anchor=anchor), *map(paragraph, section.words)]
        body += [section.picture] if section.picture else []
        body += [table(section.headings, section.rows)] if section.rows else []
    return page(
        title, [heading(title, level=1), paragraph(headline), contents(links), *body]
    )


def as_text(
    title: str, headline: str, sections: Iterable[Section], width: int = WIDTH
) -> str:
    """The same for a terminal of this width; long tables are cut, and say so."""
    lines = [title, "=" * len(title), filled(headline, width)]
    for section in sections:
        lines += ["", section.title, "-" * len(section.title)]
        lines += [filled(words, width) for words in section.words]
        if section.rows:
            lines += [
                "",
                *table_lines(section.headings, section.rows[:FIRST_ROWS], width),
            ]
        if len(section.rows) > FIRST_ROWS:
            lines.append(f"  … and {len(section.rows) - FIRST_ROWS} more")
    return "\n".join(lines)


def filled(words: str, width: int = WIDTH) -> str:
    """A paragraph of lines at most so wide, all but the first indented."""
    return textwrap.fill(
        words, width, subsequent_indent=" " * INDENT, break_on_hyphens=False
    )


def table_lines(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]], width: int = WIDTH
) -> list[str]:
    """Lines of a table, at most so wide: long words are wrapped, then columns go below, the first ones
    repeated.

    >>> table = [["LinUCB", number("+1.5 [+1.1, +1.9]"), number("+0.2 [-0.1, +0.5]")]]
    >>> print("\\n".join(table_lines(("policy", "value", "gain"), table, width=30)))
      policy              value
      LinUCB  +1.5 [+1.1, +1.9]
    <BLANKLINE>
      policy               gain
      LinUCB  +0.2 [-0.1, +0.5]
    """
    texts = [
        [escape_line(cell.words if isinstance(cell, Mark) else cell) for cell in row]
        for row in (headings, *rows)
    ]
    right = numeric_columns(headings, rows)
    widths = [max(len(row[j]) for row in texts) for j in range(len(headings))]
    wrappable = [
        j
        for j in sorted(range(len(headings)), key=lambda j: -widths[j])
        if not right[j]
    ]
    for least, j in [(least, j) for least in (READABLE, NARROWEST) for j in wrappable]:
        too_much = sum(widths) + INDENT * len(widths) - width
        widths[j] = max(widths[j] - max(too_much, 0), min(widths[j], least))
    lines: list[str] = []
    keys = [
        j
        for j in range(min(2, len(widths)))
        if j == 0 or (not right[j] and widths[j] <= NARROWEST)
    ]
    for columns in _pages(keys, widths, width):
        lines += [""] if lines else []
        for row in texts:
            lines += _row_lines([(row[j], widths[j], right[j]) for j in columns])
    return lines


def _pages(
    keys: Sequence[int], widths: Sequence[int], width: int
) -> Iterator[list[int]]:
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


def _row_lines(cells: Sequence[tuple[str, int, bool]]) -> Iterator[str]:
    """One row of (text, width, whether to the right), in several lines where a cell is wrapped."""
    wrapped = [
        textwrap.wrap(text, max(width, 1), break_on_hyphens=False)
        for text, width, _ in cells
    ]
    for line in range(max(1, *map(len, wrapped))):
        padded = [
            f"{lines[line] if line < len(lines) else '':{'>' if right else '<'}{width}}"
            for lines, (_, width, right) in zip(wrapped, cells, strict=True)
        ]
        yield (" " * INDENT + (" " * INDENT).join(padded)).rstrip()
