"""The command `invariant-bandits`: one module per group of commands, arguments and printing only.

Whatever a command computes lives in the library; this room may know all others and none may know it.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from invariant_bandits.cli.interrupts import INTERRUPTED, Interrupted, ending_on_interrupt, was_interrupted

NAME = "invariant-bandits"


def main() -> None:
    """Run the command; errors of input become one line and exit code 2, Ctrl-C one line and exit code 130."""
    try:
        with ending_on_interrupt():  # before anything that takes time to import
            _run()
    except Interrupted:
        os._exit(INTERRUPTED)  # without waiting for threads that still read
    except BaseException:
        if was_interrupted():
            os._exit(INTERRUPTED)
        raise


def _run() -> None:
    from invariant_bandits.checks import InputError
    from invariant_bandits.optional import install_line

    try:
        from invariant_bandits.cli.app import app

        app(prog_name=NAME)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # nobody reads on: nothing more is said
        sys.exit(1)
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        _fail(": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error)))))
    except MemoryError as error:
        _fail(f"not enough memory: {error}" if str(error) else "not enough memory")
    except ModuleNotFoundError as error:
        _fail(
            f"the package {error.name!r} is needed for this and is not installed:"
            f" {install_line(str(error.name))}"
        )
    except ImportError as error:
        _fail(str(error))


def _fail(words: str) -> NoReturn:
    from invariant_bandits.checks import escape_control_chars

    if was_interrupted():
        os._exit(INTERRUPTED)
    words = escape_control_chars(words)
    try:
        from rich.console import Console

        Console(stderr=True).print(
            f"error: {words}", style="bold red", highlight=False, markup=False, soft_wrap=True
        )
    except ModuleNotFoundError:
        print(f"error: {words}", file=sys.stderr)
    sys.exit(2)
