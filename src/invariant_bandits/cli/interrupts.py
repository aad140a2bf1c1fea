"""Ctrl-C: one line, exit code 130, within a second, and no half-written file."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

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
