"""Clients of a decision service: `Client` waits for the answer, `AsyncClient` is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from invariant_bandits.client import calls
from invariant_bandits.client.calls import Arms, Call, Context, Patience, ServedDecision, ServiceError
from invariant_bandits.extras import needed

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
        self._httpx = needed("httpx", "Client")
        self._patience = Patience(retries, backoff)
        self._http = self._httpx.Client(
            base_url=calls.base_address(url), headers=calls.headers_of(token), timeout=timeout, transport=transport
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
        body = calls.question(context, arms, id=id, model=model, scores=scores, defer=defer)
        return ServedDecision(**self._ask(calls.asking(body)))

    def decide_many(self, questions: Iterable[Mapping[str, Any]]) -> list[ServedDecision]:
        """Several decisions at once, all or none; each question holds what `decide` takes, by name."""
        return [ServedDecision(**one) for one in self._ask(calls.asking_all(questions))["decisions"]]

    def reward(self, decision: ServedDecision | str, value: float, *, key: str | None = None) -> str:
        """Report the reward of a decision, or of its id; what became of it: "learned", "waiting", "late" and so on."""
        return str(self._ask(calls.rewarding(calls.reward_of(decision, value, key)))["status"])

    def reward_many(self, rewards: Rewards) -> dict[str, str]:
        """Report several rewards, id -> value or pairs, all or none; id -> what became of it."""
        return {one["id"]: one["status"] for one in self._ask(calls.rewarding_all(rewards))["rewards"]}

    def activate(self, decision: ServedDecision | str) -> str:
        """Say that a deferred decision was shown: "activated", or "unchanged" if that was said before."""
        return str(self._ask(calls.activating(decision))["status"])

    def decision(self, id: str) -> dict[str, Any]:
        """Everything that is known of a decision."""
        return dict(self._ask(calls.looking_up(id)))

    def model(self, name: str = "default") -> dict[str, Any]:
        """What a model is, believes and has seen."""
        return dict(self._ask(calls.telling(name)))

    def _ask(self, call: Call) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                response = self._http.request(call.method, call.path, json=call.body)
            except self._httpx.TransportError as error:
                if tried > self._patience.retries:
                    raise ServiceError(unreachable(self._http.base_url, error)) from error
                time.sleep(self._patience.wait(tried, None))
                continue
            if response.status_code not in calls.WORTH_ANOTHER_TRY or tried > self._patience.retries:
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
        self._httpx = needed("httpx", "AsyncClient")
        self._patience = Patience(retries, backoff)
        self._http = self._httpx.AsyncClient(
            base_url=calls.base_address(url), headers=calls.headers_of(token), timeout=timeout, transport=transport
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
        body = calls.question(context, arms, id=id, model=model, scores=scores, defer=defer)
        return ServedDecision(**await self._ask(calls.asking(body)))

    async def decide_many(self, questions: Iterable[Mapping[str, Any]]) -> list[ServedDecision]:
        """Several decisions at once, all or none."""
        return [ServedDecision(**one) for one in (await self._ask(calls.asking_all(questions)))["decisions"]]

    async def reward(self, decision: ServedDecision | str, value: float, *, key: str | None = None) -> str:
        """Report the reward of a decision; what became of it."""
        return str((await self._ask(calls.rewarding(calls.reward_of(decision, value, key))))["status"])

    async def reward_many(self, rewards: Rewards) -> dict[str, str]:
        """Report several rewards, all or none; id -> what became of it."""
        return {one["id"]: one["status"] for one in (await self._ask(calls.rewarding_all(rewards)))["rewards"]}

    async def activate(self, decision: ServedDecision | str) -> str:
        """Say that a deferred decision was shown."""
        return str((await self._ask(calls.activating(decision)))["status"])

    async def decision(self, id: str) -> dict[str, Any]:
        """Everything that is known of a decision."""
        return dict(await self._ask(calls.looking_up(id)))

    async def model(self, name: str = "default") -> dict[str, Any]:
        """What a model is, believes and has seen."""
        return dict(await self._ask(calls.telling(name)))

    async def _ask(self, call: Call) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                response = await self._http.request(call.method, call.path, json=call.body)
            except self._httpx.TransportError as error:
                if tried > self._patience.retries:
                    raise ServiceError(unreachable(self._http.base_url, error)) from error
                await asyncio.sleep(self._patience.wait(tried, None))
                continue
            if response.status_code not in calls.WORTH_ANOTHER_TRY or tried > self._patience.retries:
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
        raise calls.refusal_of(response.status_code, body)
    return body


def unreachable(address: Any, error: Exception) -> str:
    """What to say when there was no answer."""
    return f"no answer from {address}: {str(error) or type(error).__name__}"
