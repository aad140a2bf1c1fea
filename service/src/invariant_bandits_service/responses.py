"""Bodies with limits, JSON responses, and the status of every error."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits_service.state import ConflictError, NotFoundError
from invariant_bandits_service.store.sql import UnavailableError

LARGEST_BODY = 1 << 20
"""Bytes of a request: a thousand decisions of a thousand bytes."""
LARGEST_UPLOAD = 256 << 20
"""Bytes of a model or a log that is uploaded; it is held in memory."""
MOST_TOGETHER = 1_000
"""Decisions or rewards in one request."""
MOST_VALUES = 20_000
"""Values in the context or the actions of one decision."""
DEEPEST = 16
"""Levels of nested JSON."""
LONGEST = 1_024
"""Characters of a name or a text."""
LONGEST_ID = 256
"""Characters of an id, which is a key in the index of the store."""
LONGEST_MESSAGE = 500
"""Characters of an error message: a few lines on a screen."""
LARGEST = 1e12
"""Largest number."""


def check_count(
    items: Sized, most: int, field: str, verb: str = "sent at once"
) -> None:
    """Refuse a list that is too long."""
    if len(items) > most:
        raise RefusedError(
            422, f"{field}: at most {most} can be {verb}, got {len(items)}"
        )


def check_values(value: Any, field: str, depth: int = 0) -> int:
    """Return how many values there are; refuse one that is too large, too long or too deep."""
    problem = ""
    count = 1
    if depth > DEEPEST:
        problem = f"nested deeper than {DEEPEST} levels"
    elif isinstance(value, dict):
        for name, inner in value.items():
            check_values(name, field)
            count += check_values(inner, f"{field}.{name[:80]}", depth + 1)
    elif isinstance(value, list) and _are_numbers(value):
        count += len(value)
    elif isinstance(value, list):
        count += sum(
            check_values(inner, f"{field}[{index}]", depth + 1)
            for index, inner in enumerate(value)
        )
    elif isinstance(value, str) and len(value) > LONGEST:
        problem = f"a text may have at most {LONGEST:,} characters"
    elif isinstance(value, int | float) and not abs(value) <= LARGEST:
        problem = (
            f"must be a number of at most {LARGEST:g} in size, got {str(value)[:40]}"
        )
    if count > MOST_VALUES:
        problem = f"may hold at most {MOST_VALUES:,} values"
    if problem:
        raise RefusedError(422, f"{field}: {problem}", field)
    return count


def _are_numbers(values: list[Any]) -> bool:
    """Return whether a list holds only numbers within the bounds.

    They are checked together, which is faster than one by one.
    """
    if not values or not set(map(type, values)) <= {float, int}:
        return False
    return (
        min(values) >= -LARGEST
        and max(values) <= LARGEST
        and not math.isnan(sum(values))
    )


log = logging.getLogger("invariant_bandits_service")
Body = TypeVar("Body")

CODES = {
    400: "malformed",
    401: "no token",
    403: "not allowed",
    404: "not found",
    405: "method",
    409: "conflict",
    413: "too large",
    415: "media type",
    422: "invalid",
    429: "too many",
    500: "internal",
    503: "unavailable",
}
"""What an error is called, by its HTTP status."""


@dataclass(eq=False)
class RefusedError(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status : int
        HTTP status.
    message : str
        One line that names what is wrong.
    field : str or None
        The part of the request that is meant; if not given, the word before the message's first colon.
    headers : dict of str to str, optional
        Headers of the response.
    differences : sequence of str
        From the active version, if that is why.
    """

    status: int
    message: str
    field: str | None = None
    _: KW_ONLY
    headers: dict[str, str] | None = None
    differences: Sequence[str] = ()

    def __post_init__(self) -> None:
        head, colon, _ = self.message.partition(":")
        self.field = self.field or (head if colon and " " not in head else None)


def json_response(
    value: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def refusal(error: BaseException) -> RefusedError:
    """Return the refusal that an error means."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, UnavailableError):
        return RefusedError(
            503, f"nothing was stored: {error}", headers={"Retry-After": "1"}
        )
    if isinstance(error, ClientDisconnect):
        return RefusedError(400, "body: the client went away before its end")
    if isinstance(error, HTTPException):
        return RefusedError(
            error.status_code, str(error.detail), headers=dict(error.headers or {})
        )
    if isinstance(error, InputError):
        field = str(error).partition(":")[0].partition(" ")[0]
        status = 422
        if isinstance(error, ConflictError):
            status = 409
        elif isinstance(error, NotFoundError):
            status = 404
        return RefusedError(status, str(error), field)
    log.error("a request failed", exc_info=error)
    return RefusedError(500, "internal error; the service has logged it")


class ErrorDetails(msgspec.Struct, omit_defaults=True):
    """What is wrong, in a word and a line; the part of the request that is meant; differences, if any."""

    code: str
    message: str
    field: str = ""
    differences: list[str] = []


class ErrorAnswer(msgspec.Struct):
    """The JSON body of a refusal."""

    error: ErrorDetails

    @classmethod
    def of(cls, refused: RefusedError) -> ErrorAnswer:
        """Return the body."""
        details = ErrorDetails(
            code=CODES.get(refused.status, "error"),
            message=printable(refused.message),
            field=printable(refused.field or ""),
            differences=[printable(difference) for difference in refused.differences],
        )
        return cls(details)


def printable(text: str) -> str:
    """Return a text without control characters, cut to a bearable length."""
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[:LONGEST_MESSAGE]}…"


async def read_body(request: Request, most: int) -> bytes:
    """Return the body; refuse it as soon as it is longer than `most` bytes.

    The length need not have been announced.
    """
    too_long = RefusedError(413, f"the body must have at most {most:,} bytes", "body")
    announced = request.headers.get("content-length")
    if announced is not None and (not announced.isdigit() or int(announced) > most):
        raise too_long
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_long
        parts.append(part)
    return b"".join(parts)


def decode(body: bytes | Mapping[str, str], kind: type[Body]) -> Body:
    """Return a JSON body, or the parameters of a query, as a struct, or a refusal that names the field."""
    try:
        if isinstance(body, bytes):
            return msgspec.json.decode(body, type=kind)
        return msgspec.convert(dict(body), kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        field = path.rstrip("`").removeprefix("$").removeprefix(".") or "body"
        raise RefusedError(422, f"{field}: {message}", field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, f"body: not valid JSON ({error})") from None


def seconds_of(text: str, field: str) -> float:
    """Return seconds since 1970 of a date or time as in ISO 8601; without a zone it is meant in UTC.

    >>> seconds_of("1970-01-02", "since"), seconds_of("19700101T000001", "since")
    (86400.0, 1.0)
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{field}: must be a time such as 2026-11-01T12:00, got {text[:40]!r}"
        ) from None
    if not 1970 <= time.year <= 9000:
        raise InputError(f"{field}: must be of the years 1970 to 9000, got {time.year}")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def is_json(body: bytes) -> bool:
    """Whether a body is meant as a JSON object rather than a file, whatever its content type says."""
    return (
        body.lstrip()[:1] == b"{"
        and b"\0" not in body[:64]
        and len(body) <= LARGEST_BODY
    )


def has_field(body: bytes, name: str) -> bool:
    """Whether a body is an object with this field; a text or a name deeper in it does not count."""
    # if it is the first field, the rest need not be read
    if re.match(rb'\s*{\s*"%s"\s*:' % name.encode(), body):
        return True
    try:
        return f'"{name}"'.encode() in body and name in decode(
            body, dict[str, msgspec.Raw]
        )
    except RefusedError:
        return False


def check_id(id: str) -> str:
    """Return an id that can be kept, or refuse it."""
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise RefusedError(422, f"id: must have 1 to {LONGEST_ID} printable characters")
    return id
