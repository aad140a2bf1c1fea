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
    anchored = "" if anchor is None else f' id="{escape(anchor)}"'
    return f"<h{level}{anchored}>{escape(words)}</h{level}>"


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
    """Return a table that scrolls by itself on a narrow screen, columns of numbers aligned to the right."""
    rows = list(rows)
    top = ""
    for words, numeric in zip(headings, numeric_columns(headings, rows), strict=True):
        top += _cell(Mark(words, "number" if numeric else ""), "th")
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        '<div class="scroll" '
        f'tabindex="0"><table>{words}<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'
    )


def numeric_columns(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> list[bool]:
    """Return which columns hold nothing but numbers and are aligned to the right."""
    numeric = [bool(rows)] * len(headings)
    for row in rows:
        for j, cell in enumerate(row):
            numeric[j] &= isinstance(cell, Mark) and cell.kind == "number"
    return numeric


def _cell(cell: Cell, tag: str = "td") -> str:
    if isinstance(cell, str):
        return f"<{tag}>{escape(cell)}</{tag}>"
    kind = f' class="{escape(cell.kind)}"' if cell.kind else ""
    return f"<{tag}{kind}>{escape(cell.words)}</{tag}>"


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
"""Rows of a table in a terminal: about one screen, the page has all."""
WIDTH = 100
"""Of lines where there is no terminal."""
NARROWEST, READABLE = 12, 40
"""Words are not wrapped into columns narrower than this, and into narrower ones than that only where it must
be.
"""
INDENT = 2
"""Blanks before a column and before a wrapped line."""


@dataclass(frozen=True)
class Section:
    """Sentences, a table if there is one, and a picture in HTML that only the page shows."""

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
    links = {}
    body = []
    for section in sections:
        anchor = "-".join(section.title.lower().split())
        links[anchor] = section.title
        body.append(heading(section.title, anchor=anchor))
        body += map(paragraph, section.words)
        if section.picture:
            body.append(section.picture)
        if section.rows:
            body.append(table(section.headings, section.rows))
    top = [heading(title, level=1), paragraph(headline), contents(links)]
    return page(title, top + body)


def as_text(
    title: str, headline: str, sections: Iterable[Section], width: int = WIDTH
) -> str:
    """The same for a terminal of this width; long tables are cut, and say so."""
    lines = [title, "=" * len(title), filled(headline, width)]
    for section in sections:
        lines += ["", section.title, "-" * len(section.title)]
        lines += [filled(words, width) for words in section.words]
        if section.rows:
            first = section.rows[:FIRST_ROWS]
            lines += ["", *table_lines(section.headings, first, width)]
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
    """Return lines of a table, at most so wide.

    Long words are wrapped, then columns go below, the first ones repeated.

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
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    wrappable = [j for j in range(len(widths)) if not right[j]]
    wrappable.sort(key=lambda j: -widths[j])
    # The widest columns of words give way first, as far as they stay readable.
    for least in (READABLE, NARROWEST):
        for j in wrappable:
            too_much = sum(widths) + INDENT * len(widths) - width
            widths[j] = max(widths[j] - max(too_much, 0), min(widths[j], least))
    lines: list[str] = []
    # A narrow second column of words belongs to the key of a row.
    keys = [0]
    if len(widths) > 1 and not right[1] and widths[1] <= NARROWEST:
        keys.append(1)
    for columns in _pages(keys, widths, width):
        lines += [""] if lines else []
        for row in texts:
            lines += _row_lines([(row[j], widths[j], right[j]) for j in columns])
    return lines


def _pages(
    keys: Sequence[int], widths: Sequence[int], width: int
) -> Iterator[list[int]]:
    """Which columns are shown together; those of `keys`, the first ones, always are."""
    first = sum(INDENT + widths[j] for j in keys)
    page = list(keys)
    used = first
    for j in range(len(keys), len(widths)):
        if used + INDENT + widths[j] > width and len(page) > len(keys):
            yield page
            page = list(keys)
            used = first
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
