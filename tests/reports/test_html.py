"""Pages stand alone: everything escaped, nothing fetched, one picture for bright and dark screens."""

import re
from html.parser import HTMLParser

import pytest
from matplotlib import pyplot as plt

from invariant_bandits.checks import InputError
from invariant_bandits.reports import html
from invariant_bandits.reports.plots import theme


class Outline(HTMLParser):
    """Collects tags, and complains about what is left open."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in {"meta", "br", "img", "path", "use", "rect", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()


def figure():
    with theme("light"):
        drawing, axis = plt.subplots()
        axis.plot([0, 1], [0, 1])
        axis.set_title("a < b & c")
    return html.svg_of(drawing)


def outline(text):
    parser = Outline()
    parser.feed(text)
    return parser


def test_a_page_is_well_formed_and_needs_nothing_from_elsewhere():
    text = html.page(
        "t", [html.heading("h"), html.picture(figure(), "one", "alt"), html.table(["a"], [["b"]]), html.paragraph("p")]
    )
    seen = outline(text)
    assert seen.open == []
    assert {"svg", "table", "h2"} <= set(seen.tags)
    assert all(link.startswith("#") for link in seen.links)
    assert not any(foreign in text for foreign in ("<script", "@import", "url(http"))


def test_words_are_escaped_wherever_they_come_from():
    evil = '<script>alert("1")</script>'
    text = html.page(
        evil,
        [
            html.heading(evil, anchor=evil),
            html.paragraph(evil),
            html.table([evil], [[evil], [html.Mark(evil, "good")]], evil),
            html.details(evil, [html.preformatted(evil)]),
            html.contents({evil: evil}),
            html.picture(figure(), "one", evil, evil),
        ],
    )
    assert "<script" not in text


def test_two_pictures_on_a_page_share_no_identifier():
    both = html.picture(figure(), "one", "a") + html.picture(figure(), "two", "b")
    names = re.findall(r'\bid="([^"]+)"', both)
    assert len(names) == len(set(names))
    used = re.findall(r'href="#([^"]+)"', both) + re.findall(r"url\(#([^)]+)\)", both)
    assert used
    assert set(used) <= set(names)


def test_ink_and_paper_of_a_picture_follow_the_page():
    drawing = html.picture(figure(), "one", "a")
    assert "var(--ink)" in drawing
    assert "var(--paper)" in drawing
    assert "#1f2933" not in drawing


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(InputError, match="2 cells, got 1"):
        html.table(["a", "b"], [["only one"]])


def test_columns_of_numbers_are_aligned_to_the_right_with_their_heading():
    text = html.table(["a", "b"], [["x", html.Mark("1", "number")]])
    assert '<th class="number">b</th>' in text
    assert "<th>a</th>" in text
