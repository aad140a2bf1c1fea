"""serve: every option can also be set by an environment variable, and the command line goes before it."""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from invariant_bandits.cli.app import app


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Leave SIGHUP as it was: the command blocks it until it can read other tokens."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["serve", *arguments], env=environment)


def test_every_option_of_serve_has_an_environment_variable() -> None:
    group: Any = typer.main.get_command(app)
    command = group.get_command(None, "serve")
    variables = {param.name: param.envvar for param in command.params}
    assert variables == {
        name: f"INVARIANT_BANDITS_{name.upper()}" for name in variables
    }
    assert {
        "models",
        "store",
        "host",
        "port",
        "token_file",
        "rate",
        "role",
        "logs",
        "learn_at",
    } <= set(variables)
    assert "INVARIANT_BANDITS_TOKEN_FILE" in run("--help").stdout


def test_environment_variables_are_settings_and_the_command_line_goes_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "INVARIANT_BANDITS_PORT" in run(INVARIANT_BANDITS_PORT="0").output
    assert "nowhere: No such file" in str(
        run(INVARIANT_BANDITS_TOKEN_FILE="nowhere").exception
    )
    both = run("--token-file", "elsewhere", INVARIANT_BANDITS_TOKEN_FILE="nowhere")
    assert "elsewhere: No such file" in str(both.exception)
    assert "MODEL: a.ib does not exist" in str(
        run(INVARIANT_BANDITS_MODELS="one=a.ib two=b.ib").exception
    )
    assert "--learn-at must be" in str(run(INVARIANT_BANDITS_LEARN_AT="noon").exception)
    alone = run(
        INVARIANT_BANDITS_ROLE="decider", INVARIANT_BANDITS_STORE=str(tmp_path / "d.db")
    )
    assert "a decider needs a store that processes can share" in str(alone.exception)


def test_a_file_sets_options_after_the_command_line_and_the_environment(
    tmp_path: Path,
) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(
        'port = 8123\ntoken-file = "tokens"\nmodels = ["a=a.ib", "b=b.ib"]\naccess_log = true\nrate = 2\n'
    )
    printed = run(
        "--config",
        str(path),
        "--rate",
        "3",
        "--print-config",
        INVARIANT_BANDITS_PORT="9",
    ).stdout
    values = tomllib.loads(printed)
    assert (values["rate"], values["port"], values["token_file"]) == (3.0, 9, "tokens")
    assert (values["models"], values["access_log"]) == (["a=a.ib", "b=b.ib"], True)
    path.write_text(printed)
    assert run("--print-config", INVARIANT_BANDITS_CONFIG=str(path)).stdout == printed
    assert "MODEL: a.ib does not exist" in str(run("--config", str(path)).exception)
    path.write_text("prot = 8123\n")
    assert "prot is not an option" in str(run("--config", str(path)).exception)
    path.write_text("port = 0\n")
    assert run("--config", str(path)).exit_code == 2


def test_a_password_is_not_printed() -> None:
    pytest.importorskip("psycopg")
    for address in (
        "postgresql://me:secret%40@db/x",
        "postgresql://me@db/x?sslmode=require&password=secret%231",
    ):
        printed = run("--print-config", "--store", address).stdout
        assert '# store = "postgresql://db/x"' in printed
        assert "secret" not in printed
        assert "store" not in tomllib.loads(printed)


def test_a_prefix_of_paths_is_a_path() -> None:
    for prefix in ("bandits", "/a b", "/a?b"):
        assert "--root-path must be" in str(run("--root-path", prefix).exception)
