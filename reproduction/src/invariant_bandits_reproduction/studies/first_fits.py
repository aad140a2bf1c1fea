"""What the first models are worth that a user gets of an awkward log, following only what `fit` says."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.features.arm_maps import SharedSlopesWarning
from invariant_bandits.logs.log import open_log
from invariant_bandits.model.fit import fit_logs
from invariant_bandits.model.model import Model
from invariant_bandits.reports import values
from invariant_bandits_reproduction.studies.awkward_logs import AWKWARD_LOGS, AwkwardLog

MOST_FITS = 8
"""A user gives up after so many fits."""


@dataclass(frozen=True)
class FirstFit:
    """What a user gets who answers what `fit` asks, and nothing else.

    Attributes
    ----------
    steps : tuple of str
        What happened: "stop" or "warning", and the option that answers it; at last "model".
    gain, hindsight, constant : float
        What the model earns beside the policy that wrote the log; the same for the best of three ridge
        regressions per arm, chosen with the truth, and for the best single arm.
    leaks : int
        Leaking columns among the features.
    false : int
        Effects that are said to drift and do not.
    """

    steps: tuple[str, ...]
    gain: float
    hindsight: float
    constant: float
    leaks: int
    false: int

    @property
    def share(self) -> float:
        """The gain as a share of the gain with hindsight."""
        return self.gain / self.hindsight


def first_fit(kind: str, seed: int) -> FirstFit:
    """Write one log and fit it as a user would who gives every option that a message asks for, once."""
    with TemporaryDirectory() as folder:
        log = AWKWARD_LOGS[kind](Path(folder), seed)
        model, steps = _fit_as_asked(log)
        named = {
            (effect["arm"] or "", column.split("=")[0])
            for effect in values.effects(model)
            if effect["drifts"]
            for column in effect["of"].split(", ")
        }
        return FirstFit(
            steps=steps,
            gain=_gain(log, model),
            hindsight=log.hindsight_gain(),
            constant=log.constant_gain(),
            leaks=len(log.leaking & set(model.schema.features)),
            false=sum(
                not {(arm, column), ("", column)} & log.drifting
                for arm, column in named
            ),
        )


def _fit_as_asked(log: AwkwardLog) -> tuple[Model, tuple[str, ...]]:
    """Return the first model of which no warning names an option that its user can answer."""
    schema: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    steps: list[str] = []
    unused = dict(log.answers)
    paths = [str(path) for path in log.paths]
    for _ in range(MOST_FITS):
        model = None
        try:
            with warnings.catch_warnings(action="ignore", category=SharedSlopesWarning):
                opened = open_log(paths if len(paths) > 1 else paths[0], schema)
                model = fit_logs(opened, **arguments)
            said = " ".join(values.warnings(model))
        except InputError as error:
            said = str(error)
        asked = next((option for option in unused if _names(said, option)), None)
        if asked is None:
            if model is None:
                raise RuntimeError(f"no answer to: {said}; before: {steps}")
            unknown = _not_known_before(log, model)
            if not unknown:
                return model, (*steps, "model")
            # `decide` refuses a context without a column of the model, and names it.
            steps.append(f"decide {', '.join(unknown)}")
            schema["ignore"] = [*schema.get("ignore", ()), *unknown]
            continue
        steps.append(f"{'stop' if model is None else 'warning'} {asked}")
        for name, value in unused.pop(asked).items():
            target = arguments if name == "keep_going" else schema
            target[name] = value
    raise RuntimeError(f"no model after {MOST_FITS} fits: {steps}")


def _not_known_before(log: AwkwardLog, model: Model) -> list[str]:
    """Return the columns that a model needs and that no context has."""
    position = model.schema.position if model.schema.ranking is not None else None
    needed = [column.name for column in model.feature_map.columns]
    return [name for name in needed if name not in {*log.contexts[0], position}]


def _names(said: str, option: str) -> bool:
    """Whether a message names this option, not another one that begins alike."""
    return re.search(rf"{re.escape(option)}(?![\w-])", said) is not None


def _gain(log: AwkwardLog, model: Model) -> float:
    """Return what a model's choices in the fresh contexts earn beside the policy that wrote the log."""
    if log.ranking is not None:
        scores = np.array([model.scores(page).mean for page in log.contexts])
        return log.ranking.value(scores) - log.logged
    return log.gain(_choices(log, model))


def _choices(log: AwkwardLog, model: Model) -> Array:
    """Return the arms (n,) that a model plays in the fresh contexts."""
    assert model.arms is not None
    labels = model.arms.active
    played = [model.select(context) for context in log.contexts]
    if set(labels) <= set(log.arms):
        return np.array([log.arms.index(labels[arm]) for arm in played])
    # Levels of an amount are named by their range and stand in its order.
    return np.array(
        [sorted(labels, key=_first_number).index(labels[arm]) for arm in played]
    )


def _first_number(label: str) -> float:
    found = re.search(r"-?\d+(\.\d+)?", label)
    return float(found.group()) if found else -np.inf
