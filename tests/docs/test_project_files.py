"""Files that belong to a project say what is true of it."""

import re
from pathlib import Path

import pytest

import invariant_bandits as ib

ROOT = Path(__file__).parents[2]
yaml = pytest.importorskip("yaml")


def test_the_citation_names_the_paper_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == ib.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    authors = [
        each["family-names"] for each in citation["preferred-citation"]["authors"]
    ]
    assert authors == ["Lazzaretto", "Peters", "Pfister"]


def test_hooks_run_what_the_checks_run():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0][
        "hooks"
    ]
    assert [hook["entry"].split()[:2] for hook in hooks] == [
        [".venv/bin/ruff", word] for word in ("check", "format")
    ]


def test_short_files_stay_short():
    templates = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
    assert len(templates) == 2
    assert all(len(path.read_text().splitlines()) <= 10 for path in templates)
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_security_policy_says_what_is_promised_and_how_to_report():
    titles = re.findall(r"^## (.+)$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert titles == [
        "What the service promises",
        "What it does not promise",
        "How to report",
    ]
