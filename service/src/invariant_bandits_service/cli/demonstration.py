"""A service, its page and a simulated shop that uses it, whose visitors change their minds half-way."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.model.fit import fit_logs
from invariant_bandits.simulation.sample_logs import SHOP_BANNERS, WEEKS, Shop
from invariant_bandits_service import commands
from invariant_bandits_service.client import Client, ServedDecision, ServiceError
from invariant_bandits_service.learners import FittedLearner, OpenLearner
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import ServiceSettings, open_service, run
from invariant_bandits_service.settings import Configuration

SHOP, BANNER = "shop", "banners"
EARLY_WEEKS = 6
"""Weeks of logs that the older version of the shop's model has seen."""
MEAN_DELAY = 20.0
"""Visits after which a reward comes on average."""
LOST = 0.03
"""Share of the rewards that never come."""
ASKED_EVERY = 50
"""Visits after which the model is asked whether its alarm rings."""
Say = Callable[[str], Any]


@dataclass(frozen=True)
class DemonstrationPlan:
    """Settings of a demonstration.

    Parameters
    ----------
    rate : float
        Visits per second.
    break_after : int
        Visits after which what lasted changes.
    reward_wait : float or None
        Seconds for which rewards are awaited.
    seed : int
        Of the shop and its visitors.
    """

    rate: float = 25.0
    break_after: int = 600
    reward_wait: float | None = 4.0
    seed: int = 0


class Visitors:
    """Visitors of a shop: each is shown a product and a banner that the service chose; rewards come late or
    never.

    Parameters
    ----------
    client : Client
    shop : Shop
    plan : DemonstrationPlan
    say : callable
        Called with a line about each thing that happens.
    """

    def __init__(
        self, client: Client, shop: Shop, plan: DemonstrationPlan, say: Say = str
    ) -> None:
        self.client, self.shop, self.plan, self.say = client, shop, plan, say
        self.visits = 0
        self.alarmed_at: int | None = None
        self._rng = np.random.default_rng([plan.seed, 1])
        self._owed: list[tuple[float, str, float]] = []
        self._enough = threading.Event()

    def run(self) -> None:
        """Visit until stopped, or until the service is gone."""
        pace, due = 1.0 / self.plan.rate, time.monotonic()
        try:
            while not self._enough.wait(max(0.0, due - time.monotonic())):
                self.visit()
                due = max(due + pace, time.monotonic() - pace)
        except ServiceError as error:
            if not self._enough.wait(
                2.0
            ):  # else the service has ended because it was asked to
                self.say(f"the visitors stay away: {error}")

    def stop(self) -> None:
        """Stop after the present visit."""
        self._enough.set()

    def visit(self) -> None:
        """One visit, and the rewards that are due by now."""
        if self.visits == self.plan.break_after:
            self.shop.break_invariance()
            self.say(
                f"visit {self.visits:,}: invariance breaks; visitors now like what is dear and slow"
            )
        self.visits += 1
        products, person = self.shop.visit(), self.shop.person()
        product, banner = self.client.decide_many(
            [{"model": SHOP, "arms": products}, {"model": BANNER, "context": person}]
        )
        self._owe(product, self.shop.brings(products[int(product.action)]))
        seen = (
            banner.action if banner.action in SHOP_BANNERS else SHOP_BANNERS[0]
        )  # added on the page
        self._owe(banner, self.shop.clicks(person, str(seen)))
        due = [(id, value) for visit, id, value in self._owed if visit <= self.visits]
        self._owed = [owed for owed in self._owed if owed[0] > self.visits]
        if due:
            self.client.reward_many(due)
        if (
            self.visits % ASKED_EVERY == 0
            and self.alarmed_at is None
            and self.client.model(SHOP)["alarm"]
        ):
            self.alarmed_at = self.visits
            self.say(
                f"visit {self.visits:,}: ALARM, the model has noticed that what was stable is not"
            )

    def _owe(self, decision: ServedDecision, value: float) -> None:
        if self._rng.random() >= LOST:
            self._owed.append(
                (self.visits + self._rng.exponential(MEAN_DELAY), decision.id, value)
            )


def prepared(
    store: Path, shop: Shop, plan: DemonstrationPlan, *, port: int, say: Say
) -> tuple[Service, ServiceSettings]:
    """A service, not yet listening, with two versions of a model of the shop and an empty model of its
    banners.
    """
    say(f"fitting a model to {WEEKS} weeks of simulated logs")
    log = shop.log()
    early = log.slice(0, len(log) * EARLY_WEEKS // WEEKS)
    models = {
        weeks: fit_logs(part, windows=weeks)
        for weeks, part in ((EARLY_WEEKS, early), (WEEKS, log))
    }
    settings = ServiceSettings(store=str(store), port=port, empty_model=False)
    service = open_service(settings)
    engine = service.engine
    if SHOP not in engine.view().models:
        for weeks, model in models.items():
            learner, note = (
                FittedLearner(model, engine.store.seed),
                f"weeks 1 to {weeks}",
            )
            engine.call(
                commands.add_version(SHOP, learner, "logs", note=note, by="demo"),
                alone=True,
            )
        empty = OpenLearner(dict.fromkeys(SHOP_BANNERS, True), seed=engine.store.seed)
        engine.call(
            commands.add_version(BANNER, empty, "empty", note="began empty", by="demo"),
            alone=True,
        )
        rules = Configuration(reward_wait=plan.reward_wait)
        for name in (SHOP, BANNER):
            engine.call(commands.configure(name, rules, by="demo"), alone=True)
    return service, settings


def demonstrate(
    store: Path, plan: DemonstrationPlan, *, port: int = 0, say: Say = str
) -> int:
    """Serve, and let visitors come, until asked to end; 0 if it ended in order."""
    shop = Shop(plan.seed)
    service, settings = prepared(store, shop, plan, port=port or free_port(), say=say)
    with Client(f"http://{settings.host}:{settings.port}", retries=1) as client:
        visitors = Visitors(client, shop, plan, say)
        thread = threading.Thread(target=visitors.run, name="visitors", daemon=True)

        def announce(line: str) -> None:
            say(f"{line}: open it in a browser; Ctrl-C ends the demonstration")
            thread.start()

        try:
            return run(service, settings, announce)
        finally:
            visitors.stop()
            if thread.is_alive():
                thread.join(5.0)


def free_port() -> int:
    """Return a port at which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
