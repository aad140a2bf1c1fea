"""Pages of the documentation: their code blocks, run or checked, and their prose.

One fence, one promise. ```python with >>> is a doctest of pytest. ```python without it, and ```sh, run in
the order of the page in one empty folder. ```console holds commands that take a cluster, a network or an
hour: they are held against the command's options, the Makefile and the extras. ```toml and ```json parse.
```text on a page that runs is what was printed before it.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

import started_service
from invariant_bandits import cli
from invariant_bandits.cli.app import app
from invariant_bandits.cli.houses import subcommands

ROOT = Path(__file__).parents[2]
HOUSES = (".", "service", "reproduction")
"""Folders of the packages of this project."""
GENERATED = ("studies", "changelog.md")
"""Pages below docs/ that the studies or other files write."""
FENCE = re.compile(
    r"^( *)(`{3,}|:{3,})(\{?[\w-]*\}?)[^\n]*\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE
)
LANGUAGES = {"", "python", "sh", "console", "toml", "json", "text", "yaml"}
SYSTEM_COMMANDS = {
    "cp",
    "curl",
    "docker",
    "echo",
    "export",
    "kill",
    "mv",
    "npm",
    "openssl",
    "systemctl",
}
"""What a console block may call besides our own command."""
ADDRESS = re.compile(r"(?:http://)?(?:localhost|127\.0\.0\.1):8080")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and its line in the page."""

    language: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        """Whether it is run where it stands."""
        return self.language == "sh" or (
            self.language == "python" and ">>> " not in self.text
        )


def pages() -> list[Path]:
    """Return every page that people write."""
    below = sorted((ROOT / "docs").rglob("*.md"))
    kept = [
        path
        for path in below
        if path.relative_to(ROOT / "docs").parts[0] not in GENERATED
    ]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *kept]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, without the directives of the site."""
    text = page.read_text()
    found = [
        (match, text.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(text)
    ]
    return [
        Block(match[3], match[4], line)
        for match, line in found
        if not match[3].startswith("{")
    ]


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that is neither code nor a table nor a picture."""
    text = re.sub(
        r"<!--.*?-->",
        lambda match: "\n" * match[0].count("\n"),
        page.read_text(),
        flags=re.DOTALL,
    )
    without_code = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(without_code.splitlines(), 1):
        if not re.match(r"\s*(\||<|!\[|    \S)", line):
            yield number, line


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a shell block, continued lines joined, comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        command = line.removeprefix("$ ").strip()
        if command and not command.startswith("#"):
            yield command


def inline_commands(page: Path) -> Iterator[str]:
    """Yield the commands of ours that stand in sentences and tables; "..." and "…" are left out."""
    for code in re.findall(
        r"`((?:invariant-bandits|make) [^`]+)`", FENCE.sub("", page.read_text())
    ):
        yield re.sub(r"\.\.\.|…", "", " ".join(code.split()))


class Runner:
    """Runs the blocks of one page in one folder; what they print is in `output`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names, self.output = folder, {}, io.StringIO()
        self._services: list[started_service.Started] = []

    def run(self, page: Path) -> dict[str, Any]:
        """Run the blocks of a page; the names that its Python blocks leave behind."""
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.chdir(self.folder)
            stack.enter_context(redirect_stdout(self.output))
            stack.callback(self._end_services)
            for block in blocks(page):
                if block.runs and block.language == "python":
                    code = compile(
                        self._addressed(block.text),
                        f"{page.name}, line {block.line}",
                        "exec",
                    )
                    exec(code, self.names)
                elif block.runs:
                    for command in commands(block.text):
                        self._run_command(command, patch)
                elif block.language == "text":
                    self._check_output(block)
        return self.names

    def _run_command(self, command: str, patch: pytest.MonkeyPatch) -> None:
        words = shlex.split(command, comments=True)
        if words[:2] == ["invariant-bandits", "serve"]:
            self._services.append(started_service.start(self.folder, *words[2:]))
        elif words[0] == "invariant-bandits":
            patch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert ended.value.code == 0, command
        else:
            done = subprocess.run(
                ["sh", "-e", "-c", self._addressed(command)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert '"error"' not in done.stdout, f"{command}\n{done.stdout}"
            print(done.stdout)

    def _check_output(self, block: Block) -> None:
        """Fail if a line of a text block was not printed so far, whatever the line breaks; ... is any text."""
        printed = " ".join(self.output.getvalue().split())
        for line in filter(None, map(str.split, block.text.splitlines())):
            pattern = re.escape(" ".join(line)).replace(re.escape("..."), ".*?")
            assert re.search(pattern, printed), (
                f"line {block.line}: {' '.join(line)} was not printed"
            )

    def _addressed(self, text: str) -> str:
        """Point a text at the service that the page has started last."""
        return ADDRESS.sub(self._services[-1].url, text) if self._services else text

    def _end_services(self) -> None:
        for service in self._services:
            service.end()


def check_console(text: str) -> None:
    """Fail if a command of a console block could not be meant: an unknown option, target, extra or file."""
    for command in commands(text):
        words = shlex.split(command, comments=True)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        name, *rest = words
        if name == "invariant-bandits":
            check_options(rest)
        elif name == "make":
            targets = re.findall(
                r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE
            )
            assert set(rest) <= set(targets), command
        elif name == "pip":
            extras = re.findall(r"\[([\w,]+)\]", command)
            assert set(",".join(extras).split(",")) - {""} <= known_extras(), command
        elif name == "python":
            is_module = rest[0] == "-m"
            there = find_spec(rest[1]) if is_module else (ROOT / rest[0]).exists()
            assert there, command
        else:
            assert name in SYSTEM_COMMANDS, command


def known_extras() -> set[str]:
    """Return the extras of all packages of this project."""
    found = set()
    for path in (ROOT / house / "pyproject.toml" for house in HOUSES):
        found |= set(
            tomllib.loads(path.read_text())["project"]["optional-dependencies"]
        )
    return found


def check_options(words: list[str]) -> None:
    """Fail if the command has no such subcommand or option; nothing is run."""
    command: Any = typer.main.get_command(app)
    known = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        inner = dict(subcommands(command)).get(word)
        if inner is not None:
            command = inner
            known |= {
                option
                for each in command.params
                for option in (*each.opts, *each.secondary_opts)
            }
        elif word.startswith("--"):
            assert word.partition("=")[0] in known | {"--help"}, (
                f"{' '.join(words)}: no option {word}"
            )
    assert (
        not hasattr(command, "commands")
        or words[0].startswith("--")
        or words[-1] == "--help"
    ), words


def check_data(block: Block) -> None:
    """Fail if a block of TOML or JSON does not parse."""
    if block.language == "toml":
        tomllib.loads(block.text)
    if block.language == "json":
        json.loads(block.text)
