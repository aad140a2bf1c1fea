"""The rules of one served model, set by its operator and kept in the event log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from statistics import median
from typing import Annotated, Literal

import msgspec

DAY = 86_400.0
MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
Aggregation = Literal["earliest", "average", "median", "sum", "min", "max"]
Mode = Literal["online", "apprentice", "logging"]
Group = Literal["", "model", "holdout"]
UNIFORM = "uniform"
BUCKETS = 32
"""Groups of units that give the error of an uplift: decisions of one unit are not independent."""
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a model explores and what becomes of rewards.

    Parameters
    ----------
    floor : float
        Share of the decisions that is drawn uniformly among the offered actions, 0 to 1.
    reward_wait : float or None
        How long rewards of a decision are waited for, in seconds. None: the first reward settles it.
    default_reward : float or None
        What a decision without any reward is learned with when its wait ends; None: it is left unlearned.
    aggregation : str
        What is learned of several rewards within the wait.
    mode : "online", "apprentice" or "logging"
        Who decides: the model; the first offered action while the model learns; the same while nothing is
        learned.
    holdout : float
        Share of the units whose decisions go to a fixed reference, while the mode is "online".
    holdout_to : str
        The reference: "uniform", the label of an arm, or a version.
    holdout_key : str or None
        Column of the context that names the unit; else the request's field `unit`, else the decision's id.
        It is kept out of the decision, unless the model was fitted to it.
    """

    floor: Share = 0.05
    reward_wait: Annotated[float, msgspec.Meta(gt=0.0, le=366 * DAY)] | None = None
    default_reward: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    aggregation: Aggregation = "earliest"
    mode: Mode = "online"
    holdout: Share = 0.0
    holdout_to: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] = UNIFORM
    holdout_key: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = (
        None
    )

    @property
    def holds_out(self) -> bool:
        """Whether some decisions go to the reference."""
        return self.holdout > 0.0 and self.mode == "online"

    @property
    def reference(self) -> tuple[float, str, str | None]:
        """Everything that says who is held out, and for what."""
        return self.holdout, self.holdout_to, self.holdout_key

    def group_of(self, model: str, unit: str) -> tuple[Group, int]:
        """Return the group of a unit of a model, and its bucket.

        A unit that is held out stays so if the share grows.
        """
        if not self.holds_out:
            return "", 0
        digest = hashlib.sha256(
            f"{model}\n{unit}".encode(errors="surrogatepass")
        ).digest()
        held = int.from_bytes(digest[:8]) < self.holdout * 2.0**64
        return "holdout" if held else "model", digest[8] % BUCKETS


ConfigurationChange = msgspec.defstruct(
    "ConfigurationChange",
    [
        (each.name, each.type | msgspec.UnsetType, msgspec.UNSET)
        for each in msgspec.structs.fields(Configuration)
    ],
    forbid_unknown_fields=True,
)
"""Rules of a model to be changed: those that are not named stay as they are."""

AGGREGATES: dict[Aggregation, Callable[[list[float]], float]] = {
    "earliest": lambda values: values[0],
    "average": lambda values: sum(values) / len(values),
    "median": median,
    "sum": sum,
    "min": min,
    "max": max,
}
"""One reward for several, which are in the order in which they came."""
