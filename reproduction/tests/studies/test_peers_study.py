"""Other packages beside ours: every peer that is installed plays the same rounds, tuned; the page says who leads."""

from dataclasses import replace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits_reproduction.studies import peers_study as study
from invariant_bandits_reproduction.studies.harness import StudyOutcome
from invariant_bandits_reproduction.studies.peer_policies import PEERS
from invariant_bandits_reproduction.studies.real_rounds import RealData


def rounds_of(labelled):
    world = (
        ib.simulation.LabelledArms(logged=400)
        if labelled
        else ib.simulation.PaperEpisodes(logged=200)
    )
    return world.draw(30, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_plays_through_its_own_package(name):
    peer = PEERS[name]
    if not peer.is_installed:
        pytest.skip(f"{peer.package} is not installed")
    setting = next(iter(peer.settings.values()))
    for labelled in {True, peer.labelled}:
        played = study.play(lambda past: peer.make(past, *setting), rounds_of(labelled))
        assert np.isfinite(played.regret)
        assert played.microseconds > 0.0


@pytest.mark.parametrize(
    "name", [name for name, peer in PEERS.items() if not peer.labelled]
)
def test_a_peer_that_learned_the_logs_is_far_better_than_chance_where_nothing_drifts(
    name,
):
    peer = PEERS[name]
    if not peer.is_installed:
        pytest.skip(f"{peer.package} is not installed")
    world = ib.simulation.PaperEpisodes(
        ib.simulation.PaperWorld(varying=None), logged=500
    )
    episode = world.draw(60, np.random.default_rng(3))
    setting = next(iter(peer.settings.values()))
    regret = study.play(lambda past: peer.make(past, *setting), episode).regret
    assert regret < 0.2 * float(
        (episode.means.max(axis=1) - episode.means.mean(axis=1)).sum()
    )


def test_peers_play_rounds_with_different_numbers_of_actions(monkeypatch):
    rng = np.random.default_rng(0)
    counts = np.append(
        rng.integers(3, 6, size=120), rng.integers(3, 8, size=40)
    )  # more than in the logs
    offered = rng.normal(size=(counts.sum(), 3))
    feedback = ib.evaluation.Feedback.from_full_information(
        offered, offered @ [1.0, 0.0, -1.0], seed=0, counts=counts
    )
    data = RealData("small", "stars", ("a", "b", "c"), feedback)
    monkeypatch.setattr(study, "DATA", {"small": lambda: data})
    few = {
        name: replace(peer, settings=dict(list(peer.settings.items())[:1]))
        for name, peer in PEERS.items()
    }
    monkeypatch.setattr(study, "PEERS", few)
    measured = study.on_real_data("small", 0, 1, None)
    assert {
        name for name, peer in PEERS.items() if peer.is_installed and not peer.labelled
    } < set(measured)
    best = measured["linucb-warm"][0]
    assert np.mean(measured["auto-isd"][0]) > 0.9 * np.mean(best) > 0.5
    assert all(
        len(blocks) == len(best) and np.mean(blocks) > 0.0
        for blocks, _, _ in measured.values()
    )


def test_a_policy_is_tuned_and_then_plays_rounds_that_tuning_did_not_see(
    monkeypatch, tmp_path
):
    seen = []
    monkeypatch.setattr(study, "PEERS", {})
    monkeypatch.setattr(
        study,
        "play",
        lambda make, episode: seen.append(episode) or study.Played(1.0, 1.0),
    )
    world = {"small": study.World(ib.simulation.PaperEpisodes(logged=100), 5)}
    options = {
        "replications": 2,
        "tuning_replications": 1,
        "seed": 1,
        "jobs": 1,
        "cache": tmp_path,
    }
    outcome = study.run(world, (), **options)
    rounds = {episode.offered.tobytes() for episode in seen}
    assert len(rounds) == 3
    assert set(outcome.values["small"]) == {
        "auto-isd",
        "linucb",
        "linucb-warm",
        "d-linucb",
        "isd-linucb",
    }
    seen.clear()
    again = study.run(world, (), **options)
    assert not seen, "a finished world is read from the cache"
    assert again.more["chosen"] == outcome.more["chosen"]


def outcome_of(regret, real):
    words = {where: dict.fromkeys(of, "0.1") for where, of in (regret | real).items()}
    spent = {world: dict.fromkeys(of, 3.0) for world, of in regret.items()}
    more = {"chosen": words, "microseconds": spent, "real": real, "tuning": 4}
    return StudyOutcome(regret, 4, 0, more)


def test_the_page_says_first_where_autoisd_does_not_lead():
    pairs = np.array([-1.0, 0.0, 1.0, 0.0])
    regret = {
        "won": {"auto-isd": pairs + 9, "linucb": pairs + 20, "coba LinUCB": pairs + 40},
        "lost": {
            "auto-isd": pairs + 30,
            "linucb": pairs + 5,
            "coba LinUCB": pairs + 40,
        },
    }
    real = {
        "films": {
            "auto-isd": pairs / 9 + 2.0,
            "linucb": -pairs / 9 + 2.01,
            "coba LinUCB": pairs,
        },
        "births": {"auto-isd": pairs + 3, "linucb": pairs + 1, "coba LinUCB": pairs},
    }
    real["stations"] = {
        "auto-isd": pairs + 0.1,
        "linucb": -pairs,
        "coba LinUCB": pairs - 9,
    }
    outcome = outcome_of(regret, real)
    page = study.report(outcome)
    assert (
        "AutoISD, which is not tuned, is clearly behind in 1 of 5 worlds and data sets, clearly ahead in 2,"
        " and ties in 2." in page
    )
    assert (
        "of other packages, AutoISD is clearly behind in 0 of 5 worlds and data sets, clearly ahead in 5,"
        " and ties in 0." in page
    )
    assert page.index(
        "| lost | 30.0 against 5.0 of linucb, +25.0 ± 0.0 |"
    ) < page.index("## Regret")
    assert "| films | 2.0000 against 2.0100 of linucb, −0.0100 ± 0.0907 (tie) |" in page
    assert (
        "| worlds and data sets in which AutoISD has the best mean |\n|---|\n| won |\n| births |\n"
        "| stations (tie) |\n" in page
    )
    assert len(study.draw(outcome, "light").axes) == 2
