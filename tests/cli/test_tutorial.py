"""The tutorial runs as it stands, in an empty folder."""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import invariant_bandits as ib
from invariant_bandits import cli

ROOT = Path(__file__).parents[2]


def block(language):
    (found,) = re.findall(
        rf"```{language}\n(.*?)```", (ROOT / "docs" / "tutorials" / "feature-rows.md").read_text(), re.DOTALL
    )
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the shell block has run, line by line; the command in the process of the tests."""
    folder = tmp_path_factory.mktemp("tutorial")
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.chdir(folder)
        for line in block("sh").splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "invariant-bandits":
                patch.setattr(sys, "argv", words)
                with pytest.raises(SystemExit) as ended:
                    cli.main()
                assert ended.value.code == 0, line
            else:
                subprocess.run(["sh", "-e", "-c", line], check=True)
    (folder / "said").write_text(said.getvalue())
    return folder


def test_no_block_has_more_than_ten_lines():
    for language in ("sh", "python"):
        lines = [line for line in block(language).splitlines() if line]
        assert 5 <= len(lines) <= 10


@pytest.mark.system
def test_the_shell_block_leaves_models_and_reports_that_say_what_was_planted(folder):
    for name in ("weekly", "small"):
        assert ib.Model.load(folder / f"{name}.model").moments.rounds == 4000
        assert "</html>" in (folder / f"{name}.html").read_text()
    banners = ib.Model.load(folder / "banners.model")
    assert (banners.moments.windows, len(banners.arms)) == (8, 5)
    assert banners.decide({"age": 31.0, "hour": 20, "device": "phone"}).action in banners.arms.active
    assert ib.Model.load(folder / "weekly.model").decomposition.split_.residual_dim == 3
    assert ib.Model.load(folder / "small.model").names == ("x0", "x1", "x2")
    said = (folder / "said").read_text()
    assert "auto-isd against what the log did: yes, by" in said
    assert "</html>" in (folder / "would-it-have-helped.html").read_text()


@pytest.mark.system
def test_the_python_block_says_yes_and_leaves_a_model(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = {}
    exec(compile(block("python"), "tutorial.md", "exec"), names)
    said = capsys.readouterr().out
    assert "drifting: 3 of 10 dimensions   no drift detected: 7" in said
    assert "yes, by" in said
    assert names["action"] in range(3)
    assert names["model"].policy.rounds == 1
    assert ib.Model.load("shop.model").policy.rounds == 0
