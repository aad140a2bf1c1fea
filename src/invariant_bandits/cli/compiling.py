"""One line on standard error when inner loops have to be compiled: the first use after installation is not silent."""

from __future__ import annotations

import mmap
import sys
from functools import cache
from typing import Any

WORDS = "compiling the inner loops, once after installation; this takes up to a minute"


@cache
def say_when_compiling() -> None:
    """From now on the first compilation of this process and of the workers that it forks is announced, once."""
    from numba.core import event

    events: Any = event
    said = mmap.mmap(-1, 1)  # shared with forked workers

    class Announcement(events.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            if said[0] == 0:
                said[0] = 1
                print(WORDS, file=sys.stderr, flush=True)

        def on_end(self, event: Any) -> None:
            pass

    events.register("numba:compile", Announcement())
