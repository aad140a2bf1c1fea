"""Load on an engine whose server comes and goes."""

from __future__ import annotations

import threading
import time

import psycopg

from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.store.sql import UnavailableError
from postgres_server import PostgresServer


def cut(server: PostgresServer) -> None:
    """End all connections to the server."""
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )


class Player(threading.Thread):
    """Asks for decisions and reports rewards, and notes what was acknowledged, until it is told to stop."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self.engine, self.going = engine, True
        self.decided: dict[str, int] = {}
        self.rewarded: set[str] = set()
        self.refused = 0

    def run(self) -> None:
        number = 0
        while self.going:
            number += 1
            id = f"{self.name} {number}"
            try:
                self.decided[id] = self.engine.call(
                    DecisionCommand(context={"hour": str(number % 3)}, id=id)
                ).index
                self.engine.call(RewardCommand(id, 1.0))
                self.rewarded.add(id)
            except UnavailableError:
                self.refused += 1
                time.sleep(0.05)
