"""Clients of a decision service: what is sent, how answers are read, and when a call is retried.

They know nothing of the service but its protocol.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from functools import update_wrapper, wraps
from itertools import count
from typing import Any, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

from invariant_bandits.checks import InputError, whole_number
from invariant_bandits.optional import require
from invariant_bandits.storage import variance

Context = Mapping[str, Any] | None
Arms = Sequence[Any] | None
P = ParamSpec("P")
T = TypeVar("T")
WORTH_ANOTHER_TRY = frozenset({429, 502, 503, 504})
"""Statuses that say nothing was done, or that doing it again is the same."""


class ServiceError(Exception):
    """Error: the service refused a call, or could not be reached.

    Attributes
    ----------
    status : int
        HTTP status of the answer, or 0 if there was no answer.
    field : str or None
        Name of the part of the request that is wrong.

    >>> from invariant_bandits_service import ServiceError
    >>> def is_worth_another_try(error: ServiceError) -> bool:
    ...     return error.status in (0, 503)
    >>> is_worth_another_try(ServiceError("no answer"))
    True
    """

    def __init__(self, message: str, status: int = 0, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field = status, field


@dataclass(frozen=True)
class ServedDecision:
    """Decision that a service made.

    Attributes
    ----------
    id : str
        Identifier under which rewards of the decision are reported.
    action : str or int
        Label of the chosen arm, or index of the chosen row of features.
    propensity : float
        Probability with which the action was chosen.
    version, model : str
        Model that made the decision, and its version.
    scores : dict of str to float or None
        Expected reward of each offered action, if the request asked for scores.
    deferred : bool
        Whether the decision counts only after a call of `activate`.

    >>> from invariant_bandits_service import ServedDecision
    >>> decision = ServedDecision("visit 1", "banner_A", 0.975, "1-0b6fe7b1", "default")
    >>> decision.action, decision.propensity
    ('banner_A', 0.975)
    """

    id: str
    action: str | int
    propensity: float
    version: str
    model: str
    scores: dict[str, float] | None = None
    deferred: bool = False


Rewards = Mapping[str, float] | Iterable[tuple[ServedDecision | str, float]]


LONGEST_WAIT = 5.0
"""Seconds between two tries, at most."""


@dataclass(frozen=True)
class ClientCall(Generic[T]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[Any], T]
    sent: Mapping[str, Any] = field(default_factory=dict)
    """What httpx is given to send: {"json": body} or {"content": bytes}."""

    def result(self, outcome: Any) -> T:
        """Return what a response says, or raise the ServiceError that the response or the exception means."""
        if isinstance(outcome, Exception):
            address = outcome.request.url  # type: ignore[attr-defined]
            reason = str(outcome) or type(outcome).__name__
            raise ServiceError(f"no answer from {address}: {reason}") from outcome
        try:
            body = outcome.json()
        except ValueError:
            body = None
        if outcome.status_code < 400 and body is not None:
            return self.read(body)
        error = (body.get("error") if isinstance(body, dict) else None) or {}
        message = error.get(
            "message", f"the service answered with status {outcome.status_code}"
        )
        raise ServiceError(message, outcome.status_code, error.get("field"))


class ClientMethod(Generic[P, T]):
    """A method of both clients, from the function that makes its call: `Client` returns T, `AsyncClient`
    awaits it.
    """

    def __init__(self, make: Callable[P, ClientCall[T]]) -> None:
        self.make = make
        update_wrapper(self, make)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: Client, kind: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: AsyncClient, kind: Any = None
    ) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, kind: Any = None) -> ClientMethod[P, T]: ...
    def __get__(self, client: Any, kind: Any = None) -> Any:
        if client is None:
            return self

        @wraps(self.make)
        def call(*arguments: P.args, **named: P.kwargs) -> Any:
            return client._ask(self.make(*arguments, **named))

        return call


class _Calls:
    """Every call of the protocol, once for both clients, and what they have in common."""

    _http: Any

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        model: str | None = None,
        timeout: float = 10.0,
        retries: int = 4,
        backoff: float = 0.1,
        transport: Any = None,
    ) -> None:
        self._httpx = require("httpx", type(self).__name__)
        self._retries, self._backoff = (
            whole_number("retries", retries, 0),
            variance("backoff", backoff),
        )
        if not str(url).startswith(("http://", "https://")):
            raise InputError(f"url must begin with http:// or https://, got {url!r}")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        make = (
            self._httpx.AsyncClient
            if isinstance(self, AsyncClient)
            else self._httpx.Client
        )
        self._http = make(
            base_url=url.rstrip("/"),
            headers=headers,
            # what a single call says of the model goes before
            params={} if model is None else {"model": model},
            timeout=timeout,
            transport=transport,
        )

    def _wait(self, tried: int, outcome: Any) -> float | None:
        """Seconds to wait after try number `tried` ended with a response or an error; None if it is the last.

        Up to twice as long every time, drawn at random. The service's Retry-After is the least.
        """
        failed = isinstance(outcome, Exception)
        if tried > self._retries or (
            not failed and outcome.status_code not in WORTH_ANOTHER_TRY
        ):
            return None
        after = "" if failed else outcome.headers.get("retry-after", "")
        wait = random.uniform(0.5, 1.0) * self._backoff * 2.0 ** (tried - 1)
        return min(max(wait, float(after) if after.isdigit() else 0.0), LONGEST_WAIT)

    @ClientMethod
    @staticmethod
    def decide(
        context: Context = None,
        arms: Arms = None,
        *,
        id: str | None = None,
        model: str | None = None,
        scores: bool = False,
        defer: bool = False,
        unit: str | None = None,
    ) -> ClientCall[ServedDecision]:
        """Ask for a decision.

        Parameters
        ----------
        context : mapping, optional
            Values of the columns that all offered actions share.
        arms : sequence, optional
            Offered actions, by default all arms that the service knows. An offered action is a label, a list
            or mapping of features, or a mapping with the keys "label" and "features".
        id : str, optional
            Identifier of the decision, under which a repeated request gets the same answer.
        model : str, optional
            Name of the model that decides, by default that of the client.
        scores : bool
            Whether the answer includes the expected reward of each action.
        defer : bool
            Whether the decision counts only after a call of `activate`.
        unit : str, optional
            Identifier of the person about whom the model decides, such as a customer id. The service assigns
            each person to the model or to the holdout (the reference policy).
        """
        body: dict[str, Any] = {"id": id or secrets.token_hex(12)}
        body |= {} if model is None else {"model": model}
        body |= {} if context is None else {"context": dict(context)}
        body |= {} if arms is None else {"arms": list(arms)}
        body |= {} if unit is None else {"unit": unit}
        body |= {
            name: True
            for name, wanted in (("scores", scores), ("defer", defer))
            if wanted
        }
        return ClientCall(
            "POST",
            "/v1/decisions",
            lambda answer: ServedDecision(**answer),
            {"json": body},
        )

    @ClientMethod
    @staticmethod
    def decide_many(
        questions: Iterable[Mapping[str, Any]],
    ) -> ClientCall[list[ServedDecision]]:
        """Ask for several decisions in one request, which makes either all decisions or none.

        Each question is a mapping with the parameters of `decide`.
        """
        body = {
            "decisions": [
                _Calls.decide.make(**question).sent["json"] for question in questions
            ]
        }

        def read(answer: Any) -> list[ServedDecision]:
            return [ServedDecision(**each) for each in answer["decisions"]]

        return ClientCall("POST", "/v1/decisions", read, {"json": body})

    @ClientMethod
    @staticmethod
    def decisions(**query: str | float) -> ClientCall[dict[str, Any]]:
        """Return a page of stored decisions, the latest first.

        The filters are `model`, `arm`, `status`, `search`, `since`, `until`, `before` and `limit`. To get the
        next page of decisions, pass the field `next` of the answer as the filter `before`.
        """
        return ClientCall(
            "GET", "/v1/decisions", lambda answer: answer, {"params": query}
        )

    @ClientMethod
    @staticmethod
    def reward(
        decision: ServedDecision | str,
        value: float,
        *,
        key: str | None = None,
        model: str | None = None,
    ) -> ClientCall[str]:
        """Report the reward of a decision, and return the status of the reward, such as "learned" or "late".

        The argument `decision` is a decision or its id. If several models have decided under the same id, the
        argument `model` names one of them.
        """
        id, model = _identified(decision, model)
        body = {"id": id, "value": float(value), "key": key or secrets.token_hex(8)}
        body |= {} if model is None else {"model": model}
        return ClientCall("POST", "/v1/rewards", _status, {"json": body})

    @ClientMethod
    @staticmethod
    def reward_many(rewards: Rewards) -> ClientCall[dict[str, str]]:
        """Report several rewards, all or none, and return the status of each decision id.

        The argument `rewards` is a mapping of ids to values, or pairs (decision or its id, value).
        """
        pairs = rewards.items() if isinstance(rewards, Mapping) else rewards
        body = {
            "rewards": [
                _Calls.reward.make(decision, value).sent["json"]
                for decision, value in pairs
            ]
        }

        def read(answer: Any) -> dict[str, str]:
            return {reward["id"]: reward["status"] for reward in answer["rewards"]}

        return ClientCall("POST", "/v1/rewards", read, {"json": body})

    @ClientMethod
    @staticmethod
    def activate(
        decision: ServedDecision | str, *, model: str | None = None
    ) -> ClientCall[str]:
        """Activate a decision that was made with `defer=True`.

        The answer is "activated", or "unchanged" if the decision was active before.
        """
        id, model = _identified(decision, model)
        path = f"/v1/decisions/{quote(id, safe='')}/activate"
        return ClientCall("POST", path, _status, _query(model=model))

    @ClientMethod
    @staticmethod
    def decision(id: str, *, model: str | None = None) -> ClientCall[dict[str, Any]]:
        """Return all stored data of a decision."""
        path = f"/v1/decisions/{quote(id, safe='')}"
        return ClientCall("GET", path, dict, _query(model=model))

    @ClientMethod
    @staticmethod
    def model(name: str | None = None) -> ClientCall[dict[str, Any]]:
        """Return a model's version, its beliefs, and how many decisions and rewards it has."""
        return ClientCall("GET", "/v1/model", dict, _query(model=name))

    @ClientMethod
    @staticmethod
    def upload(
        content: bytes,
        name: str | None = None,
        *,
        activate: bool = False,
        allow_differences: bool = False,
        note: str = "",
    ) -> ClientCall[str]:
        """Upload a model file as a new version of a model, and return the name of the version.

        Parameters
        ----------
        content : bytes
            Content of the model file, such as the result of `Model.to_bytes`.
        name : str, optional
            Name of the model that gets the new version, by default that of the client.
        activate : bool
            Whether the new version makes the decisions from now on.
        allow_differences : bool
            Whether to accept a version with another kind of model, other columns or other arms than the
            active version. By default the service refuses different versions with status 409.
        note : str
            Remark that the service stores with the new version.
        """
        query = _query(
            model=name,
            activate=activate,
            allow_differences=allow_differences,
            note=note,
        )
        return ClientCall(
            "POST",
            "/v1/model/versions",
            lambda body: str(body["version"]),
            {"content": content, **query},
        )


class Client(_Calls, AbstractContextManager["Client"]):
    """Client that asks a service for decisions and reports rewards.

    Every decision has an id, and every reward has a key that identifies its request. The client makes ids and
    keys that the caller does not give. A call of the client that failed half-way can be repeated and counts
    once.

    Parameters
    ----------
    url : str
        Address of the service, such as "http://127.0.0.1:8080".
    token : str, optional
        Access token, if the service needs one.
    model : str, optional
        Name of the model that is meant where a call names none; by default the service's oldest model.
    timeout : float
        Seconds to wait for one answer of the service.
    retries : int
        How often a call is repeated if the service is busy (status 429, 502, 503 or 504) or does not answer.
    backoff : float
        Longest wait in seconds before the first repetition. The wait between two tries doubles each time.
    transport : httpx.BaseTransport, optional
        Transport that replaces the network in tests.

    >>> def one_round():
    ...     with Client("http://127.0.0.1:8080") as client:
    ...         decision = client.decide({"hour": 9}, arms=["a", "b"])
    ...         return client.reward(decision, 1.0)
    """

    def _ask(self, call: ClientCall[T]) -> T:
        for tried in count(1):
            try:
                outcome = self._http.request(call.method, call.path, **call.sent)
            except self._httpx.TransportError as error:
                outcome = error
            wait = self._wait(tried, outcome)
            if wait is None:
                break
            time.sleep(wait)
        return call.result(outcome)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncClient(_Calls, AbstractAsyncContextManager["AsyncClient"]):
    """Client whose methods are coroutines, with the parameters and methods of `Client`.

    >>> async def one_round():
    ...     async with AsyncClient("http://127.0.0.1:8080") as client:
    ...         decision = await client.decide({"hour": 9}, arms=["a", "b"])
    ...         return await client.reward(decision, 1.0)
    """

    async def _ask(self, call: ClientCall[T]) -> T:
        for tried in count(1):
            try:
                outcome = await self._http.request(call.method, call.path, **call.sent)
            except self._httpx.TransportError as error:
                outcome = error
            wait = self._wait(tried, outcome)
            if wait is None:
                break
            await asyncio.sleep(wait)
        return call.result(outcome)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _identified(
    decision: ServedDecision | str, model: str | None
) -> tuple[str, str | None]:
    """Return id and model of a decision; of an id alone, the model that was named, if any."""
    return (
        (decision, model)
        if isinstance(decision, str)
        else (decision.id, decision.model)
    )


def _query(**parameters: Any) -> dict[str, Any]:
    """Return what httpx is given for the query, without parameters that are None."""
    present = {name: value for name, value in parameters.items() if value is not None}
    return {"params": present}


def _status(body: Any) -> str:
    return str(body["status"])
