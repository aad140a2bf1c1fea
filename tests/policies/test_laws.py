"""Every registered policy, with every memory, and many a special case obey every law of
`invariant_bandits.testing`.
"""

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
from invariant_bandits import testing
from invariant_bandits.policies.choice import choice_of

REGISTERED = (
    "LinUCB, ",
    "LinTS, ",
    "Greedy, ",
    "EpsilonGreedy, ",
)  # with the same memories
MAKERS = policy_laws.registered_makers() | {
    name: make
    for name, make in policy_laws.MAKERS.items()
    if not name.startswith(REGISTERED)
}


def cases():
    """Pairs (law, policy), without those laws that a policy is exempt from."""
    for name, make in MAKERS.items():
        exempt = testing.exemptions(make())
        yield from ((words, name) for words in testing.LAWS if words not in exempt)


CASES = list(cases())


@pytest.mark.parametrize(
    ("words", "name"), CASES, ids=[f"{words}; {name}" for words, name in CASES]
)
def test_every_policy_obeys(words, name):
    testing.LAWS[words](MAKERS[name])


def test_only_two_policies_are_exempt_and_each_from_one_law():
    exempt = {
        type(make()).__name__: list(testing.exemptions(make()))
        for make in MAKERS.values()
    }
    assert {name: laws for name, laws in exempt.items() if laws} == {
        "Uniform": ["numbers too large to square are refused"],
        "DisjointLinUCB": ["permuting actions permutes the choice"],
    }
    assert {words for laws in exempt.values() for words in laws} <= set(testing.LAWS)


def test_every_policy_of_the_library_learns_many_rounds_and_saves_itself():
    for make in MAKERS.values():
        policy = make()
        assert callable(policy.update_many)
        assert callable(policy.save)


# -- the laws notice --


class Outlaw(ib.LinUCB):
    """Obeys all laws; each of its children breaks one."""


class Forgetful(Outlaw):
    def settings(self):
        return super().settings() | {"ridge": 0.2}


class Restless(Outlaw):
    def decide(self, offered, *, draw=None):
        self.rounds += 1
        return super().decide(offered, draw=draw)


class Superstitious(Outlaw):
    def decide(self, offered, *, draw=None):
        choice = super().decide(offered, draw=draw)
        action = (choice.action + 1) % len(offered)
        return choice_of(action, choice.means, choice.widths)


class Evasive(Outlaw):
    def select(self, features):
        return (super().select(features) + 1) % len(features)


class Stubborn(Outlaw):
    randomised = True

    def decide(self, offered, *, draw=None):
        choice = super().decide(offered)
        shares = np.full(len(offered), 1.0 / len(offered))
        return choice._replace(propensities=shares)


class Careless(Outlaw):
    def update(self, features, reward, *, offered=None, action=None):
        super().update(np.nan_to_num(np.asarray(features, dtype=float)), reward)


class Clinging(Outlaw):
    def __init__(self, dim, **rest):
        super().__init__(dim, **rest)
        self._kept = []

    def update(self, features, reward, *, offered=None, action=None):
        self._kept.append(features)
        if len(self._kept) > 1:
            super().update(np.nan_to_num(np.array(self._kept[-2], dtype=float)), reward)


class Hasty(Outlaw):
    def update_many(self, features, rewards, *, offered=None, actions=None):
        super().update_many(features, rewards)
        self.rounds += 1


class Generous(Outlaw):
    def propensities(self, features):
        return super().propensities(features) + 0.1


BROKEN = {
    Forgetful: "a loaded policy decides like the saved one",
    Restless: "deciding never changes the policy",
    Superstitious: "scores explain the choice",
    Evasive: "select propensities scores and why are views of decide",
    Stubborn: "a number draws the action by the cumulative propensities",
    Careless: "bad input is refused and changes nothing",
    Clinging: "learning keeps no hold on the callers arrays",
    Generous: "propensities are a distribution",
    Hasty: "many rounds are learned like one after another",
}


@pytest.fixture
def registered():
    """Registers classes for one test."""
    from invariant_bandits.policies.registry import POLICIES

    names = []

    def register(kind):
        names.append(kind.__name__.lower())
        return ib.register_policy(names[-1])(kind)

    yield register
    for name in names:
        POLICIES.remove(name)


def test_a_policy_of_ones_own_that_obeys_passes(registered):
    registered(Outlaw)
    testing.check_policy("outlaw")
    testing.check_policy(Outlaw)
    testing.check_policy(lambda past: Outlaw(past.dim))


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_policy_of_ones_own_that_breaks_a_law_is_told_which(kind, registered):
    registered(kind)
    words = BROKEN[kind]
    with pytest.raises(AssertionError, match=f"the law is broken: {words}"):
        testing.check_policy(kind, {words: testing.LAWS[words]})
    with pytest.raises(AssertionError, match="the law is broken"):
        testing.check_policy(kind)


def test_a_class_that_is_no_whole_policy_is_told_so():
    class Half:
        dim = testing.DIM

        def select(self, features):
            return 0

        def update(self, features, reward, *, offered=None, action=None):
            pass

    with pytest.raises(
        AssertionError, match=r"the interface is whole: .*Half must be a BasePolicy"
    ):
        testing.check_policy(Half)
