"""The short version of attacks/readers.py: damaged logs of every format are read or refused, nothing else."""

import sys
from collections import Counter

import pytest

import readers
import running

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        sys.platform != "linux", reason="memory is limited as Linux does it"
    ),
]
SEED, COUNT = 7, 220


def test_a_damaged_log_is_read_or_refused_and_nothing_else(capfd):
    """Every kind of damage about twenty times, without the whole command, which the long version runs as
    well.
    """
    readers.originals()
    counts, found = running.run(
        lambda number: running.with_memory(
            readers.MOST_MEMORY, lambda: readers.judged(SEED, number, command=False)
        ),
        lambda number: readers.attempt(SEED, number)[0],
        COUNT,
        patience=120.0,
    )
    assert found == []
    outcomes = Counter()
    for (_, outcome), count in counts.items():
        outcomes[outcome] += count
    assert outcomes.total() == COUNT
    assert outcomes[running.REFUSED] > 0.3 * COUNT
    assert outcomes[running.SURVIVED] > 0.1 * COUNT
    assert {kind for kind, _ in counts} == set(readers.KINDS)


def test_the_attack_sees_what_it_looks_for():
    """Attempts that raise, hang, die or allocate are counted as such: the table of zeros is not one by
    construction.
    """

    def judged(number):
        if number == 1:
            raise SystemExit(3)
        if number == 3:
            running.time.sleep(60.0)
        if number == 4:
            try:
                return "kind", running.SURVIVED, str(len(bytearray(1 << 33)))
            except MemoryError:
                return "kind", running.MEMORY, "much"
        return "kind", running.REFUSED, ""

    counts, found = running.run(
        lambda number: running.with_memory(1 << 30, lambda: judged(number)),
        lambda _: "kind",
        6,
        patience=2.0,
    )
    assert counts == {
        ("kind", running.REFUSED): 3,
        ("kind", running.CRASHED): 1,
        ("kind", running.HUNG): 1,
        ("kind", running.MEMORY): 1,
    }
    assert len(found) == 3
    assert "| kind | 6 | 3 | 0 | 0 | 1 | 1 | 1 |" in running.table(
        counts, ["kind"], "what"
    )


def test_attempts_are_the_same_for_the_same_numbers():
    assert [readers.attempt(0, n) for n in range(40)] == [
        readers.attempt(0, n) for n in range(40)
    ]
    assert readers.attempt(1, 3) != readers.attempt(0, 3)
