"""Every code block of every page runs, or is checked; every line of prose is short and plain."""

import re

import pytest

import invariant_bandits as ib
import pages

PAGES = pages.pages()


def name(page):
    return str(page.relative_to(pages.ROOT))


CHECKED_BELOW = ("docs/tutorials/feature-rows.md", "docs/how-to/service.md")
RUN = [
    page
    for page in PAGES
    if name(page) not in CHECKED_BELOW
    and any(block.runs for block in pages.blocks(page))
]
LONGEST_LINE = 100
PRIVATE_WORDS = re.compile(
    r"\bsigns that are no\b|\bhalves of signs\b|\bfor all that can be known\b|\bby chance alone\b|\bis no [A-Z]\b"
    r"|\bwhoever\b|\bwhatever\b|\bnobody\b|\bsomebody\b|, too[.,;]|\bas the others let expect\b|\btold\b"
    r"|\bis no [a-z]+\b(?<!is no longer)|;[^;]*;",
    re.IGNORECASE,
)
"""Phrases that a newcomer stumbled over."""


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_blocks_of_a_page_run_in_an_empty_folder(page, tmp_path):
    pages.Runner(tmp_path).run(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_does_not_run_is_checked(page):
    for block in pages.blocks(page):
        assert block.language in pages.LANGUAGES, (
            f"line {block.line}: {block.language!r}"
        )
        pages.check_data(block)
        if block.language == "console":
            pages.check_console(block.text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_line_of_prose_is_long_or_in_our_own_dialect(page):
    lines = list(pages.prose(page))
    assert [number for number, line in lines if len(line) > LONGEST_LINE] == []
    assert [number for number, line in lines if PRIVATE_WORDS.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_a_sentence_or_a_table_have_known_options(page):
    for command in pages.inline_commands(page):
        pages.check_console(f"$ {command}\n")


def test_a_wrong_option_target_or_extra_is_noticed():
    for wrong in (
        "invariant-bandits fit --nonsense",
        "make nonsense",
        "pip install 'x[nonsense]'",
        "rm x",
    ):
        with pytest.raises(AssertionError):
            pages.check_console(f"$ {wrong}\n")


@pytest.mark.system
@pytest.mark.slow
def test_the_page_on_feature_rows_finds_the_three_planted_directions(tmp_path):
    runner = pages.Runner(tmp_path)
    names = runner.run(pages.ROOT / "docs" / "tutorials" / "feature-rows.md")
    assert (
        ib.Model.load(tmp_path / "weekly.model").decomposition.split_.residual_dim == 3
    )
    assert ib.Model.load(tmp_path / "small.model").names == ("x0", "x1", "x2")
    assert "auto-isd against what the log did: yes, by" in " ".join(
        runner.output.getvalue().split()
    )
    assert names["action"] in range(3)


@pytest.mark.system
@pytest.mark.slow
def test_the_page_on_the_service_has_its_rewards_learned(tmp_path):
    names = pages.Runner(tmp_path).run(pages.ROOT / "docs" / "how-to" / "service.md")
    assert names["status"] == "learned"
    assert names["beliefs"]["counts"]["learned"] == 5
