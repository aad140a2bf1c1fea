"""The site: it builds without a warning, and every public name is in its reference with an example."""

import html
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import invariant_bandits as ib

NAMES = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (ib, ib.evaluation, ib.simulation)
    for name in package.__all__
    if not inspect.ismodule(getattr(package, name))
}
"""Public name, with its package -> its value."""
ROOT = Path(__file__).parents[2]
OPTIONS = ("--quiet", "--fail-on-warning", "--keep-going", "--nitpicky")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *OPTIONS,
        "-b",
        "html",
        "-d",
        folder / "state",
    ]
    done = subprocess.run(
        [*command, ROOT / "docs", folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "html"


def test_the_make_target_builds_with_the_options_that_are_tested_here():
    assert f"SPHINX_OPTIONS := {' '.join(OPTIONS)}" in (ROOT / "Makefile").read_text()


@pytest.mark.system
@pytest.mark.slow
def test_every_public_name_has_a_place_in_the_reference(site):
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, uri: uri)
    listed = {
        name
        for kind in ("py:class", "py:function", "py:exception")
        for name in inventory.get(kind, {})
    }
    assert NAMES.keys() <= listed


def test_members_that_the_reference_leaves_out_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from site_directives import NOT_SHOWN

    kinds = {path.rpartition(".")[2]: value for path, value in NAMES.items()}
    for name, members in NOT_SHOWN.items():
        known = {*dir(kinds[name]), *kinds[name].__annotations__}
        assert set(members.split(", ")) <= known, name


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs(name):
    """Doctests of the whole package run the examples; here they have to be there."""
    assert ">>> " in (inspect.getdoc(NAMES[name]) or "")


NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
SHOWN = {
    "paper-in-ten-minutes": ("drifting: 3 of 10 dimensions", 4),
    "your-logs": ("auto-isd against what the log did: yes, by", 2),
    "watching-drift": ("ALARM: a stable coefficient moved", 3),
}
"""What the page of a notebook says, and how many pictures it has."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_the_page_of_a_notebook_shows_its_outputs(site, name):
    assert sorted(SHOWN) == [path.stem for path in NOTEBOOKS]
    words, pictures = SHOWN[name]
    page = (site / f"notebooks/{name}.html").read_text()
    assert words in html.unescape(page)
    assert page.count('class="cell_output') > pictures
    assert len(re.findall(r'src="\.\./_images/[0-9a-f]{64}\.png"', page)) == pictures
