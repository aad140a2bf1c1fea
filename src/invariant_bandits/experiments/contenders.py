"""The policies of the experiments: a label for tables and figures, and what plays under it."""

from __future__ import annotations

from collections.abc import Mapping

from invariant_bandits.policies.registry import Contender

LINUCB = "LinUCB"
LINUCB_TUNED = "LinUCB, exploration 0.3"
LINUCB_WARM = "LinUCB, warm on all logs"
GREEDY = "Greedy"
SW_LINUCB = "SW-linUCB, window T"
D_LINUCB = "D-linUCB, 0.999"
ISD_KNOWN = "ISD-linUCB, all known"
ISD_ORACLE = "ISD-linUCB, oracle subspaces"
ISD_ESTIMATED = "ISD-linUCB, estimated"
ISD_PUBLISHED = "ISD-linUCB, published recipe"
AUTO = "AutoISD"

NAMED: Mapping[str, Contender] = {
    LINUCB: Contender("linucb"),
    LINUCB_TUNED: Contender("linucb", {"exploration": 0.3}),
    LINUCB_WARM: Contender("linucb-warm"),
    GREEDY: Contender("greedy"),
    SW_LINUCB: Contender("sw-linucb"),
    D_LINUCB: Contender("d-linucb"),
    ISD_KNOWN: Contender("isd-linucb", {"split": "known"}),
    ISD_ORACLE: Contender("isd-linucb", {"split": "oracle"}),
    ISD_ESTIMATED: Contender("isd-linucb"),
    ISD_PUBLISHED: Contender("isd-linucb", {"split": "published"}),
    AUTO: Contender("auto-isd"),
}
