"""What is said once is shown twice: the page and the terminal hold the same words and numbers."""

import re

from invariant_bandits.reports.page import (
    FIRST_ROWS,
    Mark,
    Section,
    as_page,
    as_text,
    number,
)

TABLE = Section(
    "Prices & <tags>",
    ["One sentence."],
    ("name", "price", "verdict"),
    [
        ("tea", number("3"), Mark("good", "good")),
        ("coffee", number("12"), Mark("poor", "bad")),
    ],
    "<figure>drawn</figure>",
)


def test_columns_stand_in_line_and_numbers_to_the_right():
    assert as_text("Title", "Headline.", [TABLE]).splitlines() == [
        "Title",
        "=====",
        "Headline.",
        "",
        "Prices & <tags>",
        "---------------",
        "One sentence.",
        "",
        "  name    price  verdict",
        "  tea         3  good",
        "  coffee     12  poor",
    ]


def test_the_page_escapes_words_links_to_its_sections_and_shows_pictures():
    page = as_page("Title", "1 < 2", [TABLE])
    assert "Prices &amp; &lt;tags&gt;</h2>" in page
    assert "<p>1 &lt; 2</p>" in page
    assert "<figure>drawn</figure>" in page
    (target,) = re.findall(r'href="#([^"]*)"', page)
    assert f'id="{target}"' in page


def test_the_terminal_cuts_long_tables_and_says_so_the_page_does_not():
    section = Section(
        "Long", [], ("row",), [(number(str(row)),) for row in range(FIRST_ROWS + 5)]
    )
    assert as_text("Title", "", [section]).endswith("… and 5 more")
    assert (
        as_page("Title", "", [section]).count('<td class="number">') == FIRST_ROWS + 5
    )
