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
HOUSES = {
    "invariant_bandits": ROOT,
    "invariant_bandits_service": ROOT / "service",
    "invariant_bandits_reproduction": ROOT / "reproduction",
}
"""Packages of this project -> their folders."""
BESIDE = {
    "LICENSE",
    "MANIFEST.in",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
    "setup.cfg",
}
MORE = {"invariant_bandits": {"CHANGELOG.md", "constraints.txt"}}
"""What one of them has besides."""


def beside(package):
    return BESIDE | MORE.get(package, set())


@pytest.fixture(scope="module", params=HOUSES)
def package(request):
    return request.param


@pytest.fixture(scope="module")
def built(tmp_path_factory, package):
    """The folder of both distributions of a package, built from a copy of the tree with files in it that nobody wants."""
    pytest.importorskip("build")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in beside(package) - {"PKG-INFO", "setup.cfg"}:
        shutil.copy(HOUSES[package] / name, tree)
    for name in ("src", "tests"):
        shutil.copytree(
            HOUSES[package] / name,
            tree / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
    for stray in (
        f"src/{package}/__pycache__/x.pyc",
        "results/report.html",
        "secrets.env",
        ".venv/x.py",
    ):
        (tree / stray).parent.mkdir(exist_ok=True, parents=True)
        (tree / stray).write_text("stray")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


def files_of(package):
    source = HOUSES[package] / "src"
    below = (path for path in (source / package).rglob("*") if path.is_file())
    return {
        str(path.relative_to(source))
        for path in below
        if "__pycache__" not in path.parts
    }


@pytest.mark.system
def test_the_source_distribution_holds_the_package_and_a_few_files_beside_it(
    built, package
):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {
            member.name.partition("/")[2]
            for member in archive.getmembers()
            if member.isfile()
        }
    source = {name.removeprefix("src/") for name in names if name.startswith("src/")}
    assert {name for name in names if not name.startswith("src/")} == beside(package)
    assert {
        name for name in source if not name.startswith(f"{package}.egg-info/")
    } == files_of(package)


@pytest.mark.system
def test_the_wheel_holds_the_package_and_what_is_said_about_it(built, package):
    (path,) = built.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        about = archive.read(f"{package}-{ib.__version__}.dist-info/METADATA").decode()
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == files_of(package)
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
