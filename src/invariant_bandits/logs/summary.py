"""The one function that every engine runs: a task of the log → the moments of its rounds, and what was wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.files import FileError
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.labelled import Labelled
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import Reader
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.sources import Task
from invariant_bandits.logs.windows import Windows
from invariant_bandits.moments.windowed import WindowedMoments

OUT_OF_ORDER = "out of order in time"
SMALLEST_WEIGHT = 1e-12


@dataclass(frozen=True, eq=False)
class LogitWeights:
    """Coefficients about which 0/1 rewards are weighed on the logit scale.

    Parameters
    ----------
    features : ArmFeatures
        What becomes of contexts.
    weights : array, shape (arms, 1 + q)
        One coefficient per arm and entry of the whole context.
    """

    features: ArmFeatures
    weights: Array

    def weighed(self, contexts: Array, rewards: Array, codes: Array) -> tuple[Array, Array]:
        """(√h·[1, x] (n, 1 + q), √h·(u + (r − π)/h) (n,)) with u = φᵀθ⁰, π = σ(u), h = π(1 − π)."""
        if ((rewards != 0.0) & (rewards != 1.0)).any():
            raise InputError("rewards must be 0 or 1 on the logit scale")
        whole = self.features.finish(contexts)
        linear = np.einsum("ij,ij->i", whole, self.weights[codes])
        chance = 0.5 * (1.0 + np.tanh(0.5 * linear))
        root = np.sqrt(np.maximum(chance * (1.0 - chance), SMALLEST_WEIGHT))
        return whole * root[:, None], root * linear + (rewards - chance) / root


@dataclass(frozen=True)
class Plan:
    """How tasks become moments.

    Parameters
    ----------
    reader : Reader
        How rounds are read.
    windows : Windows
        Which windows they are added to.
    total_rows : int or None
        Rows of the log; needed where windows are equal shares of them.
    logit : LogitWeights, optional
        Of labelled arms: about which coefficients 0/1 rewards are weighed.
    """

    reader: Reader
    windows: Windows
    total_rows: int | None
    logit: LogitWeights | None = None

    @property
    def arms(self) -> int:
        """How many labelled arms share a window; 0 if actions have no labels."""
        form = self.reader.form
        return len(form.arms) if isinstance(form, Labelled) else 0

    def empty_moments(self) -> WindowedMoments:
        """Moments of no rounds; of labelled arms, one window per window and arm."""
        dim = len(self.reader.feature_map.expanded_names)
        if self.arms:
            width = dim if self.logit is None else self.logit.features.context.dim
            return WindowedMoments.empty(1 + width, self.windows.count * self.arms)
        offered = self.reader.schema.has_offered
        if self.windows.edges is not None:
            return WindowedMoments.empty(dim, edges=self.windows.edges, offered=offered)
        return WindowedMoments.empty(dim, self.windows.count, offered=offered)

    def place(self, task: Task, rounds: Rounds) -> Array:
        """The window of each round (n,); −1 outside the edges."""
        edges = self.windows.edges
        if edges is None:
            position = task.position - task.first_row + rounds.rows
            return position * self.windows.count // self.total_rows
        times = rounds.times
        assert times is not None
        window = np.minimum(np.searchsorted(edges, times, side="right") - 1, self.windows.count - 1)
        return np.where(times > edges[-1], -1, window)

    def add(self, moments: WindowedMoments, rounds: Rounds, window: Array) -> None:
        """Add rounds to the windows (n,) of moments."""
        features, rewards = rounds.features, rounds.rewards
        if rounds.arm is not None:
            if self.logit is not None:
                features, rewards = self.logit.weighed(features, rewards, rounds.arm)
            moments.update(features, rewards, window=window * self.arms + rounds.arm)
            return
        moments.update(features, rewards, window=window, offered=rounds.offered, offered_counts=rounds.offered_counts)


@dataclass
class Part:
    """What one task contributes.

    Parameters
    ----------
    report : QualityReport
        Rows read, rounds used, and what was wrong.
    first_window : int
        The window that `moments` begin with.
    moments : WindowedMoments or None
        Moments of the windows that have rounds, in order; None if no round was usable.
    first_time, last_time : number or None
        Times of the first and the last usable round in the order of the task; microseconds if they are dates.
    first_row : int
        Row of the first usable round in `file`.
    file : str
        Path of the file, or a name for what is in memory.
    """

    report: QualityReport = field(default_factory=QualityReport)
    first_window: int = 0
    moments: WindowedMoments | None = None
    first_time: Any = None
    last_time: Any = None
    first_row: int = 0
    file: str = ""

    def to_bytes(self) -> bytes:
        """For sending between processes."""
        about = {
            "report": self.report.to_dict(),
            "first_window": self.first_window,
            "times": [_plain(self.first_time), _plain(self.last_time)],
            "first_row": self.first_row,
            "file": self.file,
        }
        head = json.dumps(about).encode()
        return len(head).to_bytes(8, "little") + head + (b"" if self.moments is None else self.moments.to_bytes())

    @classmethod
    def from_bytes(cls, content: bytes) -> Part:
        """What `to_bytes` came from; the error that `answer` sent instead is raised."""
        length = int.from_bytes(content[:8], "little")
        about = json.loads(content[8 : 8 + length])
        if "error" in about:
            raise (FileError if about["kind"] == "FileError" else InputError)(about["error"])
        rest = content[8 + length :]
        first, last = about["times"]
        return cls(
            QualityReport.from_dict(about["report"]),
            about["first_window"],
            WindowedMoments.from_bytes(rest) if rest else None,
            first,
            last,
            about["first_row"],
            about["file"],
        )


def summarise(task: Task, plan: Plan) -> Part:
    """Moments of one task. The same rows in the same batches give the same bits wherever this runs."""
    part = Part()
    moments = plan.empty_moments()
    for rounds in plan.reader.rounds(task, part.report):
        window = plan.place(task, rounds)
        rounds, window = _within_edges(rounds, window, part.report)
        if not len(rounds):
            continue
        _note_order(part, rounds)
        plan.add(moments, rounds, window)
    used = np.flatnonzero(moments.counts)
    if len(used):
        part.first_window = int(used[0])
        part.moments = moments.stretch(int(used[0]), int(used[-1]) + 1)
    return part


def _within_edges(rounds: Rounds, window: Array, report: QualityReport) -> tuple[Rounds, Array]:
    """The rounds that have a window, and their windows; the others are counted."""
    outside = window < 0
    if not outside.any():
        return rounds, window
    report.add("outside the window edges", rounds.file, rounds.rows[outside])
    report.rounds -= int(outside.sum())
    return rounds.where(~outside), window[~outside]


def answer(task: Task, plan: Plan) -> bytes:
    """`summarise` for another process: the part, or what is wrong with the input, as bytes.

    Matrix products run in one thread, as they do in the local engine: their bits depend on it.
    """
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(1, user_api="blas"):
            return summarise(task, plan).to_bytes()
    except InputError as error:
        kind = "FileError" if isinstance(error, FileError) else "InputError"
        head = json.dumps({"error": str(error), "kind": kind}).encode()
        return len(head).to_bytes(8, "little") + head


class Total:
    """Parts put together in the order of their tasks."""

    def __init__(self, plan: Plan) -> None:
        self.moments = plan.empty_moments()
        self.report = QualityReport()
        self.last_time: Any = None

    def add(self, part: Part) -> None:
        """Add the next part."""
        if self.last_time is not None and part.first_time is not None and part.first_time < self.last_time:
            self.report.add(OUT_OF_ORDER, part.file, [part.first_row])
        if part.last_time is not None:
            self.last_time = part.last_time
        self.report.merge(part.report)
        if part.moments is not None:
            self.moments.merge_windows(part.first_window, part.moments)


def _note_order(part: Part, rounds: Rounds) -> None:
    """Count the rounds that are earlier than the one before them."""
    if rounds.times is None:
        return
    times = rounds.times.view(np.int64) if rounds.times.dtype.kind == "M" else rounds.times
    earlier = np.concatenate([[part.last_time is not None and times[0] < part.last_time], times[1:] < times[:-1]])
    if earlier.any():
        part.report.add(OUT_OF_ORDER, rounds.file, rounds.rows[earlier])
    if part.first_time is None:
        part.first_time, part.first_row, part.file = times[0], int(rounds.rows[0]), rounds.file
    part.last_time = times[-1]


def _plain(time: Any) -> Any:
    return None if time is None else time.item()
