"""What is sent and what comes back, the same for both clients; whether a failed call is worth another try."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from invariant_bandits.checks import InputError, whole_number

Context = Mapping[str, Any] | None
Arms = Sequence[Any] | None
WORTH_ANOTHER_TRY = frozenset({429, 502, 503, 504})
"""Statuses that say nothing was done, or that doing it again is the same."""


class ServiceError(Exception):
    """The service refused a call, or could not be reached.

    Attributes
    ----------
    status : int
        HTTP status; 0 if there was no answer.
    field : str or None
        The part of the request that is meant.
    """

    def __init__(self, message: str, status: int = 0, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field = status, field


@dataclass(frozen=True)
class ServedDecision:
    """A decision of a service.

    Attributes
    ----------
    id : str
        What rewards are reported under.
    action : str or int
        The label of the chosen arm, or the place of the chosen row.
    propensity : float
        Probability with which it was chosen.
    version, model : str
        Who decided.
    scores : dict of str to float or None
        Expected rewards, if they were asked for.
    deferred : bool
        Whether it counts only once it is activated.
    """

    id: str
    action: str | int
    propensity: float
    version: str
    model: str
    scores: dict[str, float] | None = None
    deferred: bool = False


@dataclass(frozen=True)
class Patience:
    """How often a call is tried again, and how long is waited in between: twice as long every time, and by chance.

    Parameters
    ----------
    retries : int
        Further tries after the first.
    backoff : float
        Longest wait before the second try, seconds.
    longest : float
        Longest wait at all, seconds.
    """

    retries: int = 4
    backoff: float = 0.1
    longest: float = 5.0

    def __post_init__(self) -> None:
        whole_number("retries", self.retries, 0)
        for name in ("backoff", "longest"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be seconds, not negative and finite, got {getattr(self, name)!r}")

    def wait(self, tried: int, told: str | None) -> float:
        """Seconds to wait after `tried` tries; at least what the service told, up to `longest`."""
        wait = random.uniform(0.5, 1.0) * self.backoff * 2.0 ** (tried - 1)
        least = float(told) if told is not None and told.isdigit() else 0.0
        return min(max(wait, least), self.longest)


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    path: str
    body: Any = None


def base_address(url: str) -> str:
    """The address without a slash at its end, or InputError if it is none."""
    if not str(url).startswith(("http://", "https://")):
        raise InputError(f"url must begin with http:// or https://, got {url!r}")
    return url.rstrip("/")


def headers_of(token: str | None) -> dict[str, str]:
    """Headers that every request has."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def question(
    context: Context = None,
    arms: Arms = None,
    *,
    id: str | None = None,
    model: str = "default",
    scores: bool = False,
    defer: bool = False,
) -> dict[str, Any]:
    """The body that asks for one decision; it has an id, so that asking again is asking for the same decision."""
    body: dict[str, Any] = {"id": id or secrets.token_hex(12), "model": model}
    if context is not None:
        body["context"] = dict(context)
    if arms is not None:
        body["arms"] = list(arms)
    if scores:
        body["scores"] = True
    if defer:
        body["defer"] = True
    return body


def reward_of(decision: ServedDecision | str, value: float, key: str | None = None) -> dict[str, Any]:
    """The body that reports one reward, under a key of its own, so that reporting again is reporting it once."""
    id = decision if isinstance(decision, str) else decision.id
    return {"id": id, "value": float(value), "key": key or secrets.token_hex(8)}


def asking(body: dict[str, Any]) -> Call:
    """The call for one decision."""
    return Call("POST", "/v1/decisions", body)


def asking_all(questions: Iterable[Mapping[str, Any]]) -> Call:
    """The call for several decisions, all or none."""
    return Call("POST", "/v1/decisions", {"decisions": [question(**one) for one in questions]})


def rewarding(body: dict[str, Any]) -> Call:
    """The call that reports a reward."""
    return Call("POST", "/v1/rewards", body)


def rewarding_all(rewards: Mapping[str, float] | Iterable[tuple[ServedDecision | str, float]]) -> Call:
    """The call that reports several, all or none."""
    pairs = rewards.items() if isinstance(rewards, Mapping) else rewards
    return Call("POST", "/v1/rewards", {"rewards": [reward_of(one, value) for one, value in pairs]})


def activating(decision: ServedDecision | str) -> Call:
    """The call that says a deferred decision was shown."""
    id = decision if isinstance(decision, str) else decision.id
    return Call("POST", f"/v1/decisions/{quote(id, safe='')}/activate")


def looking_up(id: str) -> Call:
    """The call for everything that is known of a decision."""
    return Call("GET", f"/v1/decisions/{quote(id, safe='')}")


def telling(model: str) -> Call:
    """The call for what a model believes."""
    return Call("GET", f"/v1/models/{quote(model, safe='')}")


def refusal_of(status: int, body: Any) -> ServiceError:
    """The error that an answer means."""
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    message = str(told.get("message") or f"the service answered with status {status}")
    return ServiceError(message, status, told.get("field"))
