"""Tries the laws of sharing on many policies in a process of its own: a crash of the interpreter is a failed
test.

python sharing_trials.py [--without-locks] WORDS...       # of makers; prints {words: [laws that are broken]}
"""

import json
import sys

import policy_laws
from invariant_bandits import storage
from thread_laws import LAWS

SPECIAL = (
    "ISDLinUCB recomputing, window",
    "ISDLinTS from history",
    "Randomised twice",
    "Randomised DisjointLinUCB",
)
MAKERS = policy_laws.registered_makers() | {
    words: policy_laws.MAKERS[words] for words in SPECIAL
}


class NoLock:
    """What a policy would have if nobody had thought of threads."""

    def acquire(self, *_given, **_named):
        return True

    def release(self):
        pass

    __enter__ = acquire

    def __exit__(self, *_given):
        pass


def broken(words):
    found = []
    for law in LAWS:
        try:
            LAWS[law](MAKERS[words])
        except Exception as error:
            found.append(f"{law}: {error!r}")
    return found


if __name__ == "__main__":
    given = [item for item in sys.argv[1:] if not item.startswith("--")]
    if "--without-locks" in sys.argv:
        storage.RLock = NoLock
    print(json.dumps({words: broken(words) for words in given}))
