"""The same rounds through our policies and through the closest ones of other packages, each tuned."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.checks import Array, whole_number, whole_seed
from invariant_bandits.policies.registry import Contender, build_policy
from invariant_bandits.reports import plots
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.labelled_arms import LabelledArms
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits.storage import replace_file
from studies import real_study
from studies.goals import Goal, GoalVerdict, judge_all, mean_at_most
from studies.harness import Progress, StudyOutcome, cell_seed, gather, picture_lines, with_lowest_bold
from studies.peer_policies import PEERS, RATES, Peer, most_offered
from studies.real_data import DATA

AUTO = "auto-isd"
EXPLORATIONS = (0.01, 0.03, 0.1, 0.3)
"""Factors of the published radii, about as wide as the peers' sizes: a radius has about three deviations."""
EXPLORATIONS_BESIDE_RATES = (0.01, 0.1)
REAL_DRAWS = 2
"""Draws of the logged actions of a real data set, to tune and to play."""


@dataclass(frozen=True)
class World:
    """An environment, the rounds that are played, and whether its actions are labelled arms."""

    environment: Any
    horizon: int
    labelled: bool = False


WORLDS: Mapping[str, World] = {
    **{
        f"the paper's drift, T0 = {logged:,}": World(PaperEpisodes(logged=logged), 500)
        for logged in (1000, 3500, 8000)
    },
    "fast rotation": World(
        PaperEpisodes(PaperWorld(blocks=(8, 2), varying=1, regimes=5), logged=2000, online="rotating"), 500
    ),
    "invariance broken by 1": World(PaperEpisodes(logged=3500, violation=1.0), 500),
    "nothing drifts": World(PaperEpisodes(PaperWorld(varying=None), logged=3500), 500),
    "labelled arms, clicks of 30 %": World(LabelledArms(logged=12_000, later="drift"), 2000, True),
    "labelled arms, clicks of 3 %": World(LabelledArms(logged=12_000, later="drift", rate=0.03), 2000, True),
}


class Variant(NamedTuple):
    """A policy with one of the settings it may be tuned to.

    words: the setting; make: past -> fresh policy.
    """

    policy: str
    words: str
    make: Callable[[Any], Any]


def cold(past: Any) -> Any:
    """The past without its logged rounds, for a peer that starts from nothing."""
    logs = past.logs
    empty = {"features": logs.features[:0], "rewards": logs.rewards[:0]}
    if hasattr(logs, "contexts"):
        empty |= {"contexts": logs.contexts[:0], "arms": logs.arms[:0]}
    return SimpleNamespace(dim=past.dim, actions=most_offered(past), logs=SimpleNamespace(**empty))


NEEDS_LOGS = ("mabwiser", "contextualbandits")
"""Packages whose models predict nothing before they have learned something."""


def _peer_variants(name: str, peer: Peer) -> list[Variant]:
    def from_logs(setting: tuple[Any, ...], warm: bool) -> Callable[[Any], Any]:
        return lambda past: peer.make(past if warm else cold(past), *setting)

    starts = {"warm": True} if peer.package in NEEDS_LOGS else {"warm": True, "cold": False}
    return [
        Variant(name, f"{words}, {start}", from_logs(setting, warm))
        for start, warm in starts.items()
        for words, setting in peer.settings.items()
    ]


def variants_in(labelled: bool) -> list[Variant]:
    """Every policy that can play with labelled arms, or without, and every setting it may be tuned to."""
    result = [Variant(AUTO, "as it is", Contender(AUTO))]
    for name in ("linucb", "linucb-warm") if labelled else ("linucb", "linucb-warm", "isd-linucb"):
        for size in EXPLORATIONS:
            result.append(Variant(name, f"exploration {size:g}", Contender(name, {"exploration": size})))
    for size, rate, warm in product(EXPLORATIONS_BESIDE_RATES, RATES, (True, False)):
        options = {"exploration": size, "discount": rate, "warm": warm}
        words = f"exploration {size:g}, discount {rate:g}, {'warm' if warm else 'cold'}"
        result.append(Variant("d-linucb", words, Contender("d-linucb", options)))
    for name, peer in PEERS.items():
        if peer.is_installed and (labelled or not peer.labelled):
            result += _peer_variants(name, peer)
    return result


class Played(NamedTuple):
    """Regret of one episode, and microseconds of processor time per round."""

    regret: float
    microseconds: float


def play(make: Callable[[Any], Any], episode: Any) -> Played:
    """Play one episode through."""
    with warnings.catch_warnings(action="ignore"):
        policy = build_policy(make, episode.past)
        means, total, start = episode.means, 0.0, time.process_time()
        for offered, rewards, expected in zip(episode.offered, episode.rewards, means, strict=True):
            action = policy.select(offered)
            policy.update(offered[action], float(rewards[action]))
            total += float(expected.max() - expected[action])
        spent = time.process_time() - start
    return Played(total, 1e6 * spent / len(means))


def run(
    worlds: Mapping[str, World] = WORLDS,
    data: Sequence[str] = tuple(DATA),
    *,
    replications: int = 20,
    tuning_replications: int = 4,
    seed: int = 20270201,
    jobs: int = 2,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> StudyOutcome:
    """Tune every policy on repetitions of its own, then play all of them on the same fresh ones.

    The outcome has, beside the regret: real, data set -> policy -> gain per round in blocks of the second
    half; chosen, world or set -> policy -> setting; microseconds, world -> policy -> per round. cache: a
    folder that keeps every finished world, so that a run that was stopped goes on where it stopped.
    """
    whole_number("replications", replications, 2)
    whole_number("tuning_replications", tuning_replications, 1)
    whole_seed(seed)

    def repetition(item: tuple[str, int, Sequence[Variant]]) -> list[Played]:
        name, number, players = item
        episode = worlds[name].environment.draw(worlds[name].horizon, np.random.default_rng(number))
        return [play(player.make, episode) for player in players]

    def all_of(name: str, place: int, count: int, players: Sequence[Variant], words: str) -> Array:
        """Regret and microseconds (count, players, 2)."""
        items = [(name, cell_seed(seed, 10_000 * place + number), players) for number in range(count)]
        return np.array(gather(repetition, items, jobs, progress, words))

    def simulated(place: int, name: str) -> Measured:
        grid = variants_in(worlds[name].labelled)
        there = all_of(name, 100 + place, tuning_replications, grid, f"tuning: {name}")[:, :, 0].mean(axis=0)
        best: dict[str, tuple[float, Variant]] = {}
        for value, variant in zip(there.tolist(), grid, strict=True):
            if variant.policy not in best or value < best[variant.policy][0]:
                best[variant.policy] = value, variant
        players = [variant for _, variant in best.values()]
        here = all_of(name, place, replications, players, name)
        return {
            player.policy: (here[:, k, 0].tolist(), player.words, float(np.median(here[:, k, 1])))
            for k, player in enumerate(players)
        }

    def kept(name: str, measure: Callable[[], Measured]) -> Measured:
        path = cache and cache / f"{seed} {replications} {tuning_replications} {name}.json"
        if path and path.exists():
            found: Measured = json.loads(path.read_text())
            return found
        measured = measure()
        if path:
            replace_file(path, json.dumps(measured).encode())
        return measured

    at = {
        name: kept(name, lambda place=place, name=name: simulated(place, name))
        for place, name in enumerate(worlds)
    }
    on = {name: kept(name, lambda name=name: on_real_data(name, seed, jobs, progress)) for name in data}
    more = {
        "real": {name: {policy: np.array(of[0]) for policy, of in each.items()} for name, each in on.items()},
        "chosen": {name: {policy: of[1] for policy, of in each.items()} for name, each in (at | on).items()},
        "microseconds": {name: {policy: of[2] for policy, of in each.items()} for name, each in at.items()},
        "tuning": tuning_replications,
    }
    regret = {name: {policy: np.array(of[0]) for policy, of in each.items()} for name, each in at.items()}
    return StudyOutcome(regret, replications, seed, more)


Measured = dict[str, tuple[list[float], str, float]]
"""Policy -> (regret of every repetition or gain of every block, chosen setting, microseconds per round)."""


def on_real_data(name: str, seed: int, jobs: int, progress: Progress | None) -> Measured:
    """Gain per round (blocks,) of every policy on the second half, tuned on the first half."""
    choices: dict[str, dict[str, Any]] = {}
    for variant in variants_in(labelled=False):
        choices.setdefault(variant.policy, {})[variant.words] = variant.make
    data = DATA[name]()
    middle = data.rounds.rounds // 2

    def note(words: str, total: int) -> Callable[[int], None]:
        return lambda done: progress(f"{words}: {data.name}", done, total) if progress else None

    first_half = data.until(middle).scaled(middle)
    tuned = real_study.tune(
        first_half, choices, REAL_DRAWS, seed, jobs, note("tuning", REAL_DRAWS * len(choices))
    )
    words = {
        policy: tuned[policy].settings if policy in tuned else next(iter(choices[policy]))
        for policy in choices
    }
    players = {policy: choices[policy][words[policy]] for policy in choices}
    played = real_study.second_half(
        data.scaled(middle), players, middle, REAL_DRAWS, seed, jobs, note("second half", REAL_DRAWS)
    )
    return {
        policy: (real_study.blocks_of(gains).tolist(), words[policy], 0.0) for policy, gains in played.items()
    }


def names_in(outcome: StudyOutcome) -> list[str]:
    """All policies, in the order of their first appearance."""
    return list(dict.fromkeys(name for of in outcome.values.values() for name in of))


def verdicts(outcome: StudyOutcome) -> list[tuple[Goal, GoalVerdict]]:
    """Whether AutoISD leads or ties in every world: its mean is not above the best of the others."""
    goals = [
        mean_at_most(f"{AUTO} ≤ {name}", world, AUTO, (name,))
        for world, of in outcome.values.items()
        for name in [min((name for name in of if name != AUTO), key=lambda name: of[name].mean())]
    ]
    return judge_all(goals, outcome.values)


def draw(outcome: StudyOutcome, theme_name: str) -> Figure:
    """Mean and worst run of AutoISD, our LinUCB and the best three peers of every world."""
    chart = {}
    for world, of in outcome.values.items():
        peers = sorted((name for name in of if name in PEERS), key=lambda name: of[name].mean())[:3]
        rows = {AUTO: of[AUTO], "linucb": of["linucb"]}
        rows |= {f"peer {place + 1}": of[name] for place, name in enumerate(peers)}
        chart[world] = {name: (float(values.mean()), float(values.max())) for name, values in rows.items()}
    return plots.regret_chart(chart, theme_name=theme_name)


def report(outcome: StudyOutcome, *, pictures: str | None = None) -> str:
    """The study as a Markdown page."""
    names, judged = names_in(outcome), verdicts(outcome)
    behind = [(goal, verdict) for goal, verdict in judged if not verdict.reached]
    missing = [name for name, peer in PEERS.items() if not peer.is_installed]
    lines = [
        "# Side by side with other packages",
        "",
        f"AutoISD has the lowest mean regret in {len(judged) - len(behind)} of {len(judged)} worlds."
        + (
            ""
            if not behind
            else " It does not lead in these; in brackets where it ties, within two standard errors:"
        ),
        "",
        *(
            f"- {goal.where}: {goal.words}, {verdict.numbers}" + (" (tie)" if verdict.close else "")
            for goal, verdict in behind
        ),
        *([""] if behind else []),
        f"{outcome.replications} fresh repetitions per world with seed {outcome.seed}, none discarded. All"
        " policies of a world play the same rounds. Every peer plays through its real package. Its setting,"
        " and whether it learns the logs first, is the best of a grid on 3 other repetitions; AutoISD is"
        " not tuned. Peers with one model per arm play where arms have labels.",
        "",
        *([f"Not installed, so not played: {', '.join(missing)}.", ""] if missing else []),
        *picture_lines(
            *(pictures, "peers", "Regret of AutoISD, LinUCB and the three best peers in every world"),
            "Mean regret (marks) and worst run (end of lines) of AutoISD, our tuned LinUCB, and the three"
            " best peers of each world.",
        ),
        "## Regret",
        "",
        "Mean ± standard error (worst run). Bold: the lowest mean.",
        "",
        "| policy | " + " | ".join(outcome.values) + " |",
        "|---|" + "---|" * len(outcome.values),
    ]
    columns = [with_lowest_bold(of, names) for of in outcome.values.values()]
    lines += [f"| {name} | {' | '.join(column[k] for column in columns)} |" for k, name in enumerate(names)]
    lines += ["", "## Settings that were chosen", "", "| policy | " + " | ".join(outcome.values) + " |"]
    lines += ["|---|" + "---|" * len(outcome.values)]
    for name in names:
        settings = (of.get(name, "–") for of in outcome.more["chosen"].values())
        lines.append(f"| {name} | {' | '.join(str(setting) for setting in settings)} |")
    lines += ["", "## Time", "", "Processor time to decide and learn one round, microseconds, median.", ""]
    lines += ["| policy | " + " | ".join(outcome.values) + " |", "|---|" + "---|" * len(outcome.values)]
    for name in names:
        spent = (of.get(name) for of in outcome.more["microseconds"].values())
        lines.append(f"| {name} | {' | '.join('–' if t is None else f'{t:.0f}' for t in spent)} |")
    packages = sorted({peer.package for peer in PEERS.values() if peer.is_installed})
    lines += ["", "Versions: " + ", ".join(f"{package} {version(package)}" for package in packages) + ".", ""]
    return "\n".join(lines)
