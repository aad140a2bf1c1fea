"""Times and durations as ISO 8601 has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from invariant_bandits.checks import InputError


def duration(seconds: float) -> str:
    """A stretch of time.

    >>> duration(0.0), duration(600.0)
    ('PT0S', 'PT600S')
    """
    return str(msgspec.to_builtins(timedelta(seconds=seconds))) if seconds else "PT0S"


def moment(seconds: float) -> str:
    """A moment, from seconds since 1970.

    >>> moment(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(given: datetime) -> float:
    """Seconds since 1970; a time without a zone is meant in UTC."""
    if not 1970 <= given.year <= 9000:
        raise InputError(f"startTime, endTime: must be of the years 1970 to 9000, got {given.year}")
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
