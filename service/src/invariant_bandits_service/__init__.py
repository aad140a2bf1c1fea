"""The decision service: decisions over HTTP, durable, replayable, evaluable.

It must not know simulated worlds, experiments, figures, or the command that starts it.
"""

from invariant_bandits_service.client import AsyncClient as AsyncClient
from invariant_bandits_service.client import Client as Client
from invariant_bandits_service.client import ServedDecision as ServedDecision
from invariant_bandits_service.client import ServiceError as ServiceError
from invariant_bandits_service.version import __version__ as __version__

__all__ = ["AsyncClient", "Client", "ServedDecision", "ServiceError"]
