"""JSON as it comes -> named numbers: nested names joined by dots, texts as indicators, context crossed with actions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from invariant_bandits.checks import InputError

DEEPEST = 16
MOST_NUMBERS = 2_000
"""So many named numbers may one action have, crossings included."""
CONSTANT = "1"


def named_numbers(given: Any, what: str) -> dict[str, float]:
    """Numbers by dotted name of nested JSON; a text, true or false counts as an indicator name=value, null as nothing.

    Lists are read as if their parts stood side by side: numbers get their place as a name. Numbers beyond ±1 are
    compressed, sign(x)·(1 + log|x|), so that no unit drowns the others.

    >>> named_numbers([{"user": {"age": 1.0, "city": "Bern"}}, {"tags": ["new", "dry"]}], "context")
    {'user.age': 1.0, 'user.city=Bern': 1.0, 'tags=new': 1.0, 'tags=dry': 1.0}
    """
    found: dict[str, float] = {}
    for name, value in _leaves(given, "", what, 0):
        found[name] = found.get(name, 0.0) + value
    if len(found) > MOST_NUMBERS:
        raise InputError(f"{what}: at most {MOST_NUMBERS} features can be taken, got {len(found)}")
    return found


def _leaves(given: Any, name: str, what: str, depth: int) -> Iterator[tuple[str, float]]:
    if depth > DEEPEST:
        raise InputError(f"{what}: nested deeper than {DEEPEST} levels at {name!r}")
    if given is None:
        return
    if isinstance(given, Mapping):
        for key, value in given.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key), what, depth + 1)
    elif isinstance(given, bool | str):
        text = given if isinstance(given, str) else str(given).lower()
        yield f"{name}={text}", 1.0
    elif isinstance(given, int | float):
        yield name or CONSTANT, _compressed(given, name, what)
    elif isinstance(given, Sequence):
        for place, value in enumerate(given):
            numbered = isinstance(value, int | float) and not isinstance(value, bool)
            yield from _leaves(value, f"{name}[{place}]" if numbered else name, what, depth + 1)
    else:
        raise InputError(f"{what}: {name!r} must be JSON, got {type(given).__name__}")


def _compressed(value: float, name: str, what: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{what}: {name!r} must be a finite number, got {value!r}")
    return number if abs(number) <= 1.0 else math.copysign(1.0 + math.log(abs(number)), number)


def action_numbers(context: Mapping[str, float], label: str | None, own: Mapping[str, float]) -> dict[str, float]:
    """Named numbers of one action: a constant, what it is, and that crossed with the context.

    An action with features is what these say; one without is its label.

    >>> action_numbers({"hour": 0.5}, "a", {})
    {'1': 1.0, 'a:a': 1.0, 'a:a|hour': 0.5}
    """
    base = {f"f:{name}": value for name, value in own.items()} if own else {f"a:{label}": 1.0}
    numbers = {CONSTANT: 1.0, **base}
    if len(base) * (1 + len(context)) > MOST_NUMBERS:
        raise InputError(
            f"context: {len(context)} features crossed with {len(base)} of an action are more than {MOST_NUMBERS}"
        )
    for name, value in base.items():
        for other, factor in context.items():
            numbers[f"{name}|{other}"] = value * factor
    return numbers
