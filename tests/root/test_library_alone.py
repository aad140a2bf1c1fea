"""The library alone, in an environment without the service and the reproduction."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """The command of an environment that has the library and what it requires; skipped without a registry."""
    folder = tmp_path_factory.mktemp("alone")
    tree = folder / "tree"
    tree.mkdir()
    for name in PROJECT:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(
        ROOT / "src",
        tree / "src",
        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
    )
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    limits = ROOT / "constraints.txt"
    install = "-m", "pip", "install", "--quiet", "-c", limits, f"{tree}[command]"
    done = subprocess.run(
        [programs / "python", *install],
        env=os.environ | {"PIP_CONSTRAINT": str(limits), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "no reason").splitlines()[-1]
        pytest.skip(f"pip cannot install the library here: {reason}")
    return programs / "invariant-bandits"


def run(command, folder, *words):
    done = subprocess.run(
        [command, *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.system
@pytest.mark.slow
def test_the_help_lists_every_command_and_says_which_are_missing(command, tmp_path):
    code, out, _ = run(command, tmp_path, "--help")
    assert code == 0
    assert " fit " in out
    assert "pip install invariant-bandits-service" in " ".join(out.split())


@pytest.mark.system
@pytest.mark.slow
def test_a_sample_log_is_fitted(command, tmp_path):
    assert run(command, tmp_path, "sample", ".", "--rounds", 400)[0] == 0
    code, out, err = run(command, tmp_path, "fit", "banners.csv", "--out", "shop.model")
    assert code == 0, out + err
    assert (tmp_path / "shop.model").is_file()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "house"),
    [
        (("serve", "shop.model", "--port", 0), "service"),
        (("store", "verify", "decisions.db", "--json"), "service"),
        (("demo", "--help"), "service"),
        (("reproduce", "--out", "results"), "reproduction"),
    ],
)
def test_a_command_of_another_package_says_how_to_get_it(
    command, tmp_path, words, house
):
    code, out, err = run(command, tmp_path, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"pip install invariant-bandits-{house}" in err
    assert f"in a checkout pip install ./{house}" in err


@pytest.mark.system
@pytest.mark.slow
def test_the_published_recipe_says_how_to_get_it(command, tmp_path):
    code = (
        "import numpy as np, invariant_bandits as ib\n"
        "x = np.random.default_rng(0).normal(size=(200, 2))\n"
        "fit = ib.InvariantSubspaceDecomposition(recipe='published')\n"
        "try:\n    fit.fit(x, x[:, 0])\n"
        "except ib.InputError as error:\n    print(error)\n"
    )
    python = command.with_name(Path(sys.executable).name)
    python = python if python.exists() else command.with_name("python")
    _, out, err = run(python, tmp_path, "-c", code)
    assert "pip install invariant-bandits-reproduction" in out, err
