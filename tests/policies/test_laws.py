"""Every policy × memory × exploration obeys every law of policy_laws.py."""

import pytest

import policy_laws


@pytest.mark.parametrize("name", policy_laws.MAKERS)
@pytest.mark.parametrize("law", policy_laws.LAWS, ids=lambda law: law.__name__.removeprefix("law_"))
def test_every_policy_obeys(law, name):
    law(policy_laws.MAKERS[name])


@pytest.mark.parametrize("name", policy_laws.MAKERS)
def test_loading_a_saved_policy_does_not_change_the_next_thousand_decisions(name, tmp_path):
    policy_laws.law_a_loaded_policy_decides_like_the_saved_one(policy_laws.MAKERS[name], tmp_path / "policy")
