"""The seed of a store, kept with a checksum of its own: all random draws depend on it."""

from __future__ import annotations

import hashlib

from invariant_bandits.service.store.chain import StoreError


def marked(seed: int) -> str:
    """A seed with its checksum, as it is kept."""
    return f"{seed} {hashlib.sha256(str(seed).encode()).hexdigest()[:16]}"


def unmarked(kept: str, name: str) -> int:
    """The seed, if its checksum fits; `name` of the store is for messages.

    >>> unmarked(marked(7), "the store")
    7
    """
    number = kept.partition(" ")[0]
    if not number.isdigit() or marked(int(number)) != kept:
        raise StoreError(f"{name} is damaged: its seed does not match its checksum")
    return int(number)
