"""The laws by their words, and whether a policy obeys them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from invariant_bandits.policies.registry import Contender, build_policy, find_policy
from invariant_bandits.testing.playing import Make, example_past

Law: TypeAlias = Callable[[Make], None]
LAWS: dict[str, Law] = {}
"""Law in words -> check of a function that makes fresh policies."""


def check_policy(policy: Any, laws: Mapping[str, Law] | None = None) -> None:
    """Raise AssertionError, which names the law, unless the policy obeys every law that it is not exempt from.

    policy: a registered name, a class with `from_past`, or a maker: Past -> policy, or nothing -> policy.
    """
    maker = Contender(find_policy(policy).name) if isinstance(policy, str) else policy

    def make() -> Any:
        return build_policy(maker, example_past())

    for words, law in (LAWS if laws is None else laws).items():
        if words in exemptions(make()):
            continue
        try:
            law(make)
        except Exception as error:
            raise AssertionError(f"the law is broken: {words}: {error!r}") from error


def exemptions(policy: Any) -> Mapping[str, str]:
    """Law -> why it cannot hold for this policy."""
    return getattr(policy, "exempt_laws", {})


def law(words: str) -> Callable[[Law], Law]:
    """Add a law under its words."""

    def added(check: Law) -> Law:
        LAWS[words] = check
        return check

    return added
