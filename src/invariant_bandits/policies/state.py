"""Saving and loading policies: one checked file, no pickle, bit-identical continuation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any

from invariant_bandits import storage
from invariant_bandits.checks import InputError
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.registry import find_policy, name_of
from invariant_bandits.storage import ANYTHING, StateSchema, lock_of

KIND = "policy"
PACKAGE = __name__.partition(".")[0]
LONGEST_NAME = 200


def save(policy: Policy, path: str | PathLike[str]) -> None:
    """Write the whole state of a policy to a file, replacing it atomically; `ib.load` reads it.

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
    """The content of a file that holds the whole state of `policy`; InputError if its state is broken."""
    settings, arrays = to_state(policy)
    return storage.encode(KIND, arrays, settings)


def to_state(policy: Policy) -> tuple[dict[str, Any], dict[str, Any]]:
    """The registered name and the settings of a policy, and its arrays, validated."""
    name = name_of(policy)
    with lock_of(policy):
        settings, arrays = policy.settings(), policy.arrays()
    try:
        schema_of(type(policy), settings, arrays).check(arrays)
    except Exception as error:
        broken = f"policy: this {type(policy).__name__} cannot be stored, its state is broken"
        raise InputError(f"{broken}: {' '.join(str(error).split())}") from error
    return {"policy": name, "settings": settings}, arrays


def schema_of(kind: Any, settings: Any, names: Collection[str]) -> StateSchema:
    """What the arrays `names` of a policy with these settings must be; InputError if the settings cannot be.

    A class of another package that does not define `state_schema` itself may keep any finite numbers.
    """
    if not isinstance(settings, Mapping):
        raise InputError(f"settings must be a dictionary, got {type(settings).__name__}")
    if not kind.__module__.startswith(f"{PACKAGE}.") and "state_schema" not in vars(kind):
        return ANYTHING
    schema: StateSchema = kind.state_schema(settings, names)
    schema.check_settings(settings)
    return schema


def stored_kind(name: Any) -> Any:
    """The class of policies that a file names."""
    if not isinstance(name, str) or "," in name or len(name) > LONGEST_NAME:
        raise InputError(f"policy must be a registered name, got {name!r:.80}")
    return find_policy(name).kind


def state_schema(settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
    """What a file with these settings must hold."""
    try:
        kind = stored_kind(settings.get("policy"))
    except InputError as error:
        raise InputError(f"its policy is not known here: {error}") from None
    return schema_of(kind, settings.get("settings"), names)


def from_state(settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Policy:
    """The policy that `to_state` took apart."""
    policy: Policy = stored_kind(settings["policy"]).from_state(settings["settings"], arrays)
    return policy


def from_bytes(content: bytes | bytearray, name: str) -> Policy:
    """The policy in the content of a file; its next decisions are bit for bit those of the saved one.

    Raises FileError if the content is truncated, altered, foreign or newer. `name` is for messages.
    """
    arrays, settings = storage.decode(content, KIND, name, state_schema)
    try:
        return from_state(settings, arrays)
    except Exception as error:
        raise storage.not_whole(name, str(settings["policy"]), error) from None
