"""The loop of a bandit and its dynamic regret: the only place where a policy meets the truth.

Every policy of a repetition plays the same rounds: same logs, same offered features, same noise. What a repetition
draws depends on (seed, repetition) alone, so the result is the same, bit for bit, for any number of processes.
"""

from __future__ import annotations

import inspect
import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.environments.episodes import Episode
from invariant_bandits.policies.base import Policy

if TYPE_CHECKING:
    import pandas

Maker: TypeAlias = Callable[[Episode], Policy]
Progress: TypeAlias = Callable[[int, int], None]


class Environment(Protocol):
    """Anything that draws episodes, for instance PaperEpisodes."""

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One world, its logs and `horizon` online rounds."""


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """regret: policy -> (replications, horizon), cumulative: Σ_{s≤t} max_a φ_s(a)ᵀγ_s − φ_s(a_s)ᵀγ_s."""

    regret: dict[str, Array]

    def final(self, policy: str) -> Array:
        """Regret of one policy at the end of each repetition (replications,)."""
        return np.asarray(self.regret[policy][:, -1])

    def to_frame(self) -> pandas.DataFrame:
        """One line per policy, replication (from 0) and round (from 1); needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "to_frame needs pandas, which is not installed: pip install 'invariant-bandits[frames]'"
            ) from None
        names = list(self.regret)
        stacked = np.stack([self.regret[name] for name in names])
        policy, replication, time = (index.ravel() for index in np.indices(stacked.shape))
        return pandas.DataFrame(
            {
                "policy": np.array(names, dtype=object)[policy],
                "replication": replication,
                "round": time + 1,
                "regret": stacked.ravel(),
            }
        )


def simulate(
    policies: Mapping[str, Maker],
    environment: Environment,
    horizon: int,
    replications: int,
    seed: int,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SimulationResult:
    """Play every policy on the same `replications` episodes of `horizon` rounds.

    policies: name -> maker; a maker is called with the Episode before its first round (or with nothing, if it takes
    nothing) and returns a fresh policy. It may read what a user would have (episode.moments, dim, horizon) and, for an
    oracle, the truth (episode.logs.split).
    jobs: processes to use; they are forked, so that makers may be lambdas, and one is used where forking is missing.
    progress: called with (repetitions done, replications) after each.
    """
    task = _Task(_checked_makers(policies), _checked_environment(environment), whole_number("horizon", horizon, 1))
    replications, seed = whole_number("replications", replications, 1), whole_number("seed", seed, 0)
    jobs = min(whole_number("jobs", jobs, 1), replications)
    regret = {name: np.empty((replications, horizon)) for name in policies}
    seeds = [(seed, repetition) for repetition in range(replications)]
    for done, (repetition, outcome) in enumerate(forked(task.run, seeds, jobs), start=1):
        for name, path in outcome.items():
            regret[name][repetition] = path
        if progress is not None:
            progress(done, replications)
    return SimulationResult(regret)


def play(policy: Policy, episode: Episode) -> Array:
    """Cumulative dynamic regret (T,) of a policy that decides and learns through all rounds of an episode.

    The policy sees copies of the features: whatever it does to them, the next one plays the same rounds.
    """
    regret = np.empty(episode.horizon)
    means = episode.means
    gaps = means.max(axis=1, keepdims=True) - means
    rewards = means + episode.noise[:, None]
    for t, features in enumerate(episode.offered.copy()):
        action = policy.select(features)
        if not 0 <= action < len(features):
            raise InputError(f"select must return an action from 0 to {len(features) - 1}, got {action!r}")
        policy.update(features[action], rewards[t, action], offered=features, action=action)
        regret[t] = gaps[t, action]
    return np.cumsum(regret)


@dataclass(frozen=True)
class _Task:
    """What every repetition has in common."""

    makers: Mapping[str, Maker]
    environment: Environment
    horizon: int

    def run(self, seed: tuple[int, int]) -> dict[str, Array]:
        """Regret paths (T,) of all policies on the episode of one repetition."""
        episode = self.environment.draw(self.horizon, np.random.default_rng(seed))
        if episode.horizon != self.horizon:
            raise InputError(f"environment must draw {self.horizon} rounds, got {episode.horizon}")
        paths = {}
        for name, maker in self.makers.items():
            try:
                policy = _made(maker, episode)
                for method in ("select", "update"):
                    if not callable(getattr(policy, method, None)):
                        raise InputError(f"its maker must return a policy, got {type(policy).__name__}")
                paths[name] = play(policy, episode)
            except Exception as error:
                error.add_note(f"while playing policy {name!r} in repetition {seed[1]} of seed {seed[0]}")
                raise
        return paths


def _made(maker: Any, episode: Episode) -> Any:
    """Call a maker with the episode, or without it if it takes nothing."""
    try:
        takes_nothing = not inspect.signature(maker).parameters
    except (TypeError, ValueError):
        takes_nothing = False
    return maker() if takes_nothing else maker(episode)


def forked(function: Callable[[Any], Any], arguments: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """(index, function(arguments[index])) as they are finished, in `jobs` forked processes where there is forking.

    What the function holds is inherited, never pickled: it may be a closure over large arrays. Arguments and results
    are pickled.
    """
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        for index, argument in enumerate(arguments):
            yield index, function(argument)
        return
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=fork, initializer=_begin_worker, initargs=(function,)) as pool:
        with warnings.catch_warnings():  # threads of the caller do no harm: workers use none of their locks
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            waiting = {pool.submit(_call_in_worker, argument): index for index, argument in enumerate(arguments)}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(function: Callable[[Any], Any]) -> None:
    """Keep the function that the fork has inherited."""
    global _inherited
    _inherited = function


def _call_in_worker(argument: Any) -> Any:
    return _inherited(argument)


_inherited: Callable[[Any], Any]


def _checked_makers(policies: Any) -> Mapping[str, Maker]:
    if not isinstance(policies, Mapping):
        raise InputError(f"policies must map names to makers, got {type(policies).__name__}")
    if not policies:
        raise InputError("policies is empty: at least one name and maker are needed")
    for name, maker in policies.items():
        if not isinstance(name, str):
            raise InputError(f"policies must have strings as names, got {name!r}")
        if not callable(maker):
            raise InputError(
                f"policies[{name!r}] must be callable, episode -> policy, got {type(maker).__name__}:"
                " every repetition needs a fresh policy"
            )
    return dict(policies)


def _checked_environment(environment: Any) -> Environment:
    if not callable(getattr(environment, "draw", None)):
        raise InputError(f"environment must have draw(horizon, rng) -> Episode, got {type(environment).__name__}")
    checked: Environment = environment
    return checked
