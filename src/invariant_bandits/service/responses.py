"""Between HTTP and the engine: bodies with limits, answers and errors as JSON, one place that maps errors to codes."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.service.state import ConflictError, NotFoundError
from invariant_bandits.service.store.base import UnavailableError


@dataclass(frozen=True)
class Limits:
    """Bounds that are checked before anything is computed.

    Parameters
    ----------
    body : int
        Bytes of a request.
    upload : int
        Bytes of a model that is uploaded.
    arms : int
        Actions offered in one decision.
    batch : int
        Decisions or rewards in one request.
    values : int
        Values in the context or the actions of one decision.
    nesting : int
        Levels of nested JSON.
    text : int
        Characters of a name or a text.
    magnitude : float
        Largest number.
    rate : float
        Requests per second and token; 0 is without bound.
    """

    body: int = 1 << 20
    upload: int = 256 << 20
    arms: int = 500
    batch: int = 1_000
    values: int = 20_000
    nesting: int = 16
    text: int = 1_024
    magnitude: float = 1e12
    rate: float = 0.0

    def for_upload(self) -> Limits:
        """The same for a request that brings a model."""
        return replace(self, body=self.upload)


log = logging.getLogger("invariant_bandits.service")
Body = TypeVar("Body")
NUMBERS = {float, int}
Handler = Callable[[Request], Awaitable[Response]]

CODES = {400: "malformed", 401: "no token", 403: "not allowed", 404: "not found", 405: "method", 409: "conflict"}
CODES |= {413: "too large", 415: "media type", 422: "invalid", 429: "too many", 500: "internal", 503: "unavailable"}


class RefusedError(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status : int
        HTTP status.
    message : str
        One line that names what is wrong.
    field : str or None
        The part of the request that is meant.
    differences : list of str
        From the active version, if that is why.
    """

    differences: Sequence[str] = ()

    def __init__(
        self, status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.headers = status, message, field, headers


def answer(value: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refusal(error: BaseException) -> RefusedError:
    """The refusal that an error means."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, UnavailableError):
        return RefusedError(503, f"nothing was stored: {error}", headers={"Retry-After": "1"})
    if isinstance(error, HTTPException):
        return RefusedError(error.status_code, str(error.detail), headers=dict(error.headers or {}))
    if isinstance(error, InputError):
        field = str(error).partition(":")[0].partition(" ")[0]
        status = 409 if isinstance(error, ConflictError) else 404 if isinstance(error, NotFoundError) else 422
        refused = RefusedError(status, str(error), field or None)
        refused.differences = getattr(error, "differences", ())
        return refused
    log.error("a request failed", exc_info=error)
    return RefusedError(500, "something went wrong; it was logged")


def error_response(error: BaseException) -> Response:
    """The answer to a request that failed: {"error": {code, message, field}}."""
    refused = refusal(error)
    told: dict[str, Any] = {"code": CODES.get(refused.status, "error"), "message": printable(refused.message)}
    if refused.field:
        told["field"] = printable(refused.field)
    if refused.differences:
        told["differences"] = [printable(one) for one in refused.differences]
    response = answer({"error": told}, refused.status)
    for name, value in (refused.headers or {}).items():
        response.headers[name] = value
    return response


def printable(text: str, longest: int = 500) -> str:
    """A text without control characters, cut to a bearable length."""
    shown = "".join(one if one.isprintable() else "\ufffd" for one in text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, refused as soon as it is longer than allowed, whether its length was announced or not."""
    announced = request.headers.get("content-length")
    if announced is not None and (not announced.isdigit() or int(announced) > limits.body):
        raise RefusedError(413, f"the body must have at most {limits.body:,} bytes", "body")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limits.body:
            raise RefusedError(413, f"the body must have at most {limits.body:,} bytes", "body")
        parts.append(part)
    return b"".join(parts)


def parsed(body: bytes, kind: type[Body]) -> Body:
    """The body as what is expected, or a refusal that names the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `")
        field = place.rstrip("`").removeprefix("$").removeprefix(".") or None
        raise RefusedError(422, f"{field or 'body'}: {message}", field or "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, f"body: not valid JSON ({error})", "body") from None


def has_field(body: bytes, name: str) -> bool:
    """Whether a body is an object with this field; a text or a name deeper in it does not count."""
    if f'"{name}"'.encode() not in body:
        return False
    try:
        return name in msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


async def read(request: Request, kind: type[Body], limits: Limits) -> Body:
    """The body of a request as what is expected."""
    return parsed(await read_body(request, limits), kind)


def check_values(value: Any, limits: Limits, field: str, depth: int = 0) -> int:
    """How many values there are, or a refusal that names the one that is too large, too long or too deep."""
    if depth > limits.nesting:
        raise RefusedError(422, f"{field}: nested deeper than {limits.nesting} levels", field)
    count = 1
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_text(name, limits, field)
            count += check_values(inner, limits, f"{field}.{name[:80]}", depth + 1)
    elif isinstance(value, list) and _are_bearable(value, limits):
        count += len(value)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            count += check_values(inner, limits, f"{field}[{place}]", depth + 1)
    elif isinstance(value, str):
        _check_text(value, limits, field)
    elif isinstance(value, int | float) and not isinstance(value, bool) and not _is_bearable(value, limits):
        raise RefusedError(
            422, f"{field}: must be a number of at most {limits.magnitude:g}, got {str(value)[:40]}", field
        )
    if count > limits.values:
        raise RefusedError(422, f"{field}: at most {limits.values:,} values can be taken", field)
    return count


def _are_bearable(values: list[Any], limits: Limits) -> bool:
    """Whether a list is numbers that can be taken, all looked at together; if not, each is looked at by itself."""
    if not values or not set(map(type, values)) <= NUMBERS:
        return False
    return -limits.magnitude <= min(values) and max(values) <= limits.magnitude and math.isfinite(sum(values))


def _is_bearable(value: float, limits: Limits) -> bool:
    return abs(value) <= limits.magnitude and math.isfinite(value)


def _check_text(text: str, limits: Limits, field: str) -> None:
    if len(text) > limits.text:
        raise RefusedError(422, f"{field}: texts have at most {limits.text:,} characters", field)


def check_id(id: str, field: str = "id", longest: int = 256) -> str:
    """An id that can be kept, or a refusal."""
    if not 0 < len(id) <= longest or not id.isprintable():
        raise RefusedError(422, f"{field}: must have 1 to {longest} printable characters", field)
    return id
