"""What is given away: nothing is missing, nothing is in it by accident, and everything in it has a
licence.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import invariant_bandits as ib
from benchmarks.licences import UNKNOWN, installed_licences

ROOT = Path(__file__).parents[2]
PACKAGE = "invariant_bandits"
BESIDE = {
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "PKG-INFO",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "setup.cfg",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of both distributions, built from a copy of the tree with files in it that nobody wants."""
    pytest.importorskip("build")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in BESIDE - {"PKG-INFO", "setup.cfg"}:
        shutil.copy(ROOT / name, tree)
    for name in ("src", "tests", "docs"):
        shutil.copytree(
            ROOT / name,
            tree / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
    for stray in (
        "src/invariant_bandits/__pycache__/x.pyc",
        "results/report.html",
        "secrets.env",
        ".venv/x.py",
    ):
        (tree / stray).parent.mkdir(exist_ok=True)
        (tree / stray).write_text("stray")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


def files_of_package():
    below = (path for path in (ROOT / "src" / PACKAGE).rglob("*") if path.is_file())
    return {
        str(path.relative_to(ROOT / "src"))
        for path in below
        if "__pycache__" not in path.parts
    }


@pytest.mark.system
def test_the_source_distribution_holds_the_package_and_a_few_files_beside_it(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {
            member.name.partition("/")[2]
            for member in archive.getmembers()
            if member.isfile()
        }
    source = {name.removeprefix("src/") for name in names if name.startswith("src/")}
    assert {name for name in names if not name.startswith("src/")} == BESIDE
    assert {
        name for name in source if not name.startswith(f"{PACKAGE}.egg-info/")
    } == files_of_package()


@pytest.mark.system
def test_the_wheel_holds_the_package_and_what_is_said_about_it(built):
    (path,) = built.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        about = archive.read(f"{PACKAGE}-{ib.__version__}.dist-info/METADATA").decode()
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == files_of_package()
    assert "Requires-Python: >=3.11" in about
    assert "License-Expression: BSD-3-Clause" in about


def test_the_versions_that_build_and_test_are_pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {"setuptools", "build", "numpy", "pytest"} <= pinned.keys()
    assert not any(
        "/" in line or "@" in line for line in lines if not line.startswith("#")
    )
    assert (
        "PIP_CONSTRAINT := $(CURDIR)/constraints.txt" in (ROOT / "Makefile").read_text()
    )


def test_every_package_that_is_needed_states_a_licence():
    found = {licence.package: licence for licence in installed_licences()}
    assert {"numpy", "scipy", "numba", "llvmlite", "safetensors"} <= {
        name for name in found if found[name].needed
    }
    assert not found["pytest"].needed
    assert all(licence.words != UNKNOWN for licence in found.values() if licence.needed)
