"""The command `invariant-bandits`: one module per group of commands, arguments and printing only.

Whatever a command computes lives in the library; this room may know all others and none may know it.

Ctrl-C is not left to typer, which turns KeyboardInterrupt into exit code 130: the process then lives as long
as a library swallows the exception, as the compiler of numba and half an import do, or as a thread of a pool
runs on. Measured, one of twelve interrupts during imports was lost, and an interrupted `compile` still ran
after 90 seconds. A thread that the system wakes therefore ends the process if the exception does not.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

NAME = "invariant-bandits"
INTERRUPTED = 130
PATIENCE = 0.5
"""Seconds that the command has to clear up after Ctrl-C before it is ended all the same."""
_on_interrupt = ["interrupted"]
"""What the line says after Ctrl-C."""


def main() -> None:
    """Run the command; errors of input become one line and exit code 2, Ctrl-C one line and exit code 130."""
    interrupted = threading.Event()
    with ending_on_interrupt(interrupted):  # before anything that takes time to import
        try:
            from invariant_bandits.cli.app import app

            app(prog_name=NAME)
        except BaseException as error:
            # What fails after Ctrl-C, such as half an import, is not an error to report.
            if interrupted.is_set():
                os._exit(INTERRUPTED)  # without waiting for threads that still read
            line = _line_of(error)
            if line is None:
                raise
            in_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
            print(f"\x1b[1;31m{line}\x1b[0m" if in_colour else line, file=sys.stderr)
            sys.exit(2)


def _line_of(error: BaseException) -> str | None:
    """What to print about an error of input, of the system or of a missing package; None about others."""
    from invariant_bandits.checks import InputError, escape_control_chars
    from invariant_bandits.optional import install_line

    if isinstance(error, BrokenPipeError):  # no process reads on: say nothing more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    words = str(error)
    if isinstance(error, OSError):
        words = ": ".join(
            filter(None, (str(error.filename or ""), error.strerror or words))
        )
    elif isinstance(error, MemoryError):
        words = f"not enough memory: {words}".removesuffix(": ")
    elif isinstance(error, ModuleNotFoundError):
        install = install_line(str(error.name))
        words = f"the package {error.name!r} is needed for this and is not installed: {install}"
    elif not isinstance(error, InputError | ImportError):
        return None
    return f"error: {escape_control_chars(words)}"


def say_how_to_go_on(words: str) -> None:
    """What the line says behind "interrupted" from now on."""
    _on_interrupt[1:] = [words]


@contextmanager
def ending_on_interrupt(interrupted: threading.Event) -> Iterator[None]:
    """Print a line at Ctrl-C, raise KeyboardInterrupt, and end the process after PATIENCE.

    Python handles signals between two of its own steps only. The system tells a thread of the signal at once,
    so that the process ends although its main thread is inside a library.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] == signal.SIGINT:
                cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
                with suppress(OSError):
                    os.write(2, f"{cursor}\n{'; '.join(_on_interrupt)}\n".encode())
                interrupted.set()
                time.sleep(PATIENCE)
                os._exit(INTERRUPTED)

    def end(number: int, frame: Any) -> None:
        interrupted.wait(PATIENCE)  # until the line is printed
        # Raised where nothing can be, the exception would be shown at length.
        sys.unraisablehook = lambda _: None
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    wakened = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakened)
        signal.signal(signal.SIGINT, before)
        os.close(writer)  # the thread reads the end
