"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
