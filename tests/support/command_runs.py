"""The command, run in the process of the tests."""

import sys

import pytest

from invariant_bandits import cli


@pytest.fixture
def run_apart(monkeypatch, capsys):
    """Run the command: (exit code, standard output, standard error)."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["invariant-bandits", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return call


@pytest.fixture
def run(run_apart):
    """Run the command: (exit code, all that it printed, in one line of single spaces)."""

    def call(*words):
        code, out, err = run_apart(*words)
        return code, " ".join((out + err).split())

    return call
