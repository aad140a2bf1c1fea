"""Errors in the protocol's own body: {"error": {code, message, target, innerError}}."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.service.http import CODES, Handler, RefusedError, answer, printable, refusal

NAMES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "OperationNotAllowed",
    404: "ResourceNotFound",
    405: "OperationNotAllowed",
    409: "Conflict",
    413: "PayloadSizeExceeded",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}
"""What the protocol calls an error, where a call has no name of its own for it."""
INVALID = (400, 409, 422)


class ProtocolError(RefusedError):
    """A refusal with the protocol's name for it."""

    def __init__(self, status: int, name: str, message: str, field: str | None = None) -> None:
        super().__init__(status, message, field)
        self.name = name


def not_here(message: str) -> ProtocolError:
    """Something that cannot be honoured by this service."""
    return ProtocolError(400, "OperationNotAllowed", message)


def error_body(error: BaseException) -> Response:
    """The answer to a request that failed."""
    refused = refusal(error)
    status = 400 if refused.status == 422 else refused.status
    name = refused.name if isinstance(refused, ProtocolError) else NAMES.get(status, "BadRequest")
    told: dict[str, Any] = {"code": name, "message": printable(refused.message)}
    if refused.field:
        told["target"] = printable(refused.field)
    told["innerError"] = {"code": CODES.get(refused.status, "error")}
    response = answer({"error": told}, status)
    response.headers.update(refused.headers or {})
    return response


def invalid_as(name: str) -> Callable[[Handler], Handler]:
    """Have invalid requests of a call answered under the protocol's name for them."""

    def wrapping(endpoint: Handler) -> Handler:
        @wraps(endpoint)
        async def told(request: Request) -> Response:
            try:
                return await endpoint(request)
            except (RefusedError, InputError) as error:
                refused = refusal(error)
                if isinstance(refused, ProtocolError) or refused.status not in INVALID:
                    raise
                status = 409 if refused.status == 409 else 400
                raise ProtocolError(status, name, refused.message, refused.field) from None

        return told

    return wrapping
