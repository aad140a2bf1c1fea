"""The process that fits: told on standard input what to do, it writes the new version to standard output.

It is a process of its own, of low priority and one thread, and only reads the store: the service never waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import msgspec

from invariant_bandits.checks import InputError
from invariant_bandits.service.background.refit import in_words, learn_from_history
from invariant_bandits.service.store.open_store import open_store

LOWEST = 15
"""How nice it is to others."""


def main() -> None:
    """Do what standard input says: {"store": address, "model": name}."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed on the way does not come between
    os.nice(LOWEST)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    asked = msgspec.json.decode(sys.stdin.buffer.read())
    with out:
        out.write(msgspec.msgpack.encode(answered(asked["store"], asked["model"])))


def answered(store: str, model: str) -> dict[str, Any]:
    """A new version as plain values, or why there is none."""
    try:
        opened = open_store(store, writing=False)
        try:
            found = learn_from_history(opened, model)
        finally:
            opened.close()
    except InputError as error:
        return {"error": str(error)}
    learner = found.learner
    return {
        "kind": learner.kind,
        "content": learner.to_bytes(),
        "base": found.base,
        "through": found.through,
        "upto": found.upto,
        "note": f"{found.words}; {in_words(found.evaluation)}",
        "evaluation": found.evaluation,
        "first_fit": found.first_fit,
    }


def _end_with(parent: int) -> None:
    """Nobody waits for the answer of a service that has ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
