"""Ctrl-C: one line, exit code 130, within a second, and no half-written file."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
PATIENCE = 0.7
"""Seconds that the command has to clear up before it is ended all the same."""


class Interrupted(BaseException):
    """Ctrl-C was pressed; no KeyboardInterrupt, which parsers of options take for their own."""


@contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """Ctrl-C raises Interrupted here meanwhile, and ends the process soon after if that is not enough.

    Forked workers, which get the same signal, end at once and say nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = os.getpid()

    def end(number: int, frame: Any) -> None:
        if os.getpid() != own:
            os._exit(INTERRUPTED)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends it at once
        cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        os.write(2, f"{cursor}\ninterrupted\n".encode())
        timer = threading.Timer(PATIENCE, os._exit, (INTERRUPTED,))
        timer.daemon = True
        timer.start()
        raise Interrupted

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
