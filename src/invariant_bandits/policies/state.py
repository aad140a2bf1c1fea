"""Saving and loading policies: one checked file, no pickle, bit-identical continuation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any

from invariant_bandits import storage
from invariant_bandits.checks import InputError
from invariant_bandits.locking import lock_of
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.registry import find_policy, name_of
from invariant_bandits.storage import ANYTHING, FileError, StateSchema

KIND = "policy"
PACKAGE = __name__.partition(".")[0]
LONGEST_NAME = 200
STORING = ("arrays", "from_state", "state_schema")


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
    storage.replace_file(path, to_bytes(policy))


def to_bytes(policy: Policy) -> bytes:
    """The content of a file that holds the whole state of `policy`; InputError if it is no state to go on from."""
    name = name_of(policy)
    with lock_of(policy):
        settings, arrays = policy.settings(), policy.arrays()
        try:
            schema_of(type(policy), settings, arrays).check(arrays)
            type(policy).from_state(settings, arrays)
        except Exception as error:
            broken = f"policy: this {type(policy).__name__} cannot be stored, its state is broken"
            raise InputError(f"{broken}: {' '.join(str(error).split())}") from error
        return storage.encode(KIND, arrays, {"policy": name, "settings": settings})


def schema_of(kind: Any, settings: Any, names: Collection[str]) -> StateSchema:
    """What the arrays `names` of a policy with these settings must be; InputError if the settings cannot be.

    What a class of somebody else's keeps beyond what it inherits may be any finite numbers; and all that a class keeps
    that stores itself in a way of its own, without describing it.
    """
    if not isinstance(settings, Mapping):
        raise InputError(f"settings must be a dictionary, got {type(settings).__name__}")
    told = getattr(kind, "state_schema", None)
    found: StateSchema = ANYTHING if told is None or _stores_otherwise(kind) else told(settings, names)
    found.check_settings(settings)
    return found if kind.__module__.startswith(f"{PACKAGE}.") else found.with_others()


def _stores_otherwise(kind: Any) -> bool:
    """Whether a class has arrays and a way back from them that are newer than the description it inherits."""
    depth = {name: next((n for n, one in enumerate(kind.__mro__) if name in vars(one)), -1) for name in STORING}
    return max(depth["arrays"], depth["from_state"]) < depth["state_schema"]


def stored_kind(name: Any) -> Any:
    """The class of policies that a file names."""
    if not isinstance(name, str) or "," in name or len(name) > LONGEST_NAME:
        raise InputError(f"policy must be a registered name, got {name!r:.80}")
    return find_policy(name).kind


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
    invariant_bandits.storage.FileError: ...
    """
    return from_bytes(storage.contents(path), str(path))


def from_bytes(content: bytes | bytearray, name: str) -> Policy:
    """The policy in the content of a file; `name` is for messages."""
    kind: Any = None

    def state_schema(about: Mapping[str, Any], names: Collection[str]) -> StateSchema:
        nonlocal kind
        try:
            kind = stored_kind(about.get("policy"))
        except InputError as error:
            raise FileError(f"{name} holds a policy that is not known here: {error}") from None
        return schema_of(kind, about.get("settings"), names)

    arrays, about = storage.decode(content, KIND, name, state_schema)
    try:
        result: Policy = kind.from_state(about["settings"], arrays)
    except Exception as error:
        raise FileError(f"{name} does not hold a whole {kind.__name__}: {' '.join(str(error).split())}") from None
    return result
