"""Saving and loading policies: one checked file, no pickle, bit-identical continuation."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from invariant_bandits import files
from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError
from invariant_bandits.policies.base import Policy

KIND = "policy"
HOMES = {
    "AutoISD": "auto",
    "BOBLinUCB": "bandit_over_bandit",
    "DLinUCB": "linear",
    "DisjointLinUCB": "baselines",
    "EpsilonGreedy": "baselines",
    "Greedy": "baselines",
    "ISDLinTS": "isd",
    "ISDLinUCB": "isd",
    "LinTS": "thompson",
    "LinUCB": "linear",
    "RestartLinUCB": "linear",
    "SWLinUCB": "linear",
    "Uniform": "baselines",
}


def save(policy: Policy, path: str | PathLike[str]) -> None:
    """Write the whole state of `policy` to `path`, replacing it in one step."""
    files.replace_file(path, to_bytes(policy))


def to_bytes(policy: Policy) -> bytes:
    """The content of a file that holds the whole state of `policy`."""
    name = type(policy).__name__
    if name not in HOMES:
        raise InputError(f"policy must be one of {', '.join(HOMES)}, got {name}")
    return files.encode(KIND, policy.arrays(), {"policy": name, "settings": policy.settings()})


def load(path: str | PathLike[str]) -> Policy:
    """Read a policy written by `save`: its next decisions are bit for bit those of the saved one.

    A truncated, altered, foreign or newer file raises FileError.
    """
    return from_bytes(Path(path).read_bytes(), str(path))


def from_bytes(content: bytes, name: str) -> Policy:
    """The policy in the content of a file; `name` is for messages."""
    arrays, about = files.decode(content, KIND, name)
    policy: Any = about.get("policy")
    if policy not in HOMES:
        raise FileError(f"{name} holds a policy {policy!r} that this version does not know")
    try:
        home = import_module(f"invariant_bandits.policies.{HOMES[policy]}")
        result: Policy = getattr(home, policy).rebuilt(about["settings"], arrays)
    except (ImportError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{name} does not hold a whole {policy}: {error}") from None
    return result
