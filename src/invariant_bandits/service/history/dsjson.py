"""Decisions as dsjson, the form of logs that Vowpal Wabbit reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from invariant_bandits.service.history.settled import Settled


def dsjson_line(one: Settled) -> bytes:
    """A decision as one line of dsjson: probabilities of all actions, the chosen one first."""
    decided = one.decided
    order = [decided.place, *(place for place in range(len(decided.propensities)) if place != decided.place)]
    line = {
        "_label_cost": 0.0 - one.reward,
        "_label_probability": one.propensity,
        "_label_Action": decided.place + 1,
        "_labelIndex": decided.place,
        "o": [{"v": one.reward, "EventId": decided.id, "ActionTaken": True}],
        "Timestamp": datetime.fromtimestamp(decided.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "Version": "1",
        "EventId": decided.id,
        "a": [place + 1 for place in order],
        "c": {**_shared(decided.context), "_multi": [_action(one, place) for place in range(len(order))]},
        "p": [decided.propensities[place] for place in order],
        "VWState": {"m": decided.version},
    }
    return (json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def _shared(context: Any) -> dict[str, Any]:
    """Features of the context; keys with a leading bar would be taken for something else."""
    return {key.lstrip("_") or "feature": value for key, value in (context or {}).items()}


def _action(one: Settled, place: int) -> dict[str, Any]:
    decided = one.decided
    own = None if decided.actions is None else decided.actions[place]
    named = {"_tag": decided.labels[place]} if decided.labels else {}
    if own is None:
        return {**named, "arm": decided.labels[place]}
    if isinstance(own, dict):
        return {**named, **_shared(own)}
    if all(isinstance(part, dict) for part in own):  # a list of objects with features
        return {**named, **{f"f{number}": part for number, part in enumerate(own)}}
    return {**named, "features": own}
