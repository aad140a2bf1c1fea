"""The laws that every policy obeys: for those of this library and for anybody's own.

    import invariant_bandits.testing as laws

    def test_my_policy_obeys_the_laws():
        laws.check_policy("linucb-decaying")          # a registered name, a class, or a maker: past -> policy

or law by law, each a test of its own:

    @pytest.mark.parametrize("law", laws.LAWS)
    def test_my_policy(law):
        laws.LAWS[law](lambda: MyPolicy.from_past(laws.example_past()))

A class may say that a law cannot hold for it: `exempt_laws = {"the law": "why"}`; one that draws its actions says
`randomised = True`. The laws know nothing of environments and of the truth.
"""

from __future__ import annotations

from invariant_bandits.testing import deciding, keeping, refusals, threads
from invariant_bandits.testing.checking import LAWS, Law, check_policy, exemptions, law
from invariant_bandits.testing.playing import (
    ACTIONS,
    DIM,
    MEMORIES,
    Make,
    bits,
    example_past,
    play,
    registered_makers,
)

__all__ = ["ACTIONS", "DIM", "LAWS", "MEMORIES", "Law", "Make", "bits", "check_policy", "deciding", "example_past"]
__all__ += ["exemptions", "keeping", "law", "play", "refusals", "registered_makers", "threads"]
