"""The same rounds through our policies and through the closest ones of other packages, each tuned."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.checks import Array, whole_number, whole_seed
from invariant_bandits.plotting import theme
from invariant_bandits.policies.registry import PolicySpec, policy_spec
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.labelled_arms import LabelledArms
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits.storage import replace_file
from invariant_bandits_reproduction.claims import (
    Claim,
    Judged,
    Verdict,
    decide,
    mean_of,
)
from invariant_bandits_reproduction.contenders import SELF_NORMALISED
from invariant_bandits_reproduction.studies import real_study
from invariant_bandits_reproduction.studies.harness import (
    Progress,
    StudyOutcome,
    cell_seed,
    gather,
    picture_lines,
    table,
    with_lowest_bold,
)
from invariant_bandits_reproduction.studies.peer_policies import (
    PEERS,
    RATES,
    Peer,
    most_offered,
)
from invariant_bandits_reproduction.studies.real_data import DATA
from invariant_bandits_reproduction.studies.related_study import (
    MOST_SHOWN,
    heat_map,
    ratio_words,
)

AUTO = "auto-isd"
EXPLORATIONS = (0.01, 0.03, 0.1, 0.3)
"""Factors of the published radii, about as wide as the peers' sizes: a radius has about three deviations."""
EXPLORATIONS_BESIDE_RATES = (0.01, 0.1)
REAL_DRAWS = 1
"""Draws of the logged actions of a real data set, to tune and to play."""
UNITS = dict.fromkeys(DATA, "percent") | {"flights": "minutes", "films": "stars"}
UNITS |= {"football": "goals", "tweets": "doublings"}
WHY: Mapping[str, str] = {
    **{
        name: f"The weight of “nothing changed” falls from 0.8 to {end}. Probably models that drift predict"
        f" the rewards better but choose worse; this was not tested. AutoISD is {early} the warm regression"
        f" in the first half of these rounds and {late} below it in the second"
        for name, end, early, late in (
            ("stations", "0.05 in seven years", "0.1 above", "0.5"),
            ("employment", "0 in 13 years", "0.01 below", "0.02"),
        )
    },
    "nothing drifts": "Where the logs show no drift, “nothing changed” and “drift as in the logs” predict"
    " nearly the same. After 500 rounds the second still has four fifths of the weight (mean of 40 other"
    " episodes), and its wider posterior costs a little in every round",
    **dict.fromkeys(
        (f"the paper's drift, T0 = {logged}" for logged in ("1,000", "3,500", "8,000")),
        "`isd-linucb` relies on the stable part without checking it: see the world where it breaks",
    ),
}
"""World or data set -> why AutoISD has not the best mean there, where it was looked into."""


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
        PaperEpisodes(
            PaperWorld(blocks=(8, 2), varying=1, regimes=5),
            logged=2000,
            online="rotating",
        ),
        500,
    ),
    "invariance broken by 1": World(PaperEpisodes(logged=3500, violation=1.0), 500),
    "nothing drifts": World(PaperEpisodes(PaperWorld(varying=None), logged=3500), 500),
    "labelled arms, clicks of 30 %": World(
        LabelledArms(logged=6_000, later="drift"), 1000, True
    ),
    "labelled arms, clicks of 3 %": World(
        LabelledArms(logged=6_000, later="drift", rate=0.03), 1000, True
    ),
}
"""Name -> simulated world."""


class Variant(NamedTuple):
    """A policy with one of the settings it may be tuned to.

    words: the setting; make: a spec, or past -> fresh policy.
    """

    policy: str
    words: str
    make: Any


def cold(past: Any) -> Any:
    """The past without its logged rounds, for a peer that starts from nothing."""
    logs = past.logs
    empty = {"features": logs.features[:0], "rewards": logs.rewards[:0]}
    if hasattr(logs, "contexts"):
        empty |= {"contexts": logs.contexts[:0], "arms": logs.arms[:0]}
    return SimpleNamespace(
        dim=past.dim, actions=most_offered(past), logs=SimpleNamespace(**empty)
    )


NEEDS_LOGS = ("mabwiser", "contextualbandits")
"""Packages whose models predict nothing before they have learned something."""


def _peer_variants(name: str, peer: Peer) -> list[Variant]:
    def from_logs(setting: tuple[Any, ...], warm: bool) -> Callable[[Any], Any]:
        return lambda past: peer.make(past if warm else cold(past), *setting)

    starts = (
        {"warm": True} if peer.package in NEEDS_LOGS else {"warm": True, "cold": False}
    )
    return [
        Variant(name, f"{words}, {start}", from_logs(setting, warm))
        for start, warm in starts.items()
        for words, setting in peer.settings.items()
    ]


def variants_in(labelled: bool) -> list[Variant]:
    """Every policy that can play with labelled arms, or without, and every setting it may be tuned to."""
    result = [Variant(AUTO, "as it is", PolicySpec(AUTO))]
    for name in (
        ("linucb", "linucb-warm")
        if labelled
        else ("linucb", "linucb-warm", "isd-linucb")
    ):
        radius = SELF_NORMALISED if name == "isd-linucb" else {}
        for size in EXPLORATIONS:
            spec = PolicySpec(name, {"exploration": size, **radius})
            result.append(Variant(name, f"exploration {size:g}", spec))
    for size, rate, warm in product(EXPLORATIONS_BESIDE_RATES, RATES, (True, False)):
        options = {"exploration": size, "discount": rate, "warm": warm}
        words = f"exploration {size:g}, discount {rate:g}, {'warm' if warm else 'cold'}"
        result.append(Variant("d-linucb", words, PolicySpec("d-linucb", options)))
    for name, peer in PEERS.items():
        if peer.is_installed and (labelled or not peer.labelled):
            result += _peer_variants(name, peer)
    return result


class Played(NamedTuple):
    """Regret of one episode, and microseconds of processor time per round."""

    regret: float
    microseconds: float


def play(make: Any, episode: Any) -> Played:
    """Play one episode through."""
    with warnings.catch_warnings(action="ignore"):
        policy = policy_spec("peer", make).build(episode.past)
        means = episode.means
        total = 0.0
        start = time.process_time()
        for offered, rewards, expected in zip(
            episode.offered, episode.rewards, means, strict=True
        ):
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
        episode = worlds[name].environment.draw(
            worlds[name].horizon, np.random.default_rng(number)
        )
        return [play(player.make, episode) for player in players]

    def all_of(
        name: str, place: int, count: int, players: Sequence[Variant], words: str
    ) -> Array:
        """Regret and microseconds (count, players, 2)."""
        items = [
            (name, cell_seed(seed, 10_000 * place + number), players)
            for number in range(count)
        ]
        return np.array(gather(repetition, items, jobs, progress, words))

    def simulated(place: int, name: str) -> Measured:
        grid = variants_in(worlds[name].labelled)
        tuning = all_of(name, 100 + place, tuning_replications, grid, f"tuning: {name}")
        best: dict[str, tuple[float, Variant]] = {}
        for value, variant in zip(
            tuning[:, :, 0].mean(axis=0).tolist(), grid, strict=True
        ):
            if variant.policy not in best or value < best[variant.policy][0]:
                best[variant.policy] = value, variant
        players = [variant for _, variant in best.values()]
        played = all_of(name, place, replications, players, name)
        return {
            player.policy: (
                played[:, k, 0].tolist(),
                player.words,
                float(np.median(played[:, k, 1])),
            )
            for k, player in enumerate(players)
        }

    def cached(name: str, measure: Callable[..., Measured], *how: Any) -> Measured:
        path = (
            cache and cache / f"{seed} {replications} {tuning_replications} {name}.json"
        )
        if path and path.exists():
            return {
                policy: tuple(of) for policy, of in json.loads(path.read_text()).items()
            }
        measured = measure(*how)
        if path:
            replace_file(path, json.dumps(measured).encode())
        return measured

    at = {
        name: cached(name, simulated, place, name) for place, name in enumerate(worlds)
    }
    on = {name: cached(name, on_real_data, name, seed, jobs, progress) for name in data}
    more = {
        "real": {
            name: {policy: np.array(of[0]) for policy, of in each.items()}
            for name, each in on.items()
        },
        "chosen": {
            name: {policy: of[1] for policy, of in each.items()}
            for name, each in (at | on).items()
        },
        "microseconds": {
            name: {policy: of[2] for policy, of in each.items()}
            for name, each in at.items()
        },
        "tuning": tuning_replications,
    }
    regret = {
        name: {policy: np.array(of[0]) for policy, of in each.items()}
        for name, each in at.items()
    }
    return StudyOutcome(regret, replications, seed, more)


Measured = dict[str, tuple[list[float], str, float]]
"""Policy -> (regret of every repetition or gain of every block, chosen setting, microseconds per round)."""


def on_real_data(
    name: str, seed: int, jobs: int, progress: Progress | None
) -> Measured:
    """Gain per round (blocks,) of every policy on the second half, tuned on the first half."""
    choices: dict[str, dict[str, Any]] = {}
    for variant in variants_in(labelled=False):
        choices.setdefault(variant.policy, {})[variant.words] = variant.make
    data = DATA[name]()
    middle = data.rounds.rounds // 2

    first_half = data.until(middle).scaled(middle)
    tuned = real_study.tune(first_half, choices, REAL_DRAWS, seed, jobs, progress)
    words = {
        policy: tuned[policy].settings
        if policy in tuned
        else next(iter(choices[policy]))
        for policy in choices
    }
    players = {policy: choices[policy][words[policy]] for policy in choices}
    scaled = data.scaled(middle)
    played = real_study.second_half(
        scaled, players, middle, REAL_DRAWS, seed, jobs, progress
    )
    return {
        policy: (real_study.blocks_of(gains).tolist(), words[policy], 0.0)
        for policy, gains in played.items()
    }


def verdicts(outcome: StudyOutcome, *, beside: Collection[str] = ()) -> Judged:
    """Whether AutoISD leads in every world and on every data set: no other policy has a better mean, those
    named in `beside` left out.
    """

    def lead(
        where: str, of: Mapping[str, Array], sign: float, digits: int
    ) -> tuple[Claim, Verdict]:
        """sign: 1 where less is better, −1 where more is."""
        rivals = [name for name in of if name != AUTO and name not in beside]
        rival = min(rivals, key=lambda name: sign * of[name].mean())
        margin = mean_of(sign * (of[AUTO] - of[rival]))
        apart = mean_of(of[AUTO] - of[rival]).with_error(digits, sign="+")
        numbers = f"{of[AUTO].mean():.{digits}f} against {of[rival].mean():.{digits}f} of {rival}, {apart}"
        verdict = decide(margin.value <= 0.0, mean_of(of[AUTO]), numbers, margin)
        return Claim("AutoISD leads", where, lambda _: verdict, policy=AUTO), verdict

    judged = [lead(world, of, 1.0, 1) for world, of in outcome.values.items()]
    for name, of in outcome.more["real"].items():
        judged.append(lead(name, of, -1.0, 1 + real_study.DIGITS[UNITS[name]]))
    return judged


def names_in(outcome: StudyOutcome) -> list[str]:
    """All policies, in the order of their first appearance."""
    return list(
        dict.fromkeys(name for of in outcome.more["chosen"].values() for name in of)
    )


def draw(outcome: StudyOutcome, theme_name: str) -> Figure:
    """Mean regret over the lowest of every world, and the part of the best gain that is missed."""
    names, real = names_in(outcome), outcome.more["real"]
    missing = np.full(1, np.nan)

    def means(of: Mapping[str, Array]) -> Array:
        return np.array([of.get(name, missing).mean() for name in names])

    with theme(theme_name):
        figure = plt.figure(
            figsize=(10.5, 0.27 * len(names) + 2.2), layout="constrained"
        )
        left, right = figure.subplots(1, 2, sharey=True)
        regret = np.array([means(of) for of in outcome.values.values()])
        ratios = regret / np.nanmin(regret, axis=1, keepdims=True)
        heat_map(left, ratios.T, theme_name, MOST_SHOWN, ratio_words)
        left.set_title("mean regret over the lowest")
        gains = np.array([means(of) for of in real.values()])
        missed = 1.0 + 100.0 * (1.0 - gains / np.nanmax(gains, axis=1, keepdims=True))
        heat_map(right, missed.T, theme_name, 101.0, lambda value: f"{value - 1.0:.0f}")
        right.set_title("% of the best gain that is missed")
        for axis, columns in ((left, list(outcome.values)), (right, list(real))):
            axis.set_xticks(
                range(len(columns)),
                columns,
                rotation=35,
                ha="right",
                rotation_mode="anchor",
            )
        left.set_yticks(range(len(names)), names)
    return figure


def _table(outcome: StudyOutcome, columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Policies down, worlds or sets across."""
    rows = zip(names_in(outcome), *columns.values(), strict=True)
    played = (row for row in rows if set(row[1:]) != {"–"})
    return table(("policy", *columns), played)


def _gain_cells(
    of: Mapping[str, Array], names: Sequence[str], digits: int
) -> list[str]:
    """One cell per policy, the highest mean bold."""
    cells, best = [], max(gains.mean() for gains in of.values())
    for name in names:
        cell = mean_of(of[name]).with_error(digits) if name in of else "–"
        cells.append(f"**{cell}**" if name in of and of[name].mean() == best else cell)
    return cells


def _lead_lines(outcome: StudyOutcome) -> list[str]:
    """Where AutoISD has not the best mean, with the reason where it was looked for, and where it has.

    One rule holds in both directions: a difference within two standard errors is a tie.
    """

    def count(judged: Sequence[tuple[Claim, Verdict]]) -> str:
        clear = [verdict for _, verdict in judged if not verdict.close]
        ahead = sum(verdict.reached for verdict in clear)
        behind = len(clear) - ahead
        return (
            f"clearly behind in {behind} of {len(judged)} worlds and data sets, clearly ahead in {ahead},"
            f" and ties in {len(judged) - len(clear)}"
        )

    judged = verdicts(outcome)
    own = [name for name in names_in(outcome) if name not in PEERS]
    against_peers = verdicts(outcome, beside=own)
    lines = [
        f"| {goal.name} | {verdict.numbers}{' (tie)' if verdict.close else ''} | {WHY.get(goal.name, '')} |"
        for goal, verdict in judged
        if not verdict.reached
    ]
    leads = [
        goal.name + " (tie)" * verdict.close
        for goal, verdict in judged
        if verdict.reached
    ]
    return [
        f"Against the best of all other policies AutoISD, which is not tuned, is {count(judged)}. Against the"
        f" best policy of other packages, AutoISD is {count(against_peers)}. A tie is a difference within"
        " two standard errors, whichever mean is better. The best policy is chosen after play, which favours"
        " it.",
        "",
        "The table has the worlds and data sets in which AutoISD does not have the best mean: its regret or"
        " gain against that of the best policy, and the paired difference.",
        "",
        "| world or data set | AutoISD against the best policy | reason, where it was looked into |",
        "|---|---|---|",
        *lines,
        "",
        "| worlds and data sets in which AutoISD has the best mean |",
        "|---|",
        *(f"| {where} |" for where in leads),
        "",
    ]


def report(outcome: StudyOutcome, *, pictures: str | None = None) -> str:
    """The study as a Markdown page."""
    names = names_in(outcome)
    real = outcome.more["real"]
    regret = outcome.values
    missing = sorted({peer.package for peer in PEERS.values() if not peer.is_installed})
    packages = sorted({peer.package for peer in PEERS.values() if peer.is_installed})
    tried = Counter(variant.policy for variant in variants_in(labelled=True))
    grids = ", ".join(f"{name} {count}" for name, count in tried.items())
    chosen = {
        where: [f"`{of[name]}`" if name in of else "–" for name in names]
        for where, of in outcome.more["chosen"].items()
    }
    lines = [
        "# Side by side with other packages",
        "",
        *_lead_lines(outcome),
        *(
            [f"Not installed, so not played: {', '.join(missing)}.", ""]
            if missing
            else []
        ),
        *picture_lines(
            *(
                pictures,
                "peers",
                "Regret and missed gain of every policy in every world",
            ),
            "The left panel has the mean regret of each policy divided by the lowest mean regret of the"
            " column. The right panel shows by what share the gain of each policy is below the best"
            " gain of the column. The best policy of a column is bold.",
        ),
        "## How it was played",
        "",
        "All settings of this comparison were decided before any result was seen.",
        "",
        "| simulated worlds | |",
        "|---|---|",
        f"| repetitions | {outcome.replications} fresh repetitions each with seed {outcome.seed}, none"
        " discarded; all policies of a world play the same logs and rounds |",
        "| peers | every peer plays through its real package; peers with a model per arm play where arms"
        " have labels |",
        "| AutoISD | developed in worlds like these, on other seeds |",
        "",
        "| real data | |",
        "|---|---|",
        "| data sets | the eight sets of [the real data](real.md), prepared as there; their actions have"
        " no labels |",
        "| play | tuned on the first half, played once through the second, with one draw of the logged"
        " actions |",
        "| gain | the reward above the mean action of the round; standard errors are over 26 blocks of"
        " neighbouring rounds |",
        "| AutoISD | earlier versions had been played on these second halves |",
        "",
        "| tuning | |",
        "|---|---|",
        f"| every policy but AutoISD | takes the best setting of its grid, on {outcome.more['tuning']}"
        " other repetitions of the world |",
        "| logs | whether a peer learns the logs first (warm) or not (cold) is part of its grid; mabwiser"
        " and contextualbandits need logs |",
        "| exploration | four sizes, two beside three rates of forgetting (0.97, 0.99, 0.999) |",
        "| paretobandit | also its default of 0.01 |",
        "| vowpalwabbit | three explorations and two schedules of its learning rate |",
        f"| settings in each grid | {grids}, isd-linucb 4 |",
        "| choices at the end of a grid | `gamma_scale` 1000 of vowpalwabbit, exploration 0.01 of linucb:"
        " a wider grid might serve these better |",
        "",
        "| packages | |",
        "|---|---|",
        "| bayesianbandits | draws by Thompson sampling from one linear model |",
        "| its two rules that forget by direction | learn the logs a row at a time, because they forget"
        " nothing within a batch |",
        "| its rules FeatureWise and Exponential | are equal where no feature is 0 |",
        "| vowpalwabbit | learns the logged rounds with all offered actions, as chosen uniformly |",
        "",
        "| looks before this run | |",
        "|---|---|",
        "| one other seed | to check that every peer learns |",
        "| two starts, stopped unread | one to give all policies a lower exploration; one to halve the"
        " labelled rounds and to play one draw of the real data instead of two, for time |",
        "| the run stopped at the first data set, after the simulated worlds had been read |"
        " bayesianbandits had fewer arms than a round offered; it now gets more, and the run went on with"
        " the same settings |",
        "",
        "## Regret",
        "",
        "Each cell has the mean regret of a policy ± its standard error (worst run in brackets). The"
        " lowest mean regret of a column is bold.",
        "",
        *_table(
            outcome,
            {world: with_lowest_bold(of, names) for world, of in regret.items()},
        ),
        "## Gain on real data",
        "",
        "Each cell has the gain per round: mean ± standard error. The highest mean gain of a column is bold.",
        "",
        *_table(
            outcome,
            {
                f"{name}, {UNITS[name]}": _gain_cells(
                    of, names, real_study.DIGITS[UNITS[name]]
                )
                for name, of in real.items()
            },
        ),
        "## Settings that were chosen",
        "",
        *_table(
            outcome,
            {where: cells for where, cells in chosen.items() if where in regret},
        ),
        *_table(
            outcome, {where: cells for where, cells in chosen.items() if where in real}
        ),
        "## Time",
        "",
        "Each cell has the processor time in microseconds to decide and learn one round: the median over"
        " the repetitions, measured while other programs ran on the machine. The page"
        " [Speed](speed.md) measures each package alone.",
        "",
        *_table(
            outcome,
            {
                world: [f"{of[name]:.0f}" if name in of else "–" for name in names]
                for world, of in outcome.more["microseconds"].items()
            },
        ),
        "The packages have these versions: "
        + ", ".join(f"{package} {version(package)}" for package in packages)
        + ".",
        "",
    ]
    return "\n".join(lines)
