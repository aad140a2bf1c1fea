"""What the file of a model must hold: everything that it says of itself, and its arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.decisions import Ledger
from invariant_bandits.description import Check, Description, Numbers, count, finite_number, prefixed
from invariant_bandits.logs.arms import Arm, ArmTable
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.schema import checked_overrides
from invariant_bandits.logs.stored_features import described_arms, described_map, texts

FEATURES = "features."


def described(about: Mapping[str, Any], names: Collection[str]) -> Description:
    """What a model that says this of itself must hold, if its arrays have these names."""
    unknown = about.keys() - ABOUT.keys()
    if unknown:
        raise InputError(f"{min(unknown)} does not belong here")
    content = Numbers(("n",), "uint8", 0, 255)
    arrays = {"policy": content, "moments": Numbers(("m",), "uint8", 0, 255)}
    if "log_odds" in names:
        arrays |= {"log_odds": Numbers(("o",), "uint8", 0, 255), "log_odds_at": Numbers(("t",))}
    learned = [name.removeprefix(FEATURES) for name in names if name.startswith(FEATURES)]
    of_features = (
        described_map(about["features"], learned)[0]
        if about.get("arms") is None
        else described_arms(about["features"], learned)
    )
    result = Description(arrays | prefixed(FEATURES, of_features), ABOUT)
    result.check_settings(about)
    return result


def _text(name: str, value: Any) -> None:
    texts(name, [value])


def _schema(name: str, value: Any) -> None:
    given = _dictionary(name, value)
    checked_overrides({key: one for key, one in given.items() if one is not None}, name)
    _text("schema.reward", given["reward"])


def _quality(name: str, value: Any) -> None:
    given = _dictionary(name, value)
    for key in ("rows", "rounds", "left_out", "choices", "identical"):
        count(f"{name}.{key}", given.get(key, 0))
    report = QualityReport.from_dict(given)
    for reason, problem in report.problems.items():
        count(f"{name}: {reason}", problem.count)
        for file, row in problem.examples:
            _text(name, file)
            count(name, row)


def _dropped(name: str, value: Any) -> None:
    for feature, combination, window in value:
        _text(name, feature)
        for other, factor in _dictionary(name, combination).items():
            finite_number(f"{name}: {other}", factor)
        if window is not None:
            count(name, window)


def _arms(name: str, value: Any) -> None:
    if value is None:
        return
    for arm in _dictionary(name, value)["arms"]:
        if not {one.name for one in fields(Arm)} >= _dictionary(name, arm).keys():
            raise InputError(f"{name} have other fields than arms do")
        _text("label", arm["label"])
        count("plays", arm.get("plays", 0))
        if not isinstance(arm.get("active", True), bool):
            raise InputError(f"active must be true or false, got {arm['active']!r:.80}")
    ArmTable.from_dict(value)


def _dictionary(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be a dictionary, got {value!r:.80}")
    return value


ABOUT: dict[str, Check] = {
    "policy_name": _text,
    "features": _dictionary,
    "schema": _schema,
    "quality": _quality,
    "baseline": finite_number,
    "dropped": _dropped,
    "notes": texts,
    "value": lambda name, value: None if value is None else _dictionary(name, value),
    "version": _text,
    "ledger": lambda name, value: Ledger.from_dict(value),
    "arms": _arms,
}
