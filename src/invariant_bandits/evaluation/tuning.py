"""Tuning: exploration and memory of rival policies, chosen on earlier rounds than those that are reported.

Published radii hold for any log and explore too much on most. A rival that nobody tuned makes every other
policy look good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.evaluation.estimators import (
    EvaluationTask,
    RegisteredEstimator,
    predict_rewards,
)
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.propensities import with_propensities
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec

SIMPLE = ("d-linucb", "sw-linucb", "linucb-warm", "linucb-cold", "frozen")
"""Policies that one would use without this package, which the first policy of a comparison is measured by.
Where the rounds of the tuning leave open which is the best, it is the first: one that learns and forgets.
"""
TUNED = (*SIMPLE, "linucb", "isd-linucb")
"""Policies whose settings are chosen. ISD-linUCB has published radii as well."""
EXPLORATIONS = (0.0, 0.03, 0.1, 0.3, 1.0)
"""Factors on published widths, 1 being the published one."""
MEMORIES = (4.0, 1.0, 0.25)
"""How many rounds a memory that forgets may hold, in windows of the rounds that policies are fitted on."""
SURELY = 3.0
CLEARLY = 2.0
LIKELY = 1.0
"""Standard errors by which more exploration, another simple policy and a shorter memory must earn more. By
chance about one in 700, one in 40 and one in 6 do so. With 2 for exploration, one log of 40 articles in three
took so much that it lost a third of its value. Chosen on logs with other seeds than are tested.
"""
PLAYED, MOST_PLAYED = 0.75, 20_000
"""Share of the earlier rounds that settings are tried on, and how many at most. They are the last ones."""
FEWEST = 40
"""Earlier rounds below which nothing is tried: the published settings stay."""


class Setting(NamedTuple):
    """Options of a policy, and what they earned in the rounds that they were chosen on."""

    options: Mapping[str, Any]
    value: Estimate


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was chosen.

    Attributes
    ----------
    settings : name -> Setting
        The chosen ones. Policies that are not tuned or could not be played have none.
    kinds : name -> str
        Under which name each of the tuned policies is registered.
    plays : int
        How many settings were tried.
    notes : tuple of str
        How the settings were chosen.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    plays: int = 0
    notes: tuple[str, ...] = ()

    def simple(self) -> tuple[str, ...]:
        """Return the simple policies, the best of them first.

        The best is the first of SIMPLE that is not clearly worse than any.
        """
        names = [name for name in self.settings if self.kinds[name] in SIMPLE]
        names.sort(key=lambda name: SIMPLE.index(self.kinds[name]))
        if not names:
            return ()
        best = names[_first_not_worse([self.settings[name].value for name in names])]
        return (best, *(name for name in names if name != best))

    def applied(
        self, specs: Mapping[str, PolicySpec], *, beside: bool
    ) -> dict[str, PolicySpec]:
        """The policies with the chosen settings, and the published ones `beside` them if they are wanted."""
        result: dict[str, PolicySpec] = {}
        for name, spec in specs.items():
            result[name] = spec
            if name in self.settings:
                result[name] = PolicySpec(self.kinds[name], self.settings[name].options)
                result |= {f"{name}, published": spec} if beside else {}
        return result


def candidates(policy: str, window: int) -> list[dict[str, Any]]:
    """Settings that are tried for a policy, those with the same memory in a row, by growing exploration.

    Policies that forget start with the logged rounds that they would remember.

    Parameters
    ----------
    policy : str
        One of TUNED.
    window : int
        Rounds of a window of the log.

    >>> candidates("frozen", 100)
    [{'warm': True}, {'warm': 400}, {'warm': 100}, {'warm': 25}]
    >>> len(candidates("sw-linucb", 100)), candidates("sw-linucb", 100)[1]
    (15, {'window': 400, 'warm': True, 'exploration': 0.03})
    """
    lengths = [max(2, round(factor * window)) for factor in MEMORIES]
    if policy == "frozen":
        return [{"warm": True}, *({"warm": length} for length in lengths)]
    memories: list[dict[str, Any]] = [{}]
    if policy == "sw-linucb":
        memories = [{"window": length, "warm": True} for length in lengths]
    if policy == "d-linucb":
        memories = [
            {"discount": float(f"{1.0 - 1.0 / length:.8g}"), "warm": True}
            for length in lengths
        ]
    return [
        memory | {"exploration": factor}
        for memory in memories
        for factor in EXPLORATIONS
    ]


def choose(tried: Sequence[Setting]) -> Setting:
    """Choose the longest memory that is not likely worse, with the least exploration not surely worse.

    Policies learn the logged rounds whatever they play. To explore cannot teach them more there, so noise
    alone would decide between settings that hardly differ. So it would between memories on a short log.

    Parameters
    ----------
    tried : sequence of Setting
        In the order of `candidates`, at least one.
    """

    def memory(setting: Setting) -> dict[str, Any]:
        return dict(setting.options) | {"exploration": None}

    groups = [list(group) for _, group in groupby(tried, memory)]
    best = [max((s.value for s in group), key=lambda v: v.value) for group in groups]
    same = groups[_first_not_worse(best, LIKELY)]
    return same[_first_not_worse([setting.value for setting in same], SURELY)]


def _first_not_worse(values: Sequence[Estimate], errors: float = CLEARLY) -> int:
    """Index of the first value that is not so many standard errors below the largest, paired."""
    best = max(values, key=lambda value: value.value)
    gains = (best.minus(value) for value in values)
    return next(
        i for i, gain in enumerate(gains) if gain.value <= errors * gain.standard_error
    )


def tune(
    specs: Mapping[str, PolicySpec],
    earlier: Feedback,
    estimator: RegisteredEstimator,
    *,
    windows: int,
    propensities: str = "logged",
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Fit every setting on the first of these rounds, estimate its value on the rest, and choose.

    Parameters
    ----------
    specs : name -> PolicySpec
        Those of registered policies in TUNED without options are tuned.
    earlier : Feedback
        The rounds that policies are fitted on. No later round has any influence.
    estimator : RegisteredEstimator
        The one that policies are compared by.
    windows : int
        Into how many `earlier` is cut.
    propensities, seed, jobs :
        As in `compare`.
    progress : callable, optional
        Called with (settings done, all).
    """
    kinds = {
        name: spec.name
        for name, spec in specs.items()
        if spec.kind is None and spec.name in TUNED and not spec.options
    }
    if not kinds or earlier.rounds < FEWEST:
        untuned = (
            f"the rounds before those reported are fewer than {FEWEST}: simple policies have their published"
            " settings"
        )
        return Tuning(notes=(untuned,) if kinds else ())
    played = min(round(PLAYED * earlier.rounds), MOST_PLAYED)
    begin = earlier.rounds - played
    first = earlier.between(0, begin)
    last = earlier.between(begin, earlier.rounds)
    last, _ = with_propensities(first, last, propensities)
    past = Past.from_feedback(
        first, last.rounds, max(1, min(windows, first.rounds // 5))
    )
    predictions = (
        predict_rewards(last, first) if estimator.wants("predictions") else None
    )
    window = max(earlier.rounds // windows, 1)
    tasks = [
        (name, options)
        for name, kind in kinds.items()
        for options in candidates(kind, window)
    ]

    def estimate_of(task: tuple[str, dict[str, Any]]) -> Estimate | None:
        spec = PolicySpec(kinds[task[0]], task[1])
        try:
            return estimator.estimate(
                EvaluationTask(
                    spec=spec,
                    past=past,
                    earlier=first,
                    later=last,
                    predictions=predictions,
                    confidence=0.95,
                    seed=seed,
                )
            )
        except InputError:  # the policy cannot be fitted: the comparison says why
            return None

    estimates = dict[int, Estimate]()
    for done, (index, estimate) in enumerate(
        map_unordered(estimate_of, tasks, jobs), start=1
    ):
        if estimate is not None and np.isfinite(estimate.value):
            estimates[index] = estimate
        if progress is not None:
            progress(done, len(tasks))
    tried: dict[str, list[Setting]] = {}
    for index in sorted(estimates):
        name, options = tasks[index]
        tried.setdefault(name, []).append(Setting(options, estimates[index]))
    note = (
        f"exploration and memory of simple policies were chosen by {estimator.name} on the last {played:,}"
        " rounds before those reported, and so was the best of these policies; the rounds reported had no"
        " say. As every policy learns from the logged actions there, little exploration is best: a policy"
        " that plays on its own may need more"
    )
    return Tuning(
        {name: choose(settings) for name, settings in tried.items()},
        kinds,
        len(tasks),
        (note,),
    )
