"""The one function that every engine runs: a task of the log → the moments of its rounds, and what was wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import Labelled, Reader, Rounds
from invariant_bandits.logs.sources import Task
from invariant_bandits.logs.windows import Windows
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import FileError

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
        whole = self.features.standardise(contexts)
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
        dim = len(self.reader.feature_map.encoded_names)
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
        part.moments = moments.between(int(used[0]), int(used[-1]) + 1)
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


ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ArmMoments:
    """Sums over the rounds of m windows in which each of A arms was chosen; shards of the same windows add.

    Parameters
    ----------
    cells : WindowedMoments of m·A windows
        Of whole contexts [1, x] and rewards; window i·A + a holds arm a in window i of the log.
    features : ArmFeatures
        What the contexts are, and what becomes of them.
    edges : array, shape (m + 1,), or None
        Times that bound the windows.

    >>> import numpy as np
    >>> from invariant_bandits.logs.features import Column
    >>> from invariant_bandits.logs.features import FeatureMap
    >>> features = ArmFeatures(FeatureMap((Column("hour"),)), ("a", "b"))
    >>> cells = WindowedMoments.empty(2, 2).update([[1.0, 9.0], [1.0, 7.0]], [1.0, 0.0], window=[0, 1])
    >>> moments = ArmMoments(cells, features)
    >>> moments.rounds, moments.cross[0, 0]
    (array([[1., 1.]]), array([1., 9.]))
    >>> moments.of_features().dim
    4
    """

    cells: WindowedMoments
    features: ArmFeatures
    edges: Any = None

    def __post_init__(self) -> None:
        if self.cells.windows % self.arms:
            raise InputError(f"cells must be windows × {self.arms} arms, got {self.cells.windows}")

    @property
    def arms(self) -> int:
        """Number of arms A."""
        return len(self.features.labels)

    @property
    def windows(self) -> int:
        """Number of windows m."""
        return self.cells.windows // self.arms

    @property
    def rounds(self) -> Array:
        """Rounds (m, A) in which each arm was chosen."""
        return self.cells.chosen.count.reshape(self.windows, self.arms)

    @property
    def gram(self) -> Array:
        """Σ z zᵀ (m, A, d, d)."""
        return self._own_products()[..., :-1, :-1]

    @property
    def cross(self) -> Array:
        """Σ z r (m, A, d)."""
        return self._own_products()[..., :-1, -1]

    @property
    def reward_squares(self) -> Array:
        """Σ r² (m, A)."""
        return self._own_products()[..., -1, -1]

    def _own_products(self) -> Array:
        """Σ [z, r] [z, r]ᵀ (m, A, d + 1, d + 1)."""
        whole = self.cells.chosen.products()
        whole = whole.reshape(self.windows, self.arms, *whole.shape[1:])
        own = np.column_stack([self.features.own_entries, np.full(self.arms, self.cells.dim)])
        return np.stack([whole[:, arm][:, entries[:, None], entries] for arm, entries in enumerate(own)], axis=1)

    @property
    def rewards_are_binary(self) -> bool:
        """Whether every reward is 0 or 1."""
        return are_binary(self.cells)

    def of_features(self) -> WindowedMoments:
        """Moments of φ(x, a) of the chosen arms, m windows of p features; all powers exact."""
        total = PowerSums.empty(self.windows, self.features.dim + 1)
        for arm in range(self.arms):
            total = total.merged(self._placed(arm))
        return WindowedMoments(total, None, self.edges)

    def _placed(self, arm: int) -> PowerSums:
        """Sums of [φ, r] over the rounds of one arm: each feature is an entry of the context times a number."""
        sums = self.cells.chosen
        entry = np.append(self.features.entries[arm], self.cells.dim)
        factor = np.append(self.features.factors[arm], 1.0)
        rows = slice(arm, None, self.arms)
        return PowerSums(
            count=sums.count[rows],
            mean=sums.mean[rows][:, entry] * factor,
            scatter=sums.scatter[rows][:, entry[:, None], entry] * np.outer(factor, factor),
            cubes=sums.cubes[rows][:, entry] * factor**3,
            quartics=sums.quartics[rows][:, entry] * factor**4,
            between=sums.between[rows][:, entry] * factor**2,
        )

    def of_contexts(self) -> WindowedMoments:
        """Moments of whole contexts and rewards, whatever the arm, m windows."""
        return self.cells.regrouped(np.arange(0, self.cells.windows, self.arms))

    def __add__(self, other: object) -> ArmMoments:
        """Moments of two shards of the same windows."""
        if not isinstance(other, ArmMoments):
            return NotImplemented
        return ArmMoments(self.cells + other.cells, self.features, self.edges)


def are_binary(moments: WindowedMoments) -> bool:
    """Whether every reward is 0 or 1: Σ r²(r − 1)² = 0."""
    pooled = moments.chosen.grouped(np.array([0]))
    n, mean = pooled.count[0], pooled.mean[0, -1]
    second, third, fourth = pooled.scatter[0, -1, -1], pooled.cubes[0, -1], pooled.quartics[0, -1]
    squares = second + n * mean**2
    cubes = third + 3.0 * mean * second + n * mean**3
    quartics = fourth + 4.0 * mean * third + 6.0 * mean**2 * second + n * mean**4
    return bool(abs(quartics - 2.0 * cubes + squares) <= ROUNDING * max(squares, 1.0))


def telling_rounds(moments: WindowedMoments) -> int:
    """How many rounds there are or, of rewards that are 0 or 1, how many with mean ½ would tell as much: 4nπ(1 − π)."""
    if not are_binary(moments):
        return int(moments.rounds)
    mean = moments.chosen.grouped(np.array([0])).mean[0, -1]
    return int(4.0 * moments.rounds * mean * (1.0 - mean))
