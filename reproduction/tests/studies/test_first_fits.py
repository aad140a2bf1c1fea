"""First models of awkward logs: what `fit` asks, and what the answers are worth."""

import pytest

from invariant_bandits_reproduction.studies.first_fits import first_fit
from invariant_bandits_reproduction.studies.wide_logs import WIDE_LOGS
from invariant_bandits_reproduction.studies.wild_study import read_draw

ASKED = {
    "call_routing": ["stop --reward", "stop --arm", "stop --minimise"],
    "game_difficulty": ["stop --reward", "stop --minimise"],
    "push_hours": ["warning --rename"],
    "ad_server": ["warning --reward revenue_micros"],
    "ticket_router": ["stop --keep-going", "warning --ignore 'Hours to resolution'"],
    "price_list": ["stop --levels"],
    "llm_gateway": ["stop --reward", "stop --keep-going"],
    "dosing_trial": ["stop --minimise", "warning --missing"],
    "subject_lines": ["warning --ignore 'Open status'", "stop --reward-values"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ASKED)
def test_who_answers_what_is_asked_gets_a_model_that_is_worth_it(kind):
    """One fixed draw of each kind. Single draws scatter, so that this asks for half of the gain with
    hindsight; the study draws more and asks for .9 in the mean.
    """
    first = first_fit(kind, 7)
    assert [step for step in first.steps if step in ASKED[kind]] == ASKED[kind]
    assert (first.leaks, first.false) == (0, 0)
    assert first.share >= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(WIDE_LOGS)[:2])
def test_columns_that_say_nothing_are_not_said_to_drift(kind):
    """One fixed draw of each kind; how often a planted drift is missed is for the study to say."""
    draw = read_draw((kind, 5))
    assert draw.found
    assert (draw.leaks, draw.others) == (0, 0)
