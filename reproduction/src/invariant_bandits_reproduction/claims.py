"""Claims and what became of them: the nouns of the report of `reproduce` and of every study's page.

A Claim is a statement that can be wrong, with its source and a test. The test looks at what was measured and
returns a Verdict, which holds the Measurement that decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array

HOLDS = "holds"
UNDECIDED = "undecided"
FAILS = "fails"
UNTESTED = "not testable"

PAPER = "paper"
"""A claim of the paper about a policy of the paper."""
REBUILT = "rebuilt"
"""Such a claim, tested with our rebuild of the paper's estimator."""
ESTIMATOR = "estimator"
"""Such a claim, tested with our own estimator."""
OURS = "ours"
"""A claim beyond the paper."""
CHECK = "check"
"""A theorem that only a mistake of the code can miss."""

NORMAL_QUANTILE = 1.96
"""Standard normal quantile of a two-sided 95 % interval."""
CLOSE = 2.0
"""Standard errors around a bound within which other repetitions could tip a verdict."""


@dataclass(frozen=True)
class Measurement:
    """A measured value with its 95 % interval or its standard error, NaN where it has none."""

    value: float
    low: float = float("nan")
    high: float = float("nan")
    error: float = float("nan")

    def with_error(self, digits: int = 1, sign: str = "") -> str:
        """Return for instance "1.2 ± 0.3"; sign "+" shows it always."""
        words = f"{self.value:{sign}.{digits}f} ± {self.error:.{digits}f}"
        return words.replace("-", "−")

    def with_interval(self, digits: int = 3) -> str:
        """Return for instance "0.970 (0.950–0.985)"."""
        return f"{self.value:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def mean_of(values: Array) -> Measurement:
    """Return the mean of values (n,) and its standard error; NaN for a single value."""
    if len(values) < 2:
        return Measurement(float(values.mean()))
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return Measurement(float(values.mean()), error=error)


def share_of(hits: int, total: int) -> Measurement:
    """Return a share with its Wilson interval."""
    z = NORMAL_QUANTILE
    share = hits / total
    # Wilson (1927): the shares p with |share − p| ≤ z √(p (1 − p) / total).
    scale = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    variance = share * (1 - share) / total + z * z / (4 * total * total)
    half = z * np.sqrt(variance) / scale
    low = float(max(0.0, centre - half))
    high = float(min(1.0, centre + half))
    return Measurement(share, low, high)


def median_of(values: Array) -> Measurement:
    """Return a median with its interval of order statistics."""
    ordered = np.sort(values)
    n = len(ordered)
    # The number of values below the median is binomial, with deviation √n / 2.
    reach = NORMAL_QUANTILE / 2 * np.sqrt(n)
    low = int(np.floor(n / 2 - reach))
    high = int(np.ceil(n / 2 + reach))
    return Measurement(
        float(np.median(ordered)),
        float(ordered[max(low, 0)]),
        float(ordered[min(high, n - 1)]),
    )


@dataclass(frozen=True)
class Bound:
    """What a value must meet: low ≤ value ≤ high."""

    low: float = -np.inf
    high: float = np.inf

    def meets(self, value: float) -> bool:
        """Return whether a number lies within."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if np.isinf(self.low):
            return f"≤ {self.high:g}"
        if np.isinf(self.high):
            return f"≥ {self.low:g}"
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Verdict:
    """What the repetitions say about a claim.

    Attributes
    ----------
    word : str
        HOLDS, UNDECIDED, FAILS or UNTESTED.
    measured : Measurement
        What decides.
    numbers : str
        The figures behind it in words, where the measurement alone does not tell.
    margin : Measurement, optional
        Mean of what should not be positive, over pairs, where a claim compares means.
    repetitions : str
        Repetitions that counted, per cell where they differ.
    bound : Bound
        What the value had to meet, where it is one.
    """

    word: str
    measured: Measurement
    numbers: str = ""
    margin: Measurement | None = None
    repetitions: str = ""
    bound: Bound = Bound()

    @property
    def reached(self) -> bool:
        """Whether the claim holds."""
        return self.word == HOLDS

    @property
    def close(self) -> bool:
        """Whether other repetitions could tip it: it lies within two standard errors of the bound."""
        if self.margin is None:
            return False
        return abs(self.margin.value) < CLOSE * self.margin.error

    @property
    def mark(self) -> str:
        """A tick or a cross."""
        return "✓" if self.reached else "✗"

    @property
    def careful_mark(self) -> str:
        """The mark, in brackets if the verdict is close."""
        return f"({self.mark})" if self.close else self.mark


def decide(
    reached: bool,
    measured: Measurement,
    numbers: str = "",
    margin: Measurement | None = None,
) -> Verdict:
    """Return the verdict of a claim that is judged by the measured value itself."""
    return Verdict(
        HOLDS if reached else FAILS, measured, numbers=numbers, margin=margin
    )


@dataclass(frozen=True)
class Claim:
    """A statement that can be wrong.

    Attributes
    ----------
    statement : str
        What must be true; several claims may test one statement.
    name : str
        Which test of the statement it is: the world, row or kind of logs it looks at, or a name in words.
    test : callable
        What was measured -> Verdict.
    policy : str
        The policy that the claim is about, where it is one.
    source : str
        PAPER, REBUILT, ESTIMATOR, OURS or CHECK.
    quantity : str
        What is measured, in words.
    """

    statement: str
    name: str
    test: Callable[..., Verdict]
    policy: str = ""
    source: str = OURS
    quantity: str = ""

    def judge(self, measured: Any, **options: Any) -> Verdict:
        """Return the verdict on what was measured; options: those of the test."""
        return self.test(measured, **options)


def measured_claim(
    statement: str,
    name: str,
    measure: Callable[[Any], Measurement],
    bound: Bound,
    words: Callable[[Measurement], str] = Measurement.with_interval,
    policy: str = "",
) -> Claim:
    """Return the claim that a measured value meets a bound; words: how a page shows the value."""

    def test(measured: Any) -> Verdict:
        value = measure(measured)
        return decide(bound.meets(value.value), value, words(value))

    return Claim(statement, name, test, policy=policy)


Judged: TypeAlias = list[tuple[Claim, Verdict]]
"""Claims with their verdicts."""


def judge_all(claims: Iterable[Claim], measured: Any, **options: Any) -> Judged:
    """Return every claim with its verdict on what was measured; options: those of the tests."""
    return [(claim, claim.judge(measured, **options)) for claim in claims]


def count_reached(judged: Sequence[tuple[Claim, Verdict]]) -> int:
    """Return how many claims hold."""
    return sum(verdict.reached for _, verdict in judged)


def finding(judged: Sequence[tuple[Claim, Verdict]]) -> str:
    """Return one sentence about claims with one statement: the statement, and what became of it.

    A statement holds if every test of it holds; otherwise the sentence names the tests that do not hold, with
    their numbers.
    """
    statement = judged[0][0].statement.rstrip(".")
    parts = []
    for word in (FAILS, UNDECIDED, UNTESTED):
        numbers = [verdict.numbers for _, verdict in judged if verdict.word == word]
        if numbers:
            parts.append(f"{word}: {', '.join(numbers)}")
    held = count_reached(judged)
    if not parts:
        parts = [HOLDS]
    elif held:
        parts.append(f"{HOLDS} in {held} of {len(judged)} tests")
    return f"Claimed: {statement}; {'; '.join(parts)}."


def findings(judged: Judged) -> list[str]:
    """Return one sentence per statement, in their order, each built from the verdicts on it."""
    statements = list(dict.fromkeys(claim.statement for claim, _ in judged))
    ordered = sorted(judged, key=lambda pair: statements.index(pair[0].statement))
    return [
        finding(list(tests))
        for _, tests in groupby(ordered, key=lambda pair: pair[0].statement)
    ]
