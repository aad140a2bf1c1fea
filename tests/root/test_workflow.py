"""The workflow of the repository host: its jobs call targets that the Makefile has."""

import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/checks.yaml").read_text())
JOBS = WORKFLOW["jobs"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(job):
    """Return the commands of a job, one for each target of its matrix."""
    targets = job.get("strategy", {}).get("matrix", {}).get("target", [""])
    return {
        step["run"].replace("${{ matrix.target }}", target)
        for step in job["steps"]
        if "run" in step
        for target in targets
    }


@pytest.mark.parametrize("name", JOBS)
def test_every_job_runs_targets_of_the_makefile(name):
    ran = commands(JOBS[name])
    assert ran
    for command in ran:
        make, target = command.split()
        assert (make, target in TARGETS) == ("make", True), command
    assert JOBS[name]["timeout-minutes"] <= 90


def test_quick_runs_on_every_supported_python_and_the_whole_weekly():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = JOBS["quick"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert project["requires-python"] == f">={versions[0]}"
    assert commands(JOBS["weekly"]) == {"make test", "make reproduce"}
    assert "schedule" in WORKFLOW[True]  # YAML reads the key `on` as a boolean
    assert {"lint", "oldest", "macos", "wheels"} <= JOBS.keys()


def test_no_test_target_changes_the_machine():
    """Only preparations of `make test` may install something; `quick` has none of them."""
    makefile = (ROOT / "Makefile").read_text()
    for target in ("quick", "quick-library", "lint"):
        (line,) = re.findall(rf"^{target}:(.*?)##", makefile, re.MULTILINE)
        assert not {"java", "browser", "promtool", "clients"} & set(line.split())


def test_the_oldest_versions_are_the_lower_bounds_of_the_packages():
    bounds = {}
    for folder in (".", "service", "reproduction"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
        extras = project["project"]["optional-dependencies"].values()
        for needed in (project["project"]["dependencies"], *extras):
            for line in needed:
                bound = re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", line)
                if bound:
                    bounds.setdefault(bound[1], set()).add(bound[2])
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert oldest.keys() == bounds.keys()
    for name, versions in bounds.items():
        assert versions == {oldest[name]}, name
