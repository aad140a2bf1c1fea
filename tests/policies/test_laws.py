"""Every policy × memory × exploration obeys every law of policy_laws.py."""

import pytest

import policy_laws


@pytest.mark.parametrize(
    ("law", "name"), policy_laws.CASES, ids=[f"{law.__name__[4:]}, {name}" for law, name in policy_laws.CASES]
)
def test_every_policy_obeys(law, name):
    law(policy_laws.MAKERS[name])


@pytest.mark.parametrize("name", policy_laws.MAKERS)
def test_loading_a_saved_policy_does_not_change_the_next_thousand_decisions(name, tmp_path):
    policy_laws.law_a_loaded_policy_decides_like_the_saved_one(policy_laws.MAKERS[name], tmp_path / "policy")
