"""Where the protocol is spoken: its versions, and a door for every model."""

from __future__ import annotations

from typing import NamedTuple

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from invariant_bandits.service.http import RefusedError

NEWEST = "2022-09-01-preview"
MODEL_HEADER = "x-model"
"""For clients that take no path in their endpoint."""


class Door(NamedTuple):
    """The part of a path before the call.

    Attributes
    ----------
    model : str or None
        Name in the client's endpoint, where that ends in /models/NAME.
    versioned : bool
        Whether the version is in the path (v1.0, v1.1-preview.3) rather than asked for by ?api-version=.
    """

    model: str | None
    versioned: bool


class DoorConvertor(Convertor[Door]):
    """Reads paths such as models/shop/personalizer/v1.0."""

    regex = r"(?:models/[^/]+/)?personalizer(?:/v1\.0|/v1\.1-preview\.[0-9]+)?"

    def convert(self, value: str) -> Door:
        """The door in a path.

        >>> DoorConvertor().convert("models/shop/personalizer/v1.0")
        Door(model='shop', versioned=True)
        """
        parts = value.split("/")
        model = parts[1] if parts[0] == "models" else None
        return Door(model, parts[-1] != "personalizer")

    def to_string(self, value: Door) -> str:
        """No path is ever made from a door."""
        raise NotImplementedError


register_url_convertor("personalizer", DoorConvertor())


def door_of(request: Request) -> Door:
    """The door that a request came through."""
    door: Door = request.path_params["door"]
    return door


def loop_of(request: Request) -> str:
    """Name of the model that a request means: in the client's endpoint, in a header, or the default one."""
    asked, door = request.query_params.get("api-version", NEWEST), door_of(request)
    if asked != NEWEST and not door.versioned:
        raise RefusedError(400, f"api-version: {asked!r} is not {NEWEST}", "api-version")
    return door.model or request.headers.get(MODEL_HEADER) or "default"
