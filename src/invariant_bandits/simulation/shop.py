"""A shop that sells what it shows: tastes drift from week to week, some wishes last, until one day they do
not.

Every visit offers some products, rows of features in standard units. What a visit brings, in euros, is linear
in them. Season and colour are fashion: their worth is drawn anew every week. Price, rating, delivery and the
others last, until `break_invariance` is called.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, whole_seed
from invariant_bandits.optional import require

FEATURES = ("price", "rating", "delivery_days", "discount", "novelty", "season", "colour")
LASTING = np.array([-0.5, 0.6, -0.4, 0.3, 0.1, 0.0, 0.0])
"""Euros per standard unit of each feature, as long as invariance holds."""
AFTER_BREAK = np.array([0.5, -0.2, 0.4, -0.3, 0.1, 0.0, 0.0])
"""The same afterwards: people suddenly buy what is dear and slow to arrive."""
FASHION = (5, 6)
FASHION_SCALE, NOISE, BASELINE = 0.5, 0.7, 2.0
BEGINNING, WEEKS, PRODUCTS = datetime(2026, 1, 5), 10, 6
LEAST_SPREAD, MOST_SPREAD = 0.5, 1.6
BANNERS = ("spring sale", "new arrivals", "gift cards", "outlet")
DEVICES = ("phone", "desktop", "tablet")
CLICKS = {
    "phone": (0.12, 0.30, 0.08, 0.10),
    "desktop": (0.28, 0.10, 0.08, 0.14),
    "tablet": (0.10, 0.12, 0.26, 0.08),
}
"""Probability of a click on each banner, by device."""


class Shop:
    """The shop and its truth.

    Parameters
    ----------
    seed : int
        Of everything that chance does.

    Attributes
    ----------
    worth : array, shape (7,)
        What each feature is worth now, in euros per standard unit.
    broken : bool
        Whether what used to last has changed.

    >>> shop = Shop(seed=0)
    >>> products = shop.visit()
    >>> len(products), sorted(products[0]) == sorted(FEATURES)
    (6, True)
    >>> before = shop.worth
    >>> shop.break_invariance()
    >>> (before != shop.worth).nonzero()[0].tolist()
    [0, 1, 2, 3]
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(whole_seed(seed))
        self.worth, self.spread = self._new_week()
        self.broken = False

    def _new_week(self) -> tuple[Array, Array]:
        """What features are worth in a week, and how much products differ in each."""
        worth = LASTING.copy()
        worth[list(FASHION)] = self._rng.normal(scale=FASHION_SCALE, size=len(FASHION))
        return worth, self._rng.uniform(LEAST_SPREAD, MOST_SPREAD, len(FEATURES))

    def log(self, rounds: int = 6000) -> Any:
        """The past: an Arrow table with a row per offered product, shown at random, over ten weeks."""
        pa = require("pyarrow", "Shop.log")
        columns: dict[str, list[Any]] = {
            name: [] for name in ("round_id", "time", "chosen", "reward", "propensity")
        }
        features = []
        for visit in range(rounds):
            if visit * WEEKS // rounds > (visit - 1) * WEEKS // rounds:
                self.worth, self.spread = self._new_week()
            offered = self._offered()
            shown = int(self._rng.integers(PRODUCTS))
            features.append(offered)
            columns["round_id"] += [visit] * PRODUCTS
            columns["time"] += [BEGINNING + timedelta(weeks=WEEKS * visit / rounds)] * PRODUCTS
            columns["chosen"] += [place == shown for place in range(PRODUCTS)]
            value = self._brings(offered[shown])
            columns["reward"] += [value if place == shown else None for place in range(PRODUCTS)]
            columns["propensity"] += [1.0 / PRODUCTS] * PRODUCTS
        named = dict(zip(FEATURES, np.vstack(features).T, strict=True))
        return pa.table({**columns, **named})

    def visit(self) -> list[dict[str, float]]:
        """Products that are offered to the next visitor, one mapping of features each."""
        return [dict(zip(FEATURES, row, strict=True)) for row in self._offered().round(3).tolist()]

    def brings(self, product: dict[str, float]) -> float:
        """What showing this product brings, in euros, with the luck of the day."""
        return round(self._brings(np.array([product[name] for name in FEATURES])), 2)

    def expected(self, product: dict[str, float]) -> float:
        """The same without luck."""
        return BASELINE + float(np.array([product[name] for name in FEATURES]) @ self.worth)

    def person(self) -> dict[str, str]:
        """The next visitor, for the choice of a banner."""
        return {"device": str(self._rng.choice(DEVICES, p=(0.55, 0.35, 0.10)))}

    def clicks(self, person: dict[str, str], banner: str) -> float:
        """1 if this visitor clicks on that banner, else 0."""
        return float(self._rng.random() < CLICKS[person["device"]][BANNERS.index(banner)])

    def break_invariance(self) -> None:
        """From now on other things are wanted than ever before."""
        self.broken = True
        self.worth = np.where(LASTING != 0.0, AFTER_BREAK, self.worth)

    def _offered(self) -> Array:
        return self._rng.standard_normal((PRODUCTS, len(FEATURES))) * self.spread

    def _brings(self, product: Array) -> float:
        return BASELINE + float(product @ self.worth) + NOISE * float(self._rng.standard_normal())
