"""The loop of a bandit and its dynamic regret: the only place where a policy meets the truth.

Every policy of a repetition plays the same rounds: same logs, same offered features, same noise. What a
repetition draws depends on (seed, repetition) alone, so the result is the same, bit for bit, for any number
of processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

import invariant_bandits
from invariant_bandits import parallel
from invariant_bandits.checks import Array, InputError, whole_number, whole_seed
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.registry import Maker, build_policy, checked_makers
from invariant_bandits.simulation.episodes import Episode
from invariant_bandits.simulation.results import BeliefRow as BeliefRow
from invariant_bandits.simulation.results import SimulationResult as SimulationResult

Progress: TypeAlias = Callable[[int, int], None]
Observer: TypeAlias = Callable[[Any, Episode], Mapping[str, float]]


class Environment(Protocol):
    """Anything that draws episodes, for instance PaperEpisodes."""

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One episode: logged rounds and `horizon` online rounds."""


def simulate(
    policies: Mapping[str, Maker | str] | Sequence[str],
    environment: Environment,
    horizon: int,
    replications: int,
    seed: int,
    jobs: int = 1,
    progress: Progress | None = None,
    *,
    trace: Sequence[int] = (),
    client: Any = None,
    first: int = 0,
    observe: Observer | None = None,
) -> SimulationResult:
    """Play every policy on the same `replications` episodes of `horizon` rounds.

    Parameters
    ----------
    policies : name -> maker, or registered names
        A maker is called with the Past before the first round (or with nothing, if it takes nothing) and
        returns a fresh policy. It may read what a user would have (past.moments, dim, horizon) and, for an
        oracle, past.truth. The name of a registered policy, or a Contender, will do for a maker.
    environment : Environment
        Draws the episodes.
    horizon : int
        Rounds per episode.
    replications : int
        Number of episodes.
    seed : int
        What all randomness comes from.
    jobs : int
        Processes to use. They are forked, so that makers may be lambdas, and one is used where forking is
        missing.
    progress : callable, optional
        Called with (repetitions done, replications) after each.
    trace : sequence of int
        Rounds (from 1) after which policies that have `beliefs()`, such as AutoISD, are asked for them.
    client : distributed.Client, optional
        The repetitions are played on its cluster, with the same bits.
    first : int
        Number of the first repetition. Repetitions i to j − 1 of a larger run are first=i, replications=j −
        i.
    observe : Observer, optional
        Called with each policy after its last round, and the episode. The numbers it returns by name are kept
        as result.observations. If it has `watch(policy, episode)`, what that returns plays in the policy's
        place.

    Returns
    -------
    SimulationResult
        Regret paths of all policies.

    >>> import invariant_bandits as ib
    >>> world = ib.PaperEpisodes(logged=1000)
    >>> result = ib.simulate(["linucb", "auto-isd"], world, 50, replications=2, seed=0)
    >>> sorted(result.regret), result.regret["AutoISD"].shape
    (['AutoISD', 'LinUCB'], (2, 50))
    """
    makers = checked_makers(policies)
    task = _Task(
        makers,
        _checked_environment(environment),
        whole_number("horizon", horizon, 1),
        _checked_trace(trace, horizon),
        observe,
    )
    replications, seed = whole_number("replications", replications, 1), whole_seed(seed)
    jobs, first = min(whole_number("jobs", jobs, 1), replications), whole_number("first", first, 0)
    _check_client(client, jobs)
    regret = {name: np.empty((replications, horizon)) for name in makers}
    beliefs: dict[tuple[str, int], list[BeliefRow]] = {}
    observed: dict[str, dict[str, Array]] = {name: {} for name in makers} if observe is not None else {}
    repetitions = [_Repetition(seed, first + index) for index in range(replications)]
    for done, (index, outcome) in enumerate(
        parallel.map_unordered(task.run, repetitions, jobs, client), start=1
    ):
        for name, (path, believed, noted) in outcome.items():
            regret[name][index] = path
            for quantity, value in noted.items():
                observed[name].setdefault(quantity, np.full(replications, np.nan))[index] = value
            beliefs[name, index] = [BeliefRow(name, first + index, *row) for row in believed]
        if progress is not None:
            progress(done, replications)
    return SimulationResult(
        regret,
        np.arange(1, horizon + 1),
        {
            "seed": seed,
            "horizon": task.horizon,
            "first": first,
            "replications": replications,
            "environment": _described(environment),
            "versions": {"invariant-bandits": invariant_bandits.__version__, "numpy": np.__version__},
        },
        tuple(row for name in makers for index in range(replications) for row in beliefs[name, index]),
        {name: dict(sorted(of.items())) for name, of in observed.items() if of},
    )


def play(policy: Policy, episode: Episode) -> Array:
    """Play one policy through all rounds of an episode: it decides and learns.

    The policy sees copies of the features: whatever it does to them, the next one plays the same rounds.

    Parameters
    ----------
    policy : Policy
        Hand over a fresh one.
    episode : Episode
        T online rounds.

    Returns
    -------
    array, shape (T,)
        Cumulative dynamic regret, in units of the reward.
    """
    return _played(policy, episode, frozenset())[0]


def _played(
    policy: Any, episode: Episode, trace: frozenset[int]
) -> tuple[Array, list[tuple[int, str, float]]]:
    """What `play` returns, and (round, belief, value) after the rounds of `trace`."""
    means = episode.means
    rewards = episode.rewards.tolist()
    select, update, count = policy.select, policy.update, means.shape[1]
    actions, believed = [], []
    for features, reward in zip(episode.offered.copy(), rewards, strict=True):
        action = select(features)
        if not 0 <= action < count:
            raise InputError(f"select must return an action from 0 to {count - 1}, got {action!r}")
        update(features[action], reward[action], offered=features, action=action)
        actions.append(action)
        if len(actions) in trace:
            believed += [(len(actions), name, float(value)) for name, value in policy.beliefs().items()]
    gaps = means.max(axis=1) - means[np.arange(len(actions)), actions]
    return np.cumsum(gaps), believed


class _Repetition(NamedTuple):
    """What the generator of one repetition is seeded with."""

    seed: int
    number: int

    def __str__(self) -> str:
        return f"repetition {self.number} of seed {self.seed}"


@dataclass(frozen=True)
class _Task:
    """What every repetition has in common."""

    makers: Mapping[str, Maker]
    environment: Environment
    horizon: int
    trace: frozenset[int]
    observe: Observer | None = None

    def run(
        self, repetition: _Repetition
    ) -> dict[str, tuple[Array, list[tuple[int, str, float]], dict[str, float]]]:
        """Regret paths (T,), traced beliefs and observations of all policies on the episode of one
        repetition.
        """
        try:
            episode = self.environment.draw(self.horizon, np.random.default_rng(repetition))
            if episode.horizon != self.horizon:
                raise InputError(f"environment must draw {self.horizon} rounds, got {episode.horizon}")
        except Exception as error:
            error.add_note(f"while drawing the episode of {repetition}")
            raise
        outcome = {}
        for name, maker in self.makers.items():
            try:
                policy = build_policy(maker, getattr(episode, "past", episode))
                watch = getattr(self.observe, "watch", None)
                policy = policy if watch is None else watch(policy, episode)
                speaks = callable(getattr(policy, "beliefs", None))
                path, believed = _played(policy, episode, self.trace if speaks else frozenset())
                outcome[name] = (path, believed, dict(self.observe(policy, episode)) if self.observe else {})
            except Exception as error:
                error.add_note(f"while playing policy {name!r} in {repetition}")
                raise
        return outcome


def _described(environment: Any) -> dict[str, Any]:
    """Name and fields of an environment as JSON has them; its words if it has no such fields."""
    kind: Any = type(environment)
    about: dict[str, Any] = {"class": kind.__name__}
    if is_dataclass(environment) and not isinstance(environment, type):
        try:
            return about | {"fields": json.loads(json.dumps(asdict(environment), allow_nan=False))}
        except (TypeError, ValueError):
            pass
    if kind.__repr__ is object.__repr__:
        return about
    return about | {"repr": repr(environment)}


def _checked_environment(environment: Any) -> Environment:
    if not callable(getattr(environment, "draw", None)):
        raise InputError(
            f"environment must have draw(horizon, rng) -> Episode, got {type(environment).__name__}"
        )
    checked: Environment = environment
    return checked


def _checked_trace(trace: Any, horizon: int) -> frozenset[int]:
    rounds = frozenset(whole_number("trace", number, 1) for number in trace)
    if rounds and max(rounds) > horizon:
        raise InputError(f"trace must name rounds from 1 to the horizon {horizon}, got {max(rounds)}")
    return rounds


def _check_client(client: Any, jobs: int) -> None:
    if client is None:
        return
    if not all(callable(getattr(client, method, None)) for method in ("submit", "cancel")):
        raise InputError(f"client must be a distributed.Client, got {type(client).__name__}")
    if getattr(client, "asynchronous", False):
        raise InputError("client must be a synchronous distributed.Client, got an asynchronous one")
    if jobs != 1:
        raise InputError(
            f"jobs must be left at 1 when a client is given, got {jobs}: the cluster does the work"
        )
