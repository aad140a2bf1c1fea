"""Importing the package costs next to nothing, and every public name is where it is promised."""

import subprocess
import sys

import pytest

import invariant_bandits as ib

HEAVY = (
    "numba",
    "scipy",
    "pandas",
    "matplotlib",
    "sklearn",
    "safetensors",
    "typer",
    "rich",
    "numpy",
)


def loaded_after(code):
    """Top-level packages that a fresh interpreter has loaded after running `code`."""
    report = (
        "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.system
def test_importing_the_package_imports_nothing_heavy():
    loaded = loaded_after("import invariant_bandits")
    assert "invariant_bandits" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.system
def test_the_import_timer_sees_nothing_heavy_either():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import invariant_bandits"],
        capture_output=True,
        text=True,
        check=True,
    )
    timed = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
    }
    assert "invariant_bandits" in timed
    assert timed.isdisjoint(HEAVY)


@pytest.mark.system
def test_moments_and_splits_need_neither_the_compiler_nor_pictures():
    loaded = loaded_after(
        "import invariant_bandits as ib; ib.WindowedMoments, ib.Split, ib.InputError"
    )
    assert loaded.isdisjoint({"numba", "scipy", "pandas", "matplotlib", "sklearn"})


@pytest.mark.parametrize("package", [ib, ib.evaluation, ib.simulation])
def test_every_public_name_can_be_had(package):
    assert len(package.__all__) > 0
    for name in package.__all__:
        value = getattr(package, name)
        assert value.__name__.rpartition(".")[2] == name
        assert name in dir(package)


def test_worlds_and_logged_rounds_have_packages_of_their_own():
    assert ib.simulation.PaperEpisodes(logged=200).world == ib.simulation.PaperWorld()
    assert not hasattr(ib, "PaperEpisodes")
    assert callable(ib.simulate)  # the function, not the package


def test_unknown_names_are_unknown():
    with pytest.raises(AttributeError, match="attribute nothing"):
        ib.nothing  # noqa: B018


def test_errors_about_input_are_value_errors():
    assert issubclass(ib.InputError, ValueError)
    assert issubclass(ib.FileError, ib.InputError)
