"""Pages stand alone: everything escaped, nothing fetched, one picture for bright and dark screens."""

import re
from html.parser import HTMLParser

from matplotlib import pyplot as plt

from invariant_bandits.plotting import theme
from invariant_bandits.reports import page


class Outline(HTMLParser):
    """Collects tags, and complains about what is left open."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [
            value for name, value in attributes if name in ("src", "href", "xlink:href")
        ]
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
    return page.svg_of(drawing)


def outline(text):
    parser = Outline()
    parser.feed(text)
    return parser


def test_a_page_is_well_formed_and_needs_nothing_from_elsewhere():
    text = page.page(
        "t",
        [
            page.heading("h"),
            page.picture(figure(), "one", "alt"),
            page.table(["a"], [["b"]]),
            page.paragraph("p"),
        ],
    )
    seen = outline(text)
    assert seen.open == []
    assert {"svg", "table", "h2"} <= set(seen.tags)
    assert all(link.startswith("#") for link in seen.links)
    assert not any(foreign in text for foreign in ("<script", "@import", "url(http"))


def test_words_are_escaped_wherever_they_come_from():
    evil = '<script>alert("1")</script>'
    text = page.page(
        evil,
        [
            page.heading(evil, anchor=evil),
            page.paragraph(evil),
            page.table([evil], [[evil], [page.Mark(evil, "good")]], evil),
            page.details(evil, [page.preformatted(evil)]),
            page.contents({evil: evil}),
            page.picture(figure(), "one", evil, evil),
        ],
    )
    assert "<script" not in text


def test_two_pictures_on_a_page_share_no_identifier():
    both = page.picture(figure(), "one", "a") + page.picture(figure(), "two", "b")
    names = re.findall(r'\bid="([^"]+)"', both)
    assert len(names) == len(set(names))
    used = re.findall(r'href="#([^"]+)"', both) + re.findall(r"url\(#([^)]+)\)", both)
    assert used
    assert set(used) <= set(names)


def test_ink_and_paper_of_a_picture_follow_the_page():
    drawing = page.picture(figure(), "one", "a")
    assert "var(--ink)" in drawing
    assert "var(--paper)" in drawing
    assert "#1f2933" not in drawing


def test_columns_of_numbers_are_aligned_to_the_right_with_their_heading():
    text = page.table(["a", "b"], [["x", page.Mark("1", "number")]])
    assert '<th class="number">b</th>' in text
    assert "<th>a</th>" in text
