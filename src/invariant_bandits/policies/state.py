"""Saving and loading policies: one checked file, no pickle, bit-identical continuation."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from invariant_bandits import files
from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.registry import find_policy, name_of

KIND = "policy"


def save(policy: Policy, path: str | PathLike[str]) -> None:
    """Write the whole state of `policy` to `path`, replacing it in one step."""
    files.replace_file(path, to_bytes(policy))


def to_bytes(policy: Policy) -> bytes:
    """The content of a file that holds the whole state of `policy`."""
    name = name_of(policy)
    return files.encode(KIND, policy.arrays(), {"policy": name, "settings": policy.settings()})


def load(path: str | PathLike[str]) -> Policy:
    """Read a policy written by `save`: its next decisions are bit for bit those of the saved one.

    A truncated, altered, foreign or newer file raises FileError.
    """
    return from_bytes(Path(path).read_bytes(), str(path))


def from_bytes(content: bytes, name: str) -> Policy:
    """The policy in the content of a file; `name` is for messages."""
    arrays, about = files.decode(content, KIND, name)
    try:
        kind = find_policy(str(about.get("policy"))).kind
    except InputError as error:
        raise FileError(f"{name} holds a policy that is not known here: {error}") from None
    try:
        result: Policy = kind.rebuilt(about["settings"], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{name} does not hold a whole {kind.__name__}: {error}") from None
    return result
