"""The loop of a bandit, its dynamic regret, and the result in memory and as a file: the only place where a
policy meets the truth.

Every policy of a repetition plays the same rounds: same logs, same offered features, same noise. What a
repetition draws depends on (seed, repetition) alone, so the result is the same, bit for bit, for any number
of processes.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

import invariant_bandits
from invariant_bandits import parallel, plotting, storage
from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    whole_number,
    whole_seed,
)
from invariant_bandits.optional import require
from invariant_bandits.policies.base import resolved_options
from invariant_bandits.policies.choice import as_policy
from invariant_bandits.policies.registry import PolicySpec, name_of, policy_specs
from invariant_bandits.simulation.episodes import (
    Environment,
    Episode,
    build_policy,
    past_of,
)

if TYPE_CHECKING:
    import pandas

KIND = "simulation"
EXPECTED = "against the largest expected reward"
REALISED = "against the largest realised reward"
BY_REPETITION = "by repetition"
"""What the regret of a result is measured by: `settings["regret"]`. No policy can know the second one."""
Progress: TypeAlias = Callable[[int, int], None]
Observer: TypeAlias = Callable[[Any, Any], Mapping[str, float]]


def simulate(
    policies: Mapping[str, Any] | Sequence[Any],
    environment: Environment,
    horizon: int,
    replications: int,
    seed: int,
    jobs: int = 1,
    progress: Progress | None = None,
    *,
    client: Any = None,
    observe: Observer | None = None,
) -> SimulationResult:
    """Play every policy on the same simulated episodes and return the regret of each policy.

    Parameters
    ----------
    policies : mapping of str to maker, or list of str
        Names of registered policies, or for every name a maker: a function that returns a new policy. A maker
        (function that returns a policy) takes a Past, which holds what is known before the first round, or no
        argument. If `policies` is a mapping, its values may also be names of registered policies. Only
        makers of oracles should read the true coefficients, `past.truth`.
    environment : Environment
        Object that draws the episodes. Regret is measured by the episode's expected rewards (`means`) or,
        without them, by the realised rewards. The entry `settings["regret"]` of the result says whether
        regret was measured by expected or by realised rewards.
    horizon : int
        Number of rounds in every episode.
    replications : int
        Number of episodes.
    seed : int
        Seed of all random numbers.
    jobs : int
        Number of processes. The processes are forked, so makers may be lambdas; on systems without fork, a
        single process is used.
    progress : callable, optional
        Function called after every episode with the number of finished episodes and the total number.
    client : distributed.Client, optional
        Dask cluster that plays the episodes; the result is bit-identical to a local run.
    observe : Observer, optional
        Function called with a policy and the episode after the policy's last round. The result stores
        the numbers that the function `observe` returns. If `observe` has a method
        `watch(policy, episode)`, the object that `watch` returns plays instead of the policy.

    Returns
    -------
    SimulationResult
        Cumulative regret of all policies over the rounds.

    >>> import invariant_bandits as ib
    >>> world = ib.simulation.PaperEpisodes(logged=1000)
    >>> result = ib.simulate(["linucb", "auto-isd"], world, 50, replications=2, seed=0)
    >>> sorted(result.regret), result.regret["auto-isd"].shape
    (['auto-isd', 'linucb'], (2, 50))
    """
    specs = policy_specs(policies)
    replications = whole_number("replications", replications, 1)
    seed = whole_seed(seed)
    jobs = min(whole_number("jobs", jobs, 1), replications)
    horizon = whole_number("horizon", horizon, 1)
    if not callable(getattr(environment, "draw", None)):
        raise InputError(
            f"environment must have draw(horizon, rng), got {type(environment).__name__}"
        )
    if client is not None and (jobs > 1 or not hasattr(client, "submit")):
        raise InputError(
            f"client must be a distributed.Client, with jobs=1, got {client!r} and jobs={jobs}"
        )
    watch = getattr(observe, "watch", lambda policy, _: policy)

    def run(repetition: _Repetition) -> dict[str, _Played]:
        """Play every policy on one episode."""
        doing = "drawing the episode of"
        outcome = {}
        try:
            episode = environment.draw(horizon, np.random.default_rng(repetition))
            _check_episode(episode, horizon)
            for name, spec in specs.items():
                doing = f"playing policy {name!r} in"
                made, warned = _made(spec, past_of(episode))
                options = resolved_options(made)
                policy = watch(made, episode)
                path = play(policy, episode)
                observed = {} if observe is None else observe(policy, episode)
                knows_means = getattr(episode, "means", None) is not None
                outcome[name] = _Played(
                    regret=path,
                    observed=observed,
                    knows_means=knows_means,
                    kind=_kind_of(made),
                    options=options,
                    warned=warned,
                )
        except Exception as error:
            error.add_note(f"while {doing} {repetition}")
            raise
        return outcome

    outcomes: list[Any] = [None] * replications
    said: set[tuple[str, str]] = set()
    repetitions = [_Repetition(seed, index) for index in range(replications)]
    finished = parallel.map_unordered(run, repetitions, jobs, client)
    for done, (index, outcome) in enumerate(finished, start=1):
        outcomes[index] = outcome
        _pass_on_warnings(outcome, said)
        if progress is not None:
            progress(done, replications)
    world: Any = environment
    fields = asdict(world) if hasattr(world, "__dataclass_fields__") else {}
    plays = {name: [outcome[name] for outcome in outcomes] for name in specs}
    knows_means = all(play.knows_means for of in plays.values() for play in of)
    regret: dict[str, Array] = {}
    observations: dict[str, dict[str, Array]] = {}
    for name, of in plays.items():
        regret[name] = np.stack([play.regret for play in of])
        observed = _observations([play.observed for play in of])
        if observed:
            observations[name] = observed
    return SimulationResult(
        regret,
        np.arange(1, horizon + 1),
        {
            "seed": seed,
            "horizon": horizon,
            "replications": replications,
            "regret": EXPECTED if knows_means else REALISED,
            "policies": {
                name: _played_by(specs[name], of) for name, of in plays.items()
            },
            "environment": {
                "class": type(environment).__name__,
                "fields": json.loads(json.dumps(fields, default=str)),
            },
            "versions": {
                "invariant-bandits": invariant_bandits.__version__,
                "numpy": np.__version__,
            },
        },
        observations,
    )


class _Played(NamedTuple):
    """One policy on one episode.

    regret: path (T,); observed: what the observer returned; knows_means: whether the episode's expected
    rewards are known; kind: what the policy is; options: what it was made with; warned: categories and texts
    of the warnings when it was made.
    """

    regret: Array
    observed: Mapping[str, float]
    knows_means: bool
    kind: str
    options: Mapping[str, Any]
    warned: Sequence[tuple[type[Warning], str]]


def _made(spec: PolicySpec, past: Any) -> tuple[Any, list[tuple[type[Warning], str]]]:
    """Return a fresh policy, and the warnings of making it, which a worker process cannot show."""
    with warnings.catch_warnings(record=True) as caught:
        policy = build_policy(spec, past)
    return policy, [(warning.category, str(warning.message)) for warning in caught]


def _pass_on_warnings(
    outcome: Mapping[str, _Played], said: set[tuple[str, str]]
) -> None:
    """Warn of what was warned of when policies were made, each warning once."""
    for name, played in outcome.items():
        for category, message in played.warned:
            if (name, message) not in said:
                said.add((name, message))
                warnings.warn(f"policy {name!r}: {message}", category, stacklevel=3)


def _kind_of(policy: Any) -> str:
    """The registered name of a policy, or the name of its class."""
    try:
        return name_of(policy)
    except InputError:
        kind = type(policy)
        return f"{kind.__module__}.{kind.__qualname__}"


def _played_by(spec: PolicySpec, plays: Sequence[_Played]) -> dict[str, Any]:
    """Return what played under a name: its kind, the options that were given, and all with their values.

    Options that were estimated from the logs of each repetition, and differ, have the value "by repetition".
    """
    first = plays[0].options
    resolved = dict(first)
    for name, value in first.items():
        if any(play.options.get(name) != value for play in plays):
            resolved[name] = BY_REPETITION
    return {
        "kind": spec.name if spec.kind is None else plays[0].kind,
        "options": json.loads(json.dumps(dict(spec.options), default=str)),
        "resolved": resolved,
    }


def _check_episode(episode: Any, horizon: int) -> None:
    """Raise unless an episode has so many rounds, and the rewards of all that they offer."""
    if not isinstance(episode, Episode):
        raise InputError(
            f"environment must draw offered (T, K, p) and rewards (T, K), got {episode!r:.80}"
        )
    offered = finite_array("offered", episode.offered, (horizon, "K", "p"))
    finite_array("rewards", episode.rewards, offered.shape[:2])
    if (means := getattr(episode, "means", None)) is not None:
        finite_array("means", means, offered.shape[:2])


def _observations(rows: list[Mapping[str, float]]) -> dict[str, Array]:
    """Quantity -> its value in each repetition (replications,), NaN where it was not noted."""
    quantities = sorted({quantity for numbers in rows for quantity in numbers})
    return {
        quantity: np.array([of.get(quantity, np.nan) for of in rows], float)
        for quantity in quantities
    }


def play(policy: Any, episode: Episode) -> Array:
    """Play one policy through all rounds of an episode: it decides and learns.

    The policy sees copies of the features: one that changes them leaves the rounds of the others alone.

    Parameters
    ----------
    policy : Policy, or an object with `select` and `update`
        Hand over a fresh one.
    episode : Episode
        T online rounds.

    Returns
    -------
    array, shape (T,)
        Cumulative dynamic regret, in units of the reward.
    """
    means = getattr(episode, "means", None)
    means = episode.rewards if means is None else means
    rewards = episode.rewards.tolist()
    policy = as_policy(policy)
    select = policy.select
    update = policy.update
    count = means.shape[1]
    actions = []
    for features, reward in zip(episode.offered.copy(), rewards, strict=True):
        action = select(features)
        if not 0 <= action < count:
            raise InputError(
                f"select must return an action from 0 to {count - 1}, got {action!r}"
            )
        update(features[action], reward[action], offered=features, action=action)
        actions.append(action)
    gaps = means.max(axis=1) - means[np.arange(len(actions)), actions]
    return np.cumsum(gaps)


class _Repetition(NamedTuple):
    """What the generator of one repetition is seeded with."""

    seed: int
    number: int

    def __str__(self) -> str:
        return f"repetition {self.number} of seed {self.seed}"


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult(plotting.ShownInNotebooks):
    """Cumulative regret of policies that played the same simulated episodes.

    Regret compares the chosen action of every round with the best action of that round (dynamic regret).

    Parameters
    ----------
    regret : mapping of policy to array, shape (replications, R)
        Cumulative regret of each policy in each episode, after each of R recorded rounds. The regret of a
        round, in units of the reward, is the largest expected reward of an offered action minus the expected
        reward of the chosen action. Where expected rewards are not known, realised rewards take their place.
    rounds : array of int, shape (R,)
        Rounds, counted from 1, to which the columns of `regret` belong.
    settings : dict
        Seed, horizon, number of episodes, environment and versions of the software. Under "policies" stands
        what played under each name: its `kind`, the `options` that were given, and under `resolved` all
        options with the values that were used; the value "by repetition" means that it was estimated from
        the logs of each episode.
    observations : mapping of policy to mapping of quantity to array, shape (replications,)
        Numbers that the function `observe` returned for each policy after its last round.

    >>> import invariant_bandits as ib
    >>> world = ib.simulation.PaperEpisodes(logged=200)
    >>> result = ib.simulate(["linucb", "uniform"], world, 50, replications=3, seed=0)
    >>> result.replications, result.final("linucb").shape, result.at([10]).rounds.tolist()
    (3, (3,), [10, 50])
    >>> bool(result.final("linucb").mean() < result.final("uniform").mean())
    True
    """

    regret: dict[str, Array]
    rounds: Array
    settings: dict[str, Any] = field(default_factory=dict)
    observations: dict[str, dict[str, Array]] = field(default_factory=dict)

    @property
    def replications(self) -> int:
        """Number of simulated episodes."""
        return len(next(iter(self.regret.values())))

    def final(self, policy: str) -> Array:
        """Return the cumulative regret of one policy at the end of every episode (replications,)."""
        return np.asarray(self.regret[policy][:, -1])

    def at(self, rounds: Sequence[int]) -> SimulationResult:
        """Return the result with only the given rounds (counted from 1) and the last round."""
        wanted = [*rounds, int(self.rounds[-1])]
        if missing := set(wanted).difference(self.rounds.tolist()):
            raise InputError(
                f"rounds must be among those that were recorded, got {min(missing)}"
            )
        columns = np.isin(self.rounds, wanted)
        regret = {name: path[:, columns] for name, path in self.regret.items()}
        return replace(self, regret=regret, rounds=self.rounds[columns])

    def rows(self) -> list[dict[str, Any]]:
        """Return a mapping for each policy with mean, standard error, median and maximum of the final regret.

        The policy with the lowest mean regret comes first.
        """
        rows: list[dict[str, Any]] = []
        for name in self.regret:
            ends = self.final(name)
            numbers = {
                "mean": ends.mean(),
                "standard_error": _error(ends),
                "median": np.median(ends),
            }
            of = {
                part: float(value)
                for part, value in (numbers | {"worst": ends.max()}).items()
            }
            rows.append(
                {
                    "policy": name,
                    **of,
                    "replications": len(ends),
                    "rounds": int(self.rounds[-1]),
                }
            )
        return sorted(rows, key=lambda row: float(row["mean"]))

    def to_frame(self, *, by_round: bool = False) -> pandas.DataFrame:
        """Return mean, standard error, median and maximum of every policy's final regret as a pandas frame.

        With `by_round=True` the frame has a row per policy, episode and round. The method needs pandas.
        """
        frame = require("pandas", "to_frame").DataFrame
        if not by_round:
            return frame(self.rows())
        names, columns = np.array(list(self.regret), dtype=object), self._columns()
        return frame(columns | {"policy": names[columns["policy"]]})

    def summary(self) -> str:
        """Return a readable table of the final regret of every policy, the lowest mean first."""
        wide = max(len(name) for name in ("policy", *self.regret))
        measured = f", {REALISED}" if self.settings.get("regret") == REALISED else ""
        lines = [
            f"Regret after {int(self.rounds[-1]):,} rounds, {self.replications} repetitions{measured}",
            f"{'policy':<{wide}} {'mean':>10} {'std. err.':>10} {'median':>10} {'worst':>10}",
        ]
        for row in self.rows():
            numbers = (
                row[part] for part in ("mean", "standard_error", "median", "worst")
            )
            lines.append(
                f"{row['policy']:<{wide}} "
                + " ".join(f"{number:>10.4g}" for number in numbers)
            )
        return "\n".join(lines)

    def plot(self, axes: Any = None, *, theme: str = "light") -> Any:
        """Draw the mean regret over the rounds with bands of two standard errors (needs matplotlib).

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Axes to draw on; a new figure by default.
        theme : "light" or "dark"
            Colour theme of the lines and of a new figure.

        Returns
        -------
        Axes
        """
        paths = {
            name: (path.mean(axis=0), _error(path))
            for name, path in self.regret.items()
        }
        words = "cumulative regret"
        return plotting.regret_paths(
            self.rounds, paths, axes=axes, theme_name=theme, words=words
        )

    __str__ = summary

    def __repr__(self) -> str:
        played = f"{self.replications} repetitions of {int(self.rounds[-1]):,} rounds"
        return f"SimulationResult({', '.join(self.regret)}; {played})"

    def _columns(self) -> dict[str, Array]:
        """One entry per policy (its index), replication and round, and the regret there."""
        stacked = np.stack(list(self.regret.values()))
        policy, replication, column = (
            index.ravel() for index in np.indices(stacked.shape)
        )
        return {
            "policy": policy,
            "replication": replication,
            "round": self.rounds[column],
            "regret": stacked.ravel(),
        }

    # -- storing --

    def save(self, path: str | PathLike[str]) -> None:
        """Write the result to a Parquet file with columns policy, replication, round and regret.

        An existing file is replaced in one step. The settings, observations and a checksum are stored as JSON
        in the metadata of the Parquet file. The method needs pyarrow.
        """
        arrow = _pyarrow("save")
        sink = arrow.BufferOutputStream()
        arrow.parquet.write_table(
            self._table(),
            sink,
            compression="zstd",
            use_dictionary=["policy", "replication", "round"],
            column_encoding={"regret": "BYTE_STREAM_SPLIT"},
        )
        storage.replace_file(path, sink.getvalue().to_pybytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SimulationResult:
        """Return the result that the method `save` wrote to a file, bit for bit.

        A file that is damaged, newer than this version, or not a saved result raises FileError.
        """
        arrow = _pyarrow("load")
        content = Path(path).read_bytes()
        try:
            table = arrow.parquet.read_table(arrow.BufferReader(content))
            header = json.loads(
                (table.schema.metadata or {}).get(storage.PRODUCT.encode(), b"{}")
            )
            kind, version = header.get("kind"), header.get("format")
        except Exception as error:
            raise storage.FileError(f"{path} is damaged or foreign: {error}") from None
        if (kind, version) != (KIND, storage.FORMAT_VERSION):
            raise storage.FileError(
                f"{path} is not a simulation written by {storage.PRODUCT} in format {storage.FORMAT_VERSION}"
            )
        try:
            result = cls._from_table(table, json.loads(header["about"]))
            if not result._table().equals(table, check_metadata=True):
                raise ValueError("its checksum does not match its content")
        except Exception as error:
            raise storage.FileError(f"{path} is damaged: {error}") from None
        return result

    @classmethod
    def may_replace(cls, path: str | PathLike[str]) -> bool:
        """Return whether a file is empty or a stored simulation, which may be replaced even if damaged."""
        arrow = _pyarrow("load")
        try:
            return storage.PRODUCT.encode() in (
                arrow.parquet.read_schema(path).metadata or {}
            )
        except (arrow.ArrowException, OSError):
            return Path(path).read_bytes()[:4] in (b"", b"PAR1")  # cut off

    @classmethod
    def _from_table(cls, table: Any, about: dict[str, Any]) -> SimulationResult:
        names, rounds = about["policies"], np.array(about["rounds"], dtype=np.int64)
        values = table.column("regret").to_numpy().reshape(len(names), -1, len(rounds))
        observations = {
            name: {
                quantity: np.array(numbers, dtype=np.float64)
                for quantity, numbers in of.items()
            }
            for name, of in about["observations"].items()
        }
        regret = dict(zip(names, values.copy(), strict=True))
        return cls(regret, rounds, about["settings"], observations)

    def _table(self) -> Any:
        """The Arrow table that is stored, its checksum in its metadata."""
        arrow = _pyarrow("save")
        about = {
            "policies": list(self.regret),
            "rounds": self.rounds,
            "settings": self.settings,
            "observations": self.observations,
        }
        described = json.dumps(
            about, sort_keys=True, default=lambda array: array.tolist()
        )
        columns = self._columns()
        header = {
            "format": storage.FORMAT_VERSION,
            "kind": KIND,
            "about": described,
            "sha256": storage.digest(KIND, described, columns),
        }
        policy = arrow.DictionaryArray.from_arrays(
            columns["policy"].astype(np.int32), list(self.regret)
        )
        return arrow.table(
            {"policy": policy}
            | {name: columns[name] for name in ("replication", "round", "regret")},
            metadata={storage.PRODUCT: json.dumps(header, sort_keys=True)},
        )


def _error(values: Array) -> Array:
    """Standard error of the mean over the first axis, 0 for a single repetition."""
    return np.asarray(
        values.std(axis=0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values))
    )


def _pyarrow(caller: str) -> Any:
    require("pyarrow.parquet", caller)
    return require("pyarrow", caller)
