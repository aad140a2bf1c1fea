"""Other packages beside ours: every peer that is installed plays the same rounds, tuned; the page says who leads."""

import numpy as np
import pytest

import invariant_bandits as ib
from studies import peers_study as study
from studies.harness import StudyOutcome
from studies.peer_policies import PEERS


def rounds_of(labelled):
    world = ib.LabelledArms(logged=400) if labelled else ib.PaperEpisodes(logged=200)
    return world.draw(30, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_plays_through_its_own_package(name):
    peer = PEERS[name]
    if not peer.is_installed:
        pytest.skip(f"{peer.package} is not installed")
    for labelled in {True, peer.labelled}:
        played = study.play(lambda past: peer.make(past, peer.settings[0]), rounds_of(labelled))
        assert np.isfinite(played.regret)
        assert played.microseconds > 0.0


def test_a_policy_is_tuned_and_then_plays_rounds_that_tuning_did_not_see(monkeypatch):
    seen = []
    monkeypatch.setattr(study, "PEERS", {})
    monkeypatch.setattr(study, "play", lambda make, episode: seen.append(episode) or study.Played(1.0, 1.0))
    world = {"small": study.World(ib.PaperEpisodes(logged=100), 5)}
    outcome = study.run(world, replications=2, tuning_replications=1, seed=1, jobs=1)
    rounds = {episode.offered.tobytes() for episode in seen}
    assert len(rounds) == 3
    assert set(outcome.values["small"]) == {"auto-isd", "linucb", "linucb-warm", "d-linucb", "isd-linucb"}


def test_the_page_says_first_where_autoisd_does_not_lead():
    pairs = np.array([-1.0, 0.0, 1.0, 0.0])
    regret = {
        "won": {"auto-isd": pairs + 9, "linucb": pairs + 20},
        "lost": {"auto-isd": pairs + 30, "linucb": pairs + 5},
    }
    words = {world: dict.fromkeys(of, "0.1") for world, of in regret.items()}
    spent = {world: dict.fromkeys(of, 3.0) for world, of in regret.items()}
    page = study.report(StudyOutcome(regret, 4, 0, {"chosen": words, "microseconds": spent}))
    assert "AutoISD has the lowest mean regret in 1 of 2 worlds" in page
    assert page.index("- lost: auto-isd ≤ linucb") < page.index("## Regret")
