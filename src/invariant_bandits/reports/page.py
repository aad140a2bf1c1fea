"""The parts of a page: headings, paragraphs, tables, figures as inline SVG, all escaped, light and dark."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as without_markup
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from invariant_bandits.checks import InputError, escape_control_chars, escape_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STYLE = Path(__file__).with_name("page.css").read_text().strip()

PAGE_COLOURS = {
    "#1f2933": "--ink",
    "#ffffff": "--paper",
    "#d5dbe1": "--faint",
    "#0072b2": "--stable",
    "#d55e00": "--varies",
}
"""Colours of the light theme that a page replaces by its own, so that one picture serves bright and dark
screens.
"""

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
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
    )
    return head + "\n".join(parts) + "\n</body>\n</html>\n"


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
        f'<li><a href="#{escape(anchor)}">{escape(words)}</a></li>' for anchor, words in entries.items()
    )
    return f"<nav><ul>{items}</ul></nav>"


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> str:
    """A table that scrolls by itself on a narrow screen; columns whose cells are numbers are aligned to the
    right.
    """
    rows = [list(row) for row in rows]
    for row in rows:
        if len(row) != len(headings):
            raise InputError(f"rows must have {len(headings)} cells, got {len(row)}")
    numeric = [
        bool(rows) and all(kind_of(row[column]) == "number" for row in rows)
        for column in range(len(headings))
    ]
    top = "".join(
        f'<th class="number">{escape(words)}</th>' if right else f"<th>{escape(words)}</th>"
        for words, right in zip(headings, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{words}<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>'


def kind_of(cell: Cell) -> str:
    """The judgement of a cell, empty for plain words."""
    return cell.kind if isinstance(cell, Mark) else ""


def _cell(cell: Cell) -> str:
    if isinstance(cell, Mark):
        return f'<td class="{escape(cell.kind)}">{escape(cell.words)}</td>'
    return f"<td>{escape(cell)}</td>"


def preformatted(words: str) -> str:
    """Text as it stands."""
    return f"<pre>{escape(words)}</pre>"


def details(summary: str, parts: Iterable[str]) -> str:
    """Parts that open on demand."""
    return f"<details><summary>{escape(summary)}</summary>\n{''.join(parts)}\n</details>"


def svg_of(figure: Figure) -> str:
    """A figure as SVG; closes the figure."""
    from matplotlib import pyplot as plt

    buffer = io.StringIO()
    with (
        warnings.catch_warnings()
    ):  # a name in a script that the font lacks is drawn as boxes, the table has it right
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return buffer.getvalue()


def picture(drawing: str, name: str, alternative: str, caption: str = "") -> str:
    """An SVG drawing of the light theme, inline, its ink and paper those of the page.

    name: unique on the page, the identifiers inside the picture begin with it.
    """
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    for colour, variable in PAGE_COLOURS.items():
        drawing = drawing.replace(colour, f"var({variable})")
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(alternative)}" ', 1)
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><div class="scroll">{drawing}</div>{words}</figure>'


FIRST_ROWS = 60
WIDTH = 100
"""Of lines where there is no terminal."""
NARROWEST = 12
"""Words are not wrapped into columns narrower than this."""
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
    """A whole page that fetches nothing."""
    return page(title, _parts(title, headline, list(sections)))


def _parts(title: str, headline: str, sections: list[Section]) -> Iterator[str]:
    yield heading(title, level=1)
    yield paragraph(headline)
    yield contents({_anchor(section): section.title for section in sections})
    for section in sections:
        yield heading(section.title, anchor=_anchor(section))
        yield from (paragraph(words) for words in section.words)
        if section.picture:
            yield section.picture
        if section.rows:
            yield table(section.headings, section.rows)


def _anchor(section: Section) -> str:
    return "-".join(section.title.lower().split())


def as_text(title: str, headline: str, sections: Iterable[Section], width: int = WIDTH) -> str:
    """The same for a terminal of this width; long tables are cut, and say so."""
    return "\n".join([title, "=" * len(title), filled(headline, width), *lines_of(sections, width)])


def lines_of(sections: Iterable[Section], width: int = WIDTH) -> list[str]:
    """Lines of the sections, at most so wide, without a title above them."""
    lines = []
    for section in sections:
        lines += ["", section.title, "-" * len(section.title)]
        lines += [filled(words, width) for words in section.words]
        if section.rows:
            lines += ["", *table_lines(section.headings, section.rows[:FIRST_ROWS], width)]
        if len(section.rows) > FIRST_ROWS:
            lines.append(f"  … and {len(section.rows) - FIRST_ROWS} more")
    return lines


def filled(words: str, width: int = WIDTH) -> str:
    """A paragraph of lines at most so wide, all but the first indented."""
    return textwrap.fill(words, width, subsequent_indent=" " * INDENT, break_on_hyphens=False)


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[Cell]], width: int = WIDTH) -> list[str]:
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
    right = [bool(rows) and all(kind_of(row[j]) == "number" for row in rows) for j in range(len(headings))]
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
            lines += _row_lines(
                [row[j] for j in columns], [widths[j] for j in columns], [right[j] for j in columns]
            )
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
