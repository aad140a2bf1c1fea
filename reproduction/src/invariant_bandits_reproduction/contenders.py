"""The policies that play in the experiments, by the names of their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from invariant_bandits.policies.past import WHOLE_HORIZON
from invariant_bandits.policies.registry import Contender

NAMED: Mapping[str, Contender] = {
    "LinUCB": Contender("linucb"),
    "LinUCB, exploration 0.3": Contender("linucb", {"exploration": 0.3}),
    "LinUCB, warm on all logs": Contender("linucb-warm"),
    "Greedy": Contender("greedy"),
    "SW-linUCB, window T": Contender(
        "sw-linucb", {"window": WHOLE_HORIZON}
    ),  # as in the paper's Figure 6
    "D-linUCB, 0.999": Contender("d-linucb"),
    "ISD-linUCB, all known": Contender("isd-linucb", {"split": "known"}),
    "ISD-linUCB, oracle subspaces": Contender("isd-linucb", {"split": "oracle"}),
    "ISD-linUCB, estimated": Contender("isd-linucb"),
    "ISD-linUCB, published recipe": Contender("isd-linucb", {"split": "published"}),
    "AutoISD": Contender("auto-isd"),
}
"""Name -> policy; a window of T rounds as in the paper's Figure 6, all else at its default."""
LINUCB, LINUCB_TUNED, LINUCB_WARM, GREEDY, SW_LINUCB, D_LINUCB, *_ISD, AUTO = NAMED
ISD_KNOWN, ISD_ORACLE, ISD_ESTIMATED, ISD_PUBLISHED = _ISD


def named(*names: str, **bounds: float) -> dict[str, Contender]:
    """These of the policies that have a name above; bounds: options of all but AutoISD, which needs none."""
    return {
        name: replace(NAMED[name], options={**NAMED[name].options, **bounds})
        if bounds and name != AUTO
        else NAMED[name]
        for name in names
    }
