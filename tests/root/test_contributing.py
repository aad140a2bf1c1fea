"""CONTRIBUTING's map of the rooms is the tree, and every room says in its docstring what it must not know."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "invariant_bandits"
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
MODULES = sorted(path.name for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def mapped():
    """Rooms and modules that the first column of the table names."""
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("| `")]
    return [name for line in table for name in re.findall(r"`([\w./]+)`", line.split("|")[1])]


def test_the_table_names_every_room_and_every_module_of_the_root_once():
    expected = [f"{room.relative_to(PACKAGE)}/" for room in ROOMS] + MODULES
    assert sorted(mapped()) == sorted(expected)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_a_room_says_what_it_holds_and_what_it_must_not_know(room):
    words = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    assert words is not None
    assert len(words) > 60
    assert re.search(r"must not know|may know|knows nothing|know nothing", words), words


def test_the_arrows_are_those_of_the_import_contract():
    import tomllib

    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert contract["exhaustive"]
    layers = [re.findall(r"\w+", layer) for layer in reversed(contract["layers"])]
    arrows = re.search(r"```\n(checks.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL).group(1)
    assert [sorted(re.findall(r"\w+", step)) for step in arrows.split("→")] == [sorted(layer) for layer in layers]
