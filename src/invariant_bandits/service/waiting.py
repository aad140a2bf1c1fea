"""Decisions whose rewards are waited for: when each wait ends, the earliest first, whatever order they came in."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator


class Waiting:
    """Ids of decisions and the ends of their waits.

    Parameters
    ----------
    ends : iterable of (float, str)
        When a wait ends, and the id of its decision.

    >>> waiting = Waiting([(30.0, "long"), (10.0, "short")])
    >>> waiting.add(20.0, "between")
    >>> list(waiting.ended(25.0))
    ['short', 'between']
    >>> waiting.discard("short")
    >>> waiting.next_end, "short" in waiting, len(waiting)
    (20.0, False, 2)
    """

    def __init__(self, ends: Iterable[tuple[float, str]] = ()) -> None:
        self._ends = {id: end for end, id in ends}
        self._heap = [(end, id) for id, end in self._ends.items()]  # with some that are discarded already
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, id: object) -> bool:
        return id in self._ends

    def __iter__(self) -> Iterator[tuple[float, str]]:
        """Ends and ids, in the order in which they were added."""
        return ((end, id) for id, end in self._ends.items())

    def add(self, end: float, id: str) -> None:
        """Wait for a decision until `end`."""
        self._ends[id] = end
        heapq.heappush(self._heap, (end, id))

    def discard(self, id: str) -> None:
        """Wait for a decision no longer."""
        self._ends.pop(id, None)
        while self._heap and not self._is_meant(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_meant(self, entry: tuple[float, str]) -> bool:
        return self._ends.get(entry[1]) == entry[0]

    @property
    def next_end(self) -> float:
        """When the next wait ends; infinity without any."""
        return self._heap[0][0] if self._heap else math.inf

    def ended(self, now: float) -> Iterator[str]:
        """Ids whose wait has ended, the earliest first; they stay until they are discarded."""
        ahead = [(self._heap[0], 0)] if self._heap else []
        while ahead and ahead[0][0][0] <= now:
            entry, place = heapq.heappop(ahead)
            if self._is_meant(entry):
                yield entry[1]
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(self._heap):
                    heapq.heappush(ahead, (self._heap[child], child))
