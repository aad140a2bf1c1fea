"""What every route can reach."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request

from invariant_bandits.service.access import Access, Role
from invariant_bandits.service.background.schedule import Learning
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.metrics import Metrics
from invariant_bandits.service.responses import Limits

Found = TypeVar("Found")
audit_log = logging.getLogger("invariant_bandits.service.audit")


@dataclass
class Service:
    """The engine, who may use it, and how much.

    Parameters
    ----------
    engine : Engine
    access : Access
    limits : Limits
    metrics : Metrics
    learning : Learning or None
        Learns in the background, where that is wanted.
    """

    engine: Engine
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    learning: Learning | None = None

    async def aside(self, function: Callable[..., Found], *given: Any) -> Found:
        """What a function that reads the store returns, without holding up other requests."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *given)

    def audit(self, who: str, what: str) -> None:
        """One line about what an administrator did."""
        audit_log.info("%s: %s", who, what)


def service_of(request: Request, needed: Role) -> Service:
    """The service, if whoever asks may use it in this way; their name is then `request.state.who`."""
    service: Service = request.app.state.service
    request.state.who = service.access.who(request, needed)
    return service
