"""What cluster tests run on the workers: the real function, held back until the test has done its harm."""

import os
import time
from pathlib import Path

from invariant_bandits.logs.aggregation import aggregate_to_bytes

PATIENCE = 60.0


class Held:
    """`aggregate_to_bytes`, but every call first says which process runs it, then waits for the file `go`."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, task, plan):
        folder = Path(self.folder)
        (folder / f"{os.getpid()}.{task.part}").touch()
        wait_for(lambda: (folder / "go").exists())
        return aggregate_to_bytes(task, plan)


def running(folder):
    """The processes that hold a task back, with the parts that they hold."""
    found = {}
    for path in Path(folder).glob("*.*"):
        found.setdefault(int(path.stem), set()).add(int(path.suffix[1:]))
    return found


def wait_for(condition):
    """Wait until the condition holds and return it; TimeoutError after a minute."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not happen")
        time.sleep(0.02)
    return found
