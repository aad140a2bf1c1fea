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
    """Write the whole state of a policy to a file, replacing it in one step.

    Parameters
    ----------
    policy : Policy
        Of a registered class.
    path : str or PathLike
        Where the file will be.

    >>> import tempfile, invariant_bandits as ib
    >>> policy = ib.LinUCB(2)
    >>> policy.update([1.0, 0.0], 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ib.save(policy, f"{folder}/policy.bin")
    ...     ib.load(f"{folder}/policy.bin")
    LinUCB(dim=2, memory=Forever(), rounds=1)
    """
    files.replace_file(path, to_bytes(policy))


def to_bytes(policy: Policy) -> bytes:
    """The content of a file that holds the whole state of `policy`."""
    about = {"policy": name_of(policy), "settings": policy.settings()}
    return files.encode(KIND, policy.arrays(), about)


def load(path: str | PathLike[str]) -> Policy:
    """Read a policy written by `save`: its next decisions are bit for bit those of the saved one.

    Parameters
    ----------
    path : str or PathLike
        The file. If it is truncated, altered, foreign or newer, FileError is raised.

    Returns
    -------
    Policy
        Of the class that was saved.

    >>> import pathlib, tempfile, invariant_bandits as ib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "policy.bin")
    ...     ib.save(ib.LinUCB(2), path)
    ...     _ = path.write_bytes(path.read_bytes()[:-1])
    ...     ib.load(path)
    Traceback (most recent call last):
    invariant_bandits.files.FileError: ...
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
