"""CONTRIBUTING's map of the tree is the tree, and its arrows are those of the import contract."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "invariant_bandits"
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
MAP = PAGE.partition("| module or folder |")[2]


def test_the_table_names_every_folder_and_every_module_of_the_root_once():
    named = re.findall(r"^\| `([\w./]+)` \|", MAP, re.MULTILINE)
    folders = [f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")]
    modules = [path.name for path in PACKAGE.glob("*.py") if path.stem != "__init__"]
    assert sorted(named) == sorted(folders + modules)


def test_the_arrows_are_those_of_the_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"][0]
    assert contract["exhaustive"]
    layers = [
        sorted(re.findall(r"\w+", layer)) for layer in reversed(contract["layers"])
    ]
    arrows = re.search(r"```\n(checks.*?)```", PAGE, re.DOTALL).group(1)
    assert [sorted(re.findall(r"\w+", step)) for step in arrows.split("→")] == layers
