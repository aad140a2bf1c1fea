"""One pass over a log, on any engine: all tasks summed up, with progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from invariant_bandits.logs import engines
from invariant_bandits.logs.features import FeatureOptions
from invariant_bandits.logs.imputing import often_missing
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.reader import AnyFeatures, Reader, reader_of
from invariant_bandits.logs.summary import LogitWeights, Plan, Total
from invariant_bandits.logs.windows import Windows

Progress: TypeAlias = Callable[[int, int | None, float], None]
"""Called with the rows read so far, all rows if their number is known, and the seconds passed."""


@dataclass(frozen=True)
class Pass:
    """How a log is gone through.

    Parameters
    ----------
    log : Log
        What is read.
    windows : Windows
        Which windows rounds are added to.
    engine, address :
        Where it is read: see `engines.run`.
    progress : callable, optional
        Called after every part.
    """

    log: Log
    windows: Windows
    engine: Any = "local"
    address: str | None = None
    progress: Progress | None = None
    began: float = field(default_factory=time.perf_counter)

    def over(self, reader: Reader, logit: LogitWeights | None = None) -> Total:
        """Everything that `reader` finds, summed up."""
        plan = Plan(reader, self.windows, self.log.survey().total_rows, logit)
        total = Total(plan)
        for part in engines.run(self.engine, self.address, self.log.survey().tasks, plan):
            total.add(part)
            if self.progress is not None:
                self.progress(total.report.rows, plan.total_rows, time.perf_counter() - self.began)
        return total

    def learning(self, features: AnyFeatures) -> tuple[Reader, Total]:
        """(the reader, its sums); twice if only all rows showed that missing values of some column need a mark."""
        reader = reader_of(self.log, features, offered=not self.log.schema.labelled)
        total = self.over(reader)
        unmarked = often_missing(reader.feature_map, total.report) if isinstance(features, FeatureOptions) else []
        if not unmarked:
            return reader, total
        marking = reader.feature_map.marking(unmarked)
        reader = reader_of(self.log, marking, offered=not self.log.schema.labelled)
        return reader, self.over(reader)
