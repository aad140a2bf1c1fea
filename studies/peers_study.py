"""The same rounds through our policies and through the closest ones of other packages, each tuned."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
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
from studies.goals import Goal, GoalVerdict, judge_all, mean_at_most
from studies.harness import Progress, StudyOutcome, cell_seed, gather, picture_lines, with_lowest_bold
from studies.peer_policies import ALPHAS, PEERS, Peer

AUTO = "auto-isd"


@dataclass(frozen=True)
class World:
    """An environment, the rounds that are played, and whether its actions are labelled arms."""

    environment: Any
    horizon: int
    labelled: bool = False


WORLDS: Mapping[str, World] = {
    "the paper's drift, T0 = 3,500": World(PaperEpisodes(logged=3500), 500),
    "fast rotation": World(
        PaperEpisodes(PaperWorld(blocks=(8, 2), varying=1, regimes=5), logged=2000, online="rotating"), 500
    ),
    "invariance broken by 1": World(PaperEpisodes(logged=3500, violation=1.0), 500),
    "nothing drifts": World(PaperEpisodes(PaperWorld(varying=None), logged=3500), 500),
    "labelled arms, clicks of 30 %": World(LabelledArms(logged=6_000, later="drift"), 1000, True),
    "labelled arms, clicks of 3 %": World(LabelledArms(logged=6_000, later="drift", rate=0.03), 1000, True),
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
    return SimpleNamespace(dim=past.dim, actions=past.actions, logs=SimpleNamespace(**empty))


NEEDS_LOGS = ("mabwiser", "contextualbandits")
"""Packages whose models predict nothing before they have learned something."""


def _peer_variants(name: str, peer: Peer) -> list[Variant]:
    variants = [
        Variant(name, f"{setting}, warm", lambda past, setting=setting: peer.make(past, setting))  # type: ignore[misc]
        for setting in peer.settings
    ]
    if peer.package in NEEDS_LOGS:
        return variants
    return variants + [
        Variant(name, f"{setting}, cold", lambda past, setting=setting: peer.make(cold(past), setting))  # type: ignore[misc]
        for setting in peer.settings
    ]


def variants_in(world: World) -> list[Variant]:
    """Every policy that can play there, with every setting it may be tuned to."""
    result = [Variant(AUTO, "as it is", Contender(AUTO))]
    for name in ("linucb", "linucb-warm"):
        for size in ALPHAS:
            result.append(Variant(name, f"exploration {size:g}", Contender(name, {"exploration": size})))
    for discount in (0.97, 0.99):
        for warm in (False, True):
            options = {"exploration": 0.1, "discount": discount, "warm": warm}
            words = f"discount {discount:g}, {'warm' if warm else 'cold'}"
            result.append(Variant("d-linucb", words, Contender("d-linucb", options)))
    if not world.labelled:
        for size in ALPHAS:
            options = {"exploration": size}
            result.append(Variant("isd-linucb", f"exploration {size:g}", Contender("isd-linucb", options)))
    for name, peer in PEERS.items():
        if peer.is_installed and (world.labelled or not peer.labelled):
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
    *,
    replications: int = 12,
    tuning_replications: int = 3,
    seed: int = 20261302,
    jobs: int = 2,
    progress: Progress | None = None,
) -> StudyOutcome:
    """Tune every policy on repetitions of its own, then play all of them on the same fresh ones.

    The outcome has, beside the regret: chosen, world -> policy -> setting; microseconds, world -> policy ->
    per round.
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

    regret: dict[str, dict[str, Array]] = {}
    chosen: dict[str, dict[str, str]] = {}
    spent: dict[str, dict[str, float]] = {}
    for place, (name, world) in enumerate(worlds.items()):
        grid = variants_in(world)
        there = all_of(name, 100 + place, tuning_replications, grid, f"tuning: {name}")[:, :, 0].mean(axis=0)
        best: dict[str, tuple[float, Variant]] = {}
        for value, variant in zip(there.tolist(), grid, strict=True):
            if variant.policy not in best or value < best[variant.policy][0]:
                best[variant.policy] = value, variant
        players = [variant for _, variant in best.values()]
        here = all_of(name, place, replications, players, name)
        regret[name] = {player.policy: here[:, k, 0] for k, player in enumerate(players)}
        chosen[name] = {player.policy: player.words for player in players}
        spent[name] = {player.policy: float(np.median(here[:, k, 1])) for k, player in enumerate(players)}
    return StudyOutcome(regret, replications, seed, {"chosen": chosen, "microseconds": spent})


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
