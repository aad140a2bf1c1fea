"""Policies by name: registered where they are defined, built from a past.

@ib.register_policy("linucb-decaying")
class DecayingLinUCB(ib.LinUCB): ...

makes a policy known to `simulate`, `compare`, `fit --policy`, TOML grids, state files and the laws.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.policies.choice import SelectingPolicy, as_policy
from invariant_bandits.policies.past import Past
from invariant_bandits.registry import Registry

Kind = TypeVar("Kind", bound=type)
NONE = "none"
"""How names of policies spell None."""
TABLES = ("options", "starting")
"""Attributes of a class of policies that list its options."""
NOT_MADE = (TypeError, ValueError, OverflowError, AttributeError, MemoryError)
"""What constructors raise if options do not fit them."""


@dataclass(frozen=True)
class PolicySpec:
    """Name and options of a policy: plain data that results store, and from which `build` makes policies.

    Attributes
    ----------
    name : str
        A registered name, or any text that `find_policy` reads. Without a registration, any label.
    options : mapping
        Values of options. The others have their defaults.
    kind : class or function, optional
        What makes the policy; by default the class that is registered under the name.
    wraps : str, optional
        Name of the policy that a wrapper wraps unless its options name another one.

    >>> PolicySpec("linucb", {"exploration": 0.3}).label
    'linucb,exploration=0.3'
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: Any = field(default=None, repr=False)
    wraps: str | None = field(default=None, repr=False)

    def registered(self) -> PolicySpec:
        """Return the same policy with its class. Options of its name precede the other ones."""
        if self.kind is not None:
            return self
        entry = find_policy(self.name)
        return replace(entry, options={**self.options, **entry.options})

    def layers(self) -> Iterator[Any]:
        """Yield its class, and those of the policies that it wraps."""
        spec = self.registered()
        yield spec.kind
        if spec.wraps is not None:
            yield from PolicySpec(spec.options.get("policy", spec.wraps)).layers()

    @property
    def keeps_baseline(self) -> bool:
        """Whether the policy has an intercept of its own; the others learn rewards less a baseline."""
        return bool(getattr([*self.layers()][-1], "keeps_baseline", False))

    @property
    def needs(self) -> tuple[str, ...]:
        """What the constructor takes from the attributes of a Past, unless there is a `from_past`."""
        return tuple(getattr(self.registered().kind, "needs", ()))

    def table(self) -> set[str]:
        """Return the names of the options that can be given, those that the name sets excepted."""
        entry = find_policy(self.name)
        names = {name for word in TABLES for name in getattr(entry.kind, word, ())}
        if entry.wraps is not None:
            names |= PolicySpec(entry.wraps).table()
        return names - set(entry.options)

    def takes(self, option: str) -> bool:
        """Whether the option can be given."""
        return option in self.table()

    def check(self) -> PolicySpec:
        """Return the spec if all options can be given, or raise InputError."""
        table = self.table()
        for name in self.options:
            if name not in table:
                known = ", ".join(sorted(table)) or "none"
                raise InputError(
                    f"policy {self.name!r} has no option {name!r}; it has {known}"
                )
        return self

    @property
    def label(self) -> str:
        """Name and options in one text, as `find_policy` reads it."""
        words = (
            f"{name}={_option_word(value)}" for name, value in self.options.items()
        )
        return ",".join((self.name, *words))

    def build(self, past: Past) -> Any:
        """Return a fresh policy that knows the past."""
        spec = self.registered()
        try:
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                return as_policy(spec._made(past))
        except InputError:
            raise
        except NOT_MADE as error:
            given = [f"{name}={value!r:.80}" for name, value in self.options.items()]
            words = ", ".join(given) or "no options"
            raise InputError(
                f"policy {self.name!r} cannot be made with {words}: {error}"
            ) from error

    def _made(self, past: Past) -> Any:
        """Return what the class makes of the past, or what the function does."""
        if not inspect.isclass(self.kind):
            takes_past = bool(inspect.signature(self.kind).parameters)
            return self.kind(past) if takes_past else self.kind()
        if hasattr(self.kind, "from_past"):
            return self.kind.from_past(past, **self.options)
        known = {name: getattr(past, name) for name in self.needs}
        return self.kind(**{**known, **self.options})


POLICIES: Registry[PolicySpec] = Registry("policy", "invariant_bandits.policies")


def register_policy(
    name: str, *, wraps: str | None = None, **options: Any
) -> Callable[[Kind], Kind]:
    """Register a class of policies under a name, by which commands and results refer to the class.

    The class derives from one of the library's policies, or has the methods `select(features)` and
    `update(features, reward)`. Its attribute `options` lists the options that grids and names of policies can
    set, its attribute `needs` the parameters of the constructor that are attributes of the Past, such as
    `dim` or `horizon`. A class method `from_past(past, **options)` can take the place of the constructor.

    Parameters
    ----------
    name : str
        Lower-case words joined by hyphens, such as "linucb-decaying".
    wraps : str, optional
        Name of the policy that a wrapper class such as Randomised wraps by default. For example, the name
        "randomised-linucb" means the wrapper "randomised" around "linucb".
    options :
        Fixed values for options, so that one class can have several names.

    >>> import invariant_bandits as ib
    >>> from invariant_bandits.policies.registry import POLICIES
    >>> @ib.register_policy("linucb-bold", exploration=2.0)
    ... class BoldLinUCB(ib.LinUCB):
    ...     pass
    >>> world = ib.simulation.PaperEpisodes(logged=500)
    >>> result = ib.simulate(["linucb-bold", "linucb"], world, 20, replications=2, seed=0)
    >>> sorted(result.regret)
    ['linucb', 'linucb-bold']
    >>> POLICIES.remove("linucb-bold")
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InputError(
            f"name must be lower case words joined by hyphens, like 'my-linucb', got {name!r}"
        )

    def registered(kind: Kind) -> Kind:
        POLICIES.add(PolicySpec(name, options, kind, wraps))
        return kind

    return registered


def find_policy(name: str) -> PolicySpec:
    """Return the registered policy of this name.

    The name of its class is understood as well, and the name of a wrapper before that of a policy.
    Options may follow: "randomised-linucb,floor=0.1,exploration=0.3" is a name for that policy with these
    options.
    """
    name, comma, words = str(name).partition(",")
    if comma:
        entry = find_policy(name.strip())
        given = PolicySpec(entry.name, _parse_options(words)).check()
        return replace(
            entry, name=given.label, options={**entry.options, **given.options}
        )
    if name not in POLICIES and name.lower() not in POLICIES:
        for entry in POLICIES:
            if entry.kind.__name__ == name:
                return entry
        for entry in sorted(POLICIES, key=lambda entry: -len(entry.name)):
            if entry.wraps is not None and name.lower().startswith(f"{entry.name}-"):
                inner = find_policy(name[len(entry.name) + 1 :])
                return replace(
                    entry,
                    name=f"{entry.name}-{inner.name}",
                    options={**entry.options, "policy": inner.name},
                    wraps=inner.name,
                )
    return POLICIES.find(name)


def _option_word(value: Any) -> str:
    """Return a value of an option as `_parse_options` reads it."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value)


def _parse_options(text: str) -> dict[str, Any]:
    """Return options from "floor=0.1,kind=uniform": numbers, true, false and none, or else words."""
    options: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not (key.isidentifier() and equals and value):
            raise InputError(
                f"options of a policy must be like 'linucb,exploration=0.3', got {part!r}"
            )
        try:
            options[key] = None if value.lower() == NONE else json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def name_of(policy: Any) -> str:
    """The name under which the class of a policy is registered, the one without options first."""
    kind = type(policy.policy if isinstance(policy, SelectingPolicy) else policy)
    entries = [entry for entry in POLICIES if entry.kind is kind]
    if not entries:
        raise InputError(f"policy must be of a registered class, got {kind.__name__}")
    return min(entries, key=lambda entry: len(entry.options)).name


def policy_specs(policies: Any) -> dict[str, PolicySpec]:
    """Return specs by name.

    Parameters
    ----------
    policies : mapping or sequence
        Names with their specs, classes, functions or registered names; or a list of registered names, which
        keep their spelling, of specs or of classes. A function takes a Past, or nothing, and returns a fresh
        policy.
    """
    if isinstance(policies, str) or not isinstance(policies, Mapping | Sequence):
        raise InputError(
            f"policies must map names to makers, or list names, got {type(policies).__name__}"
        )
    if not policies:
        raise InputError("policies is empty: at least one name and maker are needed")
    if not isinstance(policies, Mapping):
        policies = {_label(policy): policy for policy in policies}
    return {
        str(label): policy_spec(str(label), policy)
        for label, policy in policies.items()
    }


def _label(policy: Any) -> str:
    """Return what results call a policy of a list: its name, or that of its class."""
    if isinstance(policy, str):
        return policy
    label = getattr(policy, "label", None) or getattr(policy, "__name__", None)
    if label is None:
        needed = "names, specs or classes: give other makers names, as a mapping"
        raise InputError(f"policies must list {needed}, got {policy!r:.80}")
    return str(label)


def policy_spec(label: str, policy: Any) -> PolicySpec:
    """Return the spec of a policy that is given as a spec, a registered name, a class or a function."""
    if isinstance(policy, PolicySpec):
        return policy
    if isinstance(policy, str):
        return PolicySpec(find_policy(policy).name)
    if callable(policy):
        return PolicySpec(label, kind=policy)
    needed = f"must be callable, past -> policy, or a registered name, got {type(policy).__name__}"
    raise InputError(f"policies[{label!r}] {needed}: every run needs a fresh policy")
