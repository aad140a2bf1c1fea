"""Talk to a decision service from Python: what is sent, what comes back, and when to ask again.

It knows nothing of the service but its protocol.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from invariant_bandits.checks import InputError, whole_number
from invariant_bandits.optional import require

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
    content: bytes | None = None


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


def reward_of(
    decision: ServedDecision | str, value: float, key: str | None = None, model: str | None = None
) -> dict[str, Any]:
    """The body that reports one reward, under a key of its own, so that reporting again is reporting it once."""
    id, model = _meant(decision, model)
    body = {"id": id, "value": float(value), "key": key or secrets.token_hex(8)}
    return body if model is None else {**body, "model": model}


def _meant(decision: ServedDecision | str, model: str | None) -> tuple[str, str | None]:
    """Id and model of a decision; of an id alone, the model that was named, if any."""
    return (decision, model) if isinstance(decision, str) else (decision.id, decision.model)


def _about(decision: ServedDecision | str, model: str | None, call: str = "") -> str:
    """The path of a call about one decision."""
    id, model = _meant(decision, model)
    query = "" if model is None else f"?model={quote(model, safe='')}"
    return f"/v1/decisions/{quote(id, safe='')}{call}{query}"


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


def activating(decision: ServedDecision | str, model: str | None = None) -> Call:
    """The call that says a deferred decision was shown."""
    return Call("POST", _about(decision, model, "/activate"))


def looking_up(id: str, model: str | None = None) -> Call:
    """The call for everything that is known of a decision."""
    return Call("GET", _about(id, model))


def telling(model: str) -> Call:
    """The call for what a model believes."""
    return Call("GET", f"/v1/models/{quote(model, safe='')}")


def uploading(content: bytes, model: str, activate: bool, allow_differences: bool, note: str) -> Call:
    """The call that adds a version."""
    asked = {"activate": str(activate).lower(), "allow_differences": str(allow_differences).lower(), "note": note}
    return Call("POST", f"/v1/models/{quote(model, safe='')}/versions?{urlencode(asked)}", content=content)


def refusal_of(status: int, body: Any) -> ServiceError:
    """The error that an answer means."""
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    message = str(told.get("message") or f"the service answered with status {status}")
    return ServiceError(message, status, told.get("field"))


Rewards = Mapping[str, float] | Iterable[tuple[ServedDecision | str, float]]


class Client:
    """Asks a service for decisions and reports rewards.

    Every decision is asked for under an id, every reward reported under a key, both made here if none is given. So a
    call that failed half-way is tried again without being done twice.

    Parameters
    ----------
    url : str
        Where the service is, such as "http://127.0.0.1:8080".
    token : str, optional
        What it asks for.
    timeout : float
        Seconds to wait for one answer.
    retries, backoff : int, float
        How often a call is tried again if there is no answer or the service is busy (429, 502, 503, 504), and how
        many seconds are waited at most before the first time; then twice as long every time.
    transport : httpx.BaseTransport, optional
        Something else than the network, for tests.

    >>> def one_round():
    ...     with Client("http://127.0.0.1:8080") as client:
    ...         decision = client.decide({"hour": 9}, arms=["a", "b"])
    ...         return client.reward(decision, 1.0)
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = 4,
        backoff: float = 0.1,
        transport: Any = None,
    ) -> None:
        self._httpx = require("httpx", "Client")
        self._patience = Patience(retries, backoff)
        self._http = self._httpx.Client(
            base_url=base_address(url), headers=headers_of(token), timeout=timeout, transport=transport
        )

    def decide(
        self,
        context: Context = None,
        arms: Arms = None,
        *,
        id: str | None = None,
        model: str = "default",
        scores: bool = False,
        defer: bool = False,
    ) -> ServedDecision:
        """A decision.

        Parameters
        ----------
        context : mapping, optional
            What all offered actions share.
        arms : sequence, optional
            Labels, rows of features by name or by place, or {"label", "features"}; all registered arms if not given.
        id : str, optional
            The same id again has the same answer.
        model : str
            Who decides.
        scores : bool
            Whether expected rewards are wanted.
        defer : bool
            Whether it counts only once it is activated.
        """
        body = question(context, arms, id=id, model=model, scores=scores, defer=defer)
        return ServedDecision(**self._ask(asking(body)))

    def decide_many(self, questions: Iterable[Mapping[str, Any]]) -> list[ServedDecision]:
        """Several decisions at once, all or none; each question holds what `decide` takes, by name."""
        return [ServedDecision(**one) for one in self._ask(asking_all(questions))["decisions"]]

    def reward(
        self, decision: ServedDecision | str, value: float, *, key: str | None = None, model: str | None = None
    ) -> str:
        """Report the reward of a decision, or of its id; what became of it: "learned", "waiting", "late" and so on.

        An id alone means the only model that has decided under it, or the one that is named. The same holds for
        `activate` and `decision`.
        """
        return str(self._ask(rewarding(reward_of(decision, value, key, model)))["status"])

    def reward_many(self, rewards: Rewards) -> dict[str, str]:
        """Report several rewards, id -> value or pairs, all or none; id -> what became of it."""
        return {one["id"]: one["status"] for one in self._ask(rewarding_all(rewards))["rewards"]}

    def activate(self, decision: ServedDecision | str, *, model: str | None = None) -> str:
        """Say that a deferred decision was shown: "activated", or "unchanged" if that was said before."""
        return str(self._ask(activating(decision, model))["status"])

    def decision(self, id: str, *, model: str | None = None) -> dict[str, Any]:
        """Everything that is known of a decision."""
        return dict(self._ask(looking_up(id, model)))

    def model(self, name: str = "default") -> dict[str, Any]:
        """What a model is, believes and has seen."""
        return dict(self._ask(telling(name)))

    def upload(
        self,
        content: bytes,
        name: str = "default",
        *,
        activate: bool = False,
        allow_differences: bool = False,
        note: str = "",
    ) -> str:
        """Add a version from the bytes of a model file, and return its name.

        Parameters
        ----------
        content : bytes
            As `Model.to_bytes` gives them.
        name : str
            The model that gets the version.
        activate : bool
            Whether the version decides from now on.
        allow_differences : bool
            Whether kind, columns and arms may differ from the active version's; else the service answers 409.
        note : str
            Kept with the version.
        """
        return str((self._ask(uploading(content, name, activate, allow_differences, note)))["version"])

    def _ask(self, call: Call) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                response = self._http.request(call.method, call.path, json=call.body, content=call.content)
            except self._httpx.TransportError as error:
                if tried > self._patience.retries:
                    raise ServiceError(unreachable(self._http.base_url, error)) from error
                time.sleep(self._patience.wait(tried, None))
                continue
            if response.status_code not in WORTH_ANOTHER_TRY or tried > self._patience.retries:
                return answer_of(response)
            time.sleep(self._patience.wait(tried, response.headers.get("retry-after")))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient:
    """The same as `Client`, to be awaited; its parameters are the same, too.

    >>> async def one_round():
    ...     async with AsyncClient("http://127.0.0.1:8080") as client:
    ...         decision = await client.decide({"hour": 9}, arms=["a", "b"])
    ...         return await client.reward(decision, 1.0)
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = 4,
        backoff: float = 0.1,
        transport: Any = None,
    ) -> None:
        self._httpx = require("httpx", "AsyncClient")
        self._patience = Patience(retries, backoff)
        self._http = self._httpx.AsyncClient(
            base_url=base_address(url), headers=headers_of(token), timeout=timeout, transport=transport
        )

    async def decide(
        self,
        context: Context = None,
        arms: Arms = None,
        *,
        id: str | None = None,
        model: str = "default",
        scores: bool = False,
        defer: bool = False,
    ) -> ServedDecision:
        """A decision; parameters as in `Client.decide`."""
        body = question(context, arms, id=id, model=model, scores=scores, defer=defer)
        return ServedDecision(**await self._ask(asking(body)))

    async def decide_many(self, questions: Iterable[Mapping[str, Any]]) -> list[ServedDecision]:
        """Several decisions at once, all or none."""
        return [ServedDecision(**one) for one in (await self._ask(asking_all(questions)))["decisions"]]

    async def reward(
        self, decision: ServedDecision | str, value: float, *, key: str | None = None, model: str | None = None
    ) -> str:
        """Report the reward of a decision; what became of it."""
        return str((await self._ask(rewarding(reward_of(decision, value, key, model))))["status"])

    async def reward_many(self, rewards: Rewards) -> dict[str, str]:
        """Report several rewards, all or none; id -> what became of it."""
        return {one["id"]: one["status"] for one in (await self._ask(rewarding_all(rewards)))["rewards"]}

    async def activate(self, decision: ServedDecision | str, *, model: str | None = None) -> str:
        """Say that a deferred decision was shown."""
        return str((await self._ask(activating(decision, model)))["status"])

    async def decision(self, id: str, *, model: str | None = None) -> dict[str, Any]:
        """Everything that is known of a decision."""
        return dict(await self._ask(looking_up(id, model)))

    async def model(self, name: str = "default") -> dict[str, Any]:
        """What a model is, believes and has seen."""
        return dict(await self._ask(telling(name)))

    async def upload(
        self,
        content: bytes,
        name: str = "default",
        *,
        activate: bool = False,
        allow_differences: bool = False,
        note: str = "",
    ) -> str:
        """Add a version from the bytes of a model file, and return its name.

        Parameters
        ----------
        content : bytes
            As `Model.to_bytes` gives them.
        name : str
            The model that gets the version.
        activate : bool
            Whether the version decides from now on.
        allow_differences : bool
            Whether kind, columns and arms may differ from the active version's; else the service answers 409.
        note : str
            Kept with the version.
        """
        return str((await self._ask(uploading(content, name, activate, allow_differences, note)))["version"])

    async def _ask(self, call: Call) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                response = await self._http.request(call.method, call.path, json=call.body, content=call.content)
            except self._httpx.TransportError as error:
                if tried > self._patience.retries:
                    raise ServiceError(unreachable(self._http.base_url, error)) from error
                await asyncio.sleep(self._patience.wait(tried, None))
                continue
            if response.status_code not in WORTH_ANOTHER_TRY or tried > self._patience.retries:
                return answer_of(response)
            await asyncio.sleep(self._patience.wait(tried, response.headers.get("retry-after")))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def answer_of(response: Any) -> Any:
    """What an answer says, or the error that it means."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.status_code >= 400 or body is None:
        raise refusal_of(response.status_code, body)
    return body


def unreachable(address: Any, error: Exception) -> str:
    """What to say when there was no answer."""
    return f"no answer from {address}: {str(error) or type(error).__name__}"
