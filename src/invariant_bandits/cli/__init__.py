"""The command `invariant-bandits`: one module per group of commands, arguments and printing only.

Whatever a command computes lives in the library; this room may know all others and none may know it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

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
    line = f"error: {escape_control_chars(words)}"
    in_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(f"\x1b[1;31m{line}\x1b[0m" if in_colour else line, file=sys.stderr)
    sys.exit(2)


# -- Ctrl-C: one line, exit code 130, within a second, and no half-written file --

INTERRUPTED = 130
PATIENCE = 0.5
"""Seconds that the command has to clear up before it is ended all the same."""
_how_to_go_on: list[str] = []
_said: list[bool] = []


class Interrupted(BaseException):
    """Ctrl-C was pressed; no KeyboardInterrupt, which parsers of options take for their own."""


def say_how_to_go_on(words: str) -> None:
    """What the line says behind "interrupted" from now on."""
    _how_to_go_on[:] = [words]


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed: what fails after it, such as half an import, is no error to speak of."""
    return bool(_said)


@contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """Ctrl-C raises Interrupted here meanwhile, and ends the process soon after if that is not enough.

    Python handles signals between two of its own steps only. The system tells a thread of the signal at once,
    so that the process ends although its main thread is inside a library. Forked workers, which get the same
    signal, end at once and say nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = os.getpid()
    _said.clear()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def say_once() -> None:
        if not _said:
            _said.append(True)
            cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
            with suppress(OSError):
                os.write(2, f"{cursor}\n{'; '.join(['interrupted', *_how_to_go_on])}\n".encode())

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] == signal.SIGINT:
                say_once()
                time.sleep(PATIENCE)
                os._exit(INTERRUPTED)

    def end(number: int, frame: Any) -> None:
        if os.getpid() != own:
            os._exit(INTERRUPTED)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends it at once
        say_once()
        sys.unraisablehook = lambda _: None  # raised where nothing can be, it would be shown at length
        raise Interrupted

    before = signal.signal(signal.SIGINT, end)
    wakened = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakened)
        signal.signal(signal.SIGINT, before)
        os.close(writer)  # the thread reads the end
