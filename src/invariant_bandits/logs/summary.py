"""The one function that every engine runs: a task of the log → the moments of its rounds, and what was wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.files import FileError
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.rounds import Reader, Rounds
from invariant_bandits.logs.sources import Task
from invariant_bandits.moments.windowed import WindowedMoments

OUT_OF_ORDER = "out of order in time"


@dataclass(frozen=True)
class Plan:
    """How tasks become moments: a reader of rounds, and windows by edges in time or as so many shares of the rows."""

    reader: Reader
    windows: int
    total_rows: int
    edges: Array | None = None

    def empty_moments(self) -> WindowedMoments:
        """Moments of no rounds."""
        dim = len(self.reader.feature_map.expanded_names)
        offered = self.reader.schema.has_offered
        if self.edges is not None:
            return WindowedMoments.empty(dim, edges=self.edges, offered=offered)
        return WindowedMoments.empty(dim, self.windows, offered=offered)

    def place(self, task: Task, rounds: Rounds) -> Array:
        """The window of each round; −1 outside the edges."""
        if self.edges is None:
            position = task.position - task.first_row + rounds.rows
            return position * self.windows // self.total_rows
        times = rounds.times
        assert times is not None
        window = np.minimum(np.searchsorted(self.edges, times, side="right") - 1, self.windows - 1)
        return np.where(times > self.edges[-1], -1, window)


@dataclass
class Part:
    """Moments of the windows from `first_window` on, in order; None if no round was usable."""

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
        if (window < 0).any():
            part.report.add("outside the window edges", task.file, rounds.rows[window < 0])
            part.report.rounds -= int((window < 0).sum())
            rounds, window = rounds.where(window >= 0), window[window >= 0]
        if not len(rounds):
            continue
        _note_order(part, rounds)
        moments.update(
            rounds.features,
            rounds.rewards,
            window=window,
            offered=rounds.offered,
            offered_counts=rounds.offered_counts,
        )
    used = np.flatnonzero(moments.counts)
    if len(used):
        part.first_window = int(used[0])
        part.moments = moments.stretch(int(used[0]), int(used[-1]) + 1)
    return part


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
