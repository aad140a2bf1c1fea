"""A page of a study says whether its numbers are of the present code, and cannot say so wrongly."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
from typer.main import get_command

from invariant_bandits_reproduction.studies import __main__ as command
from invariant_bandits_reproduction.studies import stamps
from invariant_bandits_reproduction.studies.stamps import Stamp

SOURCE = '''"""A module."""

RATE = 0.5  # of something


def double(x):
    """Return twice x."""
    return 2 * x
'''


@pytest.mark.parametrize("study", stamps.STUDIES)
def test_the_mark_of_every_page_is_right(study):
    page = (stamps.PAGES / f"{study}.md").read_text()
    assert stamps.marked(study, page) == page, (
        "run `python -m invariant_bandits_reproduction.studies stamps`"
    )


def test_every_page_of_a_study_has_a_mark():
    named = {path.stem for path in stamps.PAGES.glob("*.md")}
    assert named - {"index"} == set(stamps.STUDIES)


def test_every_study_is_a_command_that_finds_its_module_and_its_stamp():
    """The speed of packages is measured by a benchmark, not by a study."""
    commands = get_command(command.study).commands
    for name in stamps.STUDIES.keys() - {"speed"}:
        module = (
            f"invariant_bandits_reproduction.studies.{name.replace('-', '_')}_study"
        )
        assert find_spec(module) is not None
        assert name in commands


def test_policies_of_the_literature_belong_to_their_study_alone():
    related = set(stamps.RELATED.glob("*.py"))
    assert len(related) > 5
    for name, measured in stamps.STUDIES.items():
        assert related.isdisjoint(measured.sources()) == (name != "related")


def test_comments_docstrings_and_layout_do_not_count_and_code_does():
    plain = stamps.structure(SOURCE)
    same = SOURCE.replace("# of something", "").replace("Return twice", "Double")
    assert stamps.structure(same.replace("2 * x", "(2\n        * x)")) == plain
    assert stamps.structure(SOURCE.replace("0.5", "0.25")) != plain
    assert stamps.structure(SOURCE.replace("2 * x", "3 * x")) != plain


@pytest.fixture
def present(monkeypatch):
    """The present code, as if its checksums were these."""
    stamp = Stamp("code", "run", 240)
    monkeypatch.setattr(stamps, "code_of", lambda study: stamp.code)
    monkeypatch.setattr(stamps, "stamp_of", lambda study: stamp)
    return stamp


def test_a_page_is_present_the_same_in_a_fixed_run_or_older(present):
    page = stamps.stamped("# Title\n\nText.\n", present)
    assert stamps.PRESENT in page
    assert stamps.stamp_on(page) == present
    assert stamps.marked("online", page) == page
    assert "240 rounds" in stamps.mark_of("online", replace(present, code="former"))
    changed = replace(present, code="former", run="other")
    assert stamps.mark_of("online", changed) == stamps.OLDER
    assert stamps.mark_of("online", None) == stamps.OLDER


def test_a_page_that_says_present_without_reason_is_marked_anew(present):
    page = stamps.stamped("# Title\n\nText.\n", present)
    former = page.replace('"code": "code"', '"code": "former"').replace(
        '"run": "run"', '"run": "other"'
    )
    marked = stamps.marked("online", former)
    assert marked != former
    assert stamps.PRESENT not in marked
    assert marked.count(stamps.OLDER) == 1
    assert stamps.marked("online", marked) == marked
    without = stamps.with_mark("# Title\n\nText.\n", stamps.PRESENT)
    assert stamps.marked("online", without) == without.replace(
        stamps.PRESENT, stamps.OLDER
    )


@pytest.mark.slow
@pytest.mark.parametrize("probe", stamps.PROBES)
def test_a_fixed_run_is_the_same_twice(probe):
    assert stamps.PROBES[probe]() == stamps.PROBES[probe]()


@pytest.mark.slow
def test_a_fixed_run_sees_another_default_of_a_policy(monkeypatch):
    from invariant_bandits.policies.auto import AutoISD

    before, _ = stamps.PROBES["arms"]()
    share = AutoISD.options["share"]._replace(default=0.3)
    monkeypatch.setitem(AutoISD.options, "share", share)
    after, _ = stamps.PROBES["arms"]()
    assert after["d-linucb"] == before["d-linucb"]
    assert after["auto-isd"] != before["auto-isd"]
