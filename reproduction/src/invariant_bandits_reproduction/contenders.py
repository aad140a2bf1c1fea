"""The policies that play in the experiments, by the names of their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from invariant_bandits.policies.past import WHOLE_HORIZON
from invariant_bandits.policies.registry import PolicySpec

SELF_NORMALISED = {"radius": "self-normalised"}
"""Width of ISD-linUCB in figures and studies but those of the joint set: the paper's sum of two sets."""
NAMED: Mapping[str, PolicySpec] = {
    "LinUCB": PolicySpec("linucb"),
    "LinUCB, exploration 0.3": PolicySpec("linucb", {"exploration": 0.3}),
    "LinUCB, warm on all logs": PolicySpec("linucb-warm"),
    "Greedy": PolicySpec("greedy"),
    "SW-linUCB, window T": PolicySpec(
        "sw-linucb", {"window": WHOLE_HORIZON}
    ),  # as in the paper's Figure 6
    "D-linUCB, 0.999": PolicySpec("d-linucb"),
    "ISD-linUCB, all known": PolicySpec("isd-linucb", {"split": "known"}),
    "ISD-linUCB, oracle subspaces": PolicySpec(
        "isd-linucb", {"split": "oracle", **SELF_NORMALISED}
    ),
    "ISD-linUCB, estimated": PolicySpec("isd-linucb", SELF_NORMALISED),
    "ISD-linUCB, published recipe": PolicySpec(
        "isd-linucb", {"split": "published", **SELF_NORMALISED}
    ),
    "AutoISD": PolicySpec("auto-isd"),
}
"""Name -> policy; a window of T rounds as in the paper's Figure 6, all else at its default."""
LINUCB, LINUCB_TUNED, LINUCB_WARM, GREEDY, SW_LINUCB, D_LINUCB, *_ISD, AUTO = NAMED
ISD_KNOWN, ISD_ORACLE, ISD_ESTIMATED, ISD_PUBLISHED = _ISD


def named(*names: str, **bounds: float) -> dict[str, PolicySpec]:
    """These of the policies that have a name above; bounds: options of all but AutoISD, which needs none."""
    return {
        name: replace(NAMED[name], options={**NAMED[name].options, **bounds})
        if bounds and name != AUTO
        else NAMED[name]
        for name in names
    }
