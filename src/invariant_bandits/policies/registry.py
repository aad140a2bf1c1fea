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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, get_args

from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.policies.past import Past
from invariant_bandits.registry import Registry

Kind = TypeVar("Kind", bound=type)
Maker: TypeAlias = Callable[..., Any]
"""Past -> fresh policy, or nothing -> fresh policy."""
NONE = "none"
"""How names of policies spell None."""


@dataclass(frozen=True, eq=False)
class RegisteredPolicy:
    """A class of policies under a name, with the options of `from_past` that the name stands for.

    One that wraps other policies says which one if none is named; its name before that of another wraps that
    one.
    """

    name: str
    kind: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    wraps: str | None = None

    def around(self, inner: RegisteredPolicy) -> RegisteredPolicy:
        """The same wrapper around another policy."""
        return replace(
            self,
            name=f"{self.name}-{inner.name}",
            options={**self.options, "policy": inner.name},
            wraps=inner.name,
        )

    def with_options(self, options: Mapping[str, Any]) -> RegisteredPolicy:
        """The same policy with these options, as part of its name."""
        self.check(options)
        words = ",".join(
            f"{name}={_option_word(value)}" for name, value in options.items()
        )
        return replace(
            self, name=f"{self.name},{words}", options={**self.options, **options}
        )

    def kinds(self, options: Mapping[str, Any]) -> tuple[Any, ...]:
        """Its class, and those of the policies that it wraps if it is given these options."""
        if self.wraps is None:
            return (self.kind,)
        return (
            self.kind,
            *find_policy({**options, **self.options}.get("policy", self.wraps)).kinds(
                {}
            ),
        )

    @property
    def keeps_baseline(self) -> bool:
        """Whether the policy has an intercept of its own; the others learn rewards less a baseline."""
        return bool(getattr(self.kinds({})[-1], "keeps_baseline", False))

    def build(self, past: Past, **options: Any) -> Any:
        """Return a fresh policy that knows the past; options of the name precede those of the caller."""
        try:
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                return start(self.kind, past, **{**options, **self.options})
        except InputError:
            raise
        except (
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
            MemoryError,
        ) as error:
            words = (
                ", ".join(f"{name}={value!r:.80}" for name, value in options.items())
                or "no options"
            )
            raise InputError(
                f"policy {self.name!r} cannot be made with {words}: {error}"
            ) from error

    def takes(self, option: str) -> bool:
        """Whether the option can be given: `from_past` or the constructor has it, the name leaves it open."""
        return option in self.open_options()

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless all options can be given."""
        unknown = sorted(name for name in options if not self.takes(name))
        if unknown:
            known = ", ".join(sorted(self.open_options())) or "none"
            raise InputError(
                f"policy {self.name!r} has no option {unknown[0]!r}; it has {known}"
            )

    def open_options(self) -> set[str]:
        """Return the names of the options that can be given.

        They are the keywords of `from_past` and, if it hands others on, those of the constructors behind it.
        """
        names: set[str] = (
            set() if self.wraps is None else find_policy(self.wraps).open_options()
        )
        starts = [self.kind.from_past] if hasattr(self.kind, "from_past") else []
        behind = [
            base.__init__ for base in self.kind.__mro__ if "__init__" in vars(base)
        ]
        for function in (*starts, *behind):
            parameters = inspect.signature(function, eval_str=True).parameters.values()
            if not starts:
                names |= {each.name for each in parameters if each.kind in OPTIONS} - {
                    "self",
                    "dim",
                }
            optional = [each for each in parameters if each.default is not each.empty]
            names |= {
                each.name
                for each in parameters
                if each.kind is each.KEYWORD_ONLY or each in optional
            }
            others = [
                option for option in parameters if option.kind is option.VAR_KEYWORD
            ]
            listed = [
                kind for option in others for kind in get_args(option.annotation)
            ]  # Unpack[Common]
            names |= {name for kind in listed for name in kind.__annotations__}
            if not others or listed:
                break
        return names - set(self.options)


POLICIES: Registry[RegisteredPolicy] = Registry("policy", "invariant_bandits.policies")


def register_policy(
    name: str, *, wraps: str | None = None, **options: Any
) -> Callable[[Kind], Kind]:
    """Register a class of policies under a name, by which commands and results refer to the class.

    The class needs the methods `select(features)` and `update(features, reward)`, which `ib.Policy`
    describes. If the class has no method `from_past`, the library calls its constructor and takes parameters
    without a default, such as `dim` or `horizon`, from the Past object. All constructor parameters except
    `dim` can be set as options in experiment grids and in policy names.

    Parameters
    ----------
    name : str
        Lower-case words joined by hyphens, such as "linucb-decaying".
    wraps : str, optional
        Name of the policy that a wrapper class such as Randomised wraps by default. For example, the name
        "randomised-linucb" means the wrapper "randomised" around "linucb".
    options :
        Fixed values for options of `from_past`, so that one class can have several names.

    >>> import invariant_bandits as ib
    >>> from invariant_bandits.policies.registry import POLICIES
    >>> @ib.register_policy("linucb-bold")
    ... class BoldLinUCB(ib.LinUCB):
    ...     @classmethod
    ...     def from_past(cls, past, **options):
    ...         return cls(past.dim, exploration=2.0, **options)
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
        POLICIES.add(RegisteredPolicy(name, kind, options, wraps))
        return kind

    return registered


def find_policy(name: str) -> RegisteredPolicy:
    """Return the registered policy of this name.

    The name of its class is understood as well, and the name of a wrapper before that of a policy.
    Options may follow: "randomised-linucb,floor=0.1,exploration=0.3" is a name for that policy with these
    options.
    """
    name, comma, options = str(name).partition(",")
    if comma:
        return find_policy(name.strip()).with_options(_parse_options(options))
    if name not in POLICIES and str(name).lower() not in POLICIES:
        for entry in POLICIES:
            if entry.kind.__name__ == name:
                return entry
        for entry in sorted(POLICIES, key=lambda entry: -len(entry.name)):
            if entry.wraps is not None and str(name).lower().startswith(
                f"{entry.name}-"
            ):
                return entry.around(find_policy(name[len(entry.name) + 1 :]))
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
    names = [entry for entry in POLICIES if entry.kind is type(policy)]
    if not names:
        raise InputError(
            f"policy must be of a registered class, got {type(policy).__name__}"
        )
    return min(names, key=lambda entry: len(entry.options)).name


@dataclass(frozen=True)
class Contender:
    """Name and options of a registered policy, as plain data that can be stored with results.

    >>> Contender("linucb", {"exploration": 0.3})
    Contender(kind='linucb', options={'exploration': 0.3})
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, past: Past) -> Any:
        """A fresh policy that knows the past."""
        return find_policy(self.kind).build(past, **self.options)

    @property
    def label(self) -> str:
        """Name and options in one word, as `find_policy` reads it."""
        return (
            find_policy(self.kind).with_options(self.options).name
            if self.options
            else self.kind
        )


OPTIONS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def start(kind: Any, past: Any, /, **options: Any) -> Any:
    """A fresh policy of a class that knows the past.

    A class without `from_past` is given what its constructor needs, and the past knows, by name.
    """
    if hasattr(kind, "from_past"):
        return kind.from_past(past, **options)
    for name, parameter in inspect.signature(kind).parameters.items():
        needed = parameter.kind in OPTIONS and parameter.default is parameter.empty
        if needed and name not in options and (name == "past" or hasattr(past, name)):
            options[name] = past if name == "past" else getattr(past, name)
    return kind(**options)


def build_policy(maker: Any, past: Any) -> Any:
    """A fresh policy from a maker, called with the past, or with nothing if it takes nothing.

    InputError if what it returns cannot select and update.
    """
    make: Maker = partial(start, maker) if inspect.isclass(maker) else maker
    takes_nothing = not inspect.signature(make).parameters
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        made = make() if takes_nothing else make(past)
    if not all(
        callable(getattr(made, method, None)) for method in ("select", "update")
    ):
        raise InputError(
            f"its maker must return a policy with select, update, got {type(made).__name__}"
        )
    return made


def _label(policy: Any) -> str:
    """Return what results call a policy of a list: its name, that of its class, or of a contender."""
    if isinstance(policy, str):
        return policy
    label = getattr(policy, "label", None) or getattr(policy, "__name__", None)
    if label is None:
        needed = "names, contenders or classes: give other makers names, as a mapping"
        raise InputError(f"policies must list {needed}, got {policy!r:.80}")
    return str(label)


def checked_makers(policies: Any) -> dict[str, Maker]:
    """Return makers by name.

    Parameters
    ----------
    policies : mapping or sequence
        Names with their makers, classes or registered names; or a list of registered names, which keep their
        spelling, of contenders or of classes.
    """
    if isinstance(policies, str) or not isinstance(policies, Mapping | Sequence):
        raise InputError(
            f"policies must map names to makers, or list names, got {type(policies).__name__}"
        )
    if not policies:
        raise InputError("policies is empty: at least one name and maker are needed")
    if not isinstance(policies, Mapping):
        policies = {_label(policy): policy for policy in policies}
    makers: dict[str, Maker] = {}
    for label, maker in policies.items():
        makers[str(label)] = (
            Contender(find_policy(maker).name) if isinstance(maker, str) else maker
        )
        if not callable(makers[str(label)]):
            needed = f"must be callable, past -> policy, or a registered name, got {type(maker).__name__}"
            raise InputError(
                f"policies[{label!r}] {needed}: every run needs a fresh policy"
            )
    return makers
