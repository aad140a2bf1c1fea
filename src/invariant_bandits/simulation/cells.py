"""Cells of an experiment: one world, played by some policies; run once, stored, and read again by every
analysis; and grids of them, from TOML files.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import invariant_bandits
from invariant_bandits.checks import Array, InputError, whole_number, whole_seed
from invariant_bandits.decomposition.recipes import find_recipe
from invariant_bandits.policies.choice import SelectingPolicy
from invariant_bandits.policies.past import ForgetsNothingWarning
from invariant_bandits.policies.registry import PolicySpec, find_policy
from invariant_bandits.simulation.episodes import (
    ENVIRONMENTS,
    Environment,
    KnownEpisode,
    described,
)
from invariant_bandits.simulation.loop import Observer, SimulationResult, simulate
from invariant_bandits.storage import FileError, flatten, read_toml, replace_file

PACKAGE = Path(invariant_bandits.__file__).parent
PLAYING = (
    "checks.py",
    "moments",
    "decomposition",
    "policies",
    "simulation",
)
"""Sources of the package that decide what a cell holds."""


@cache
def fingerprint(modules: tuple[str, ...] = ()) -> str:
    """A digest of the sources that play, and of `modules` that are not in the package."""
    digest = hashlib.sha256()
    for source in sorted(sources()):
        digest.update(source.read_bytes())
    for module in modules:
        origin = getattr(sys.modules.get(module), "__file__", None)
        if origin is not None and not module.startswith(
            f"{invariant_bandits.__name__}."
        ):
            digest.update(Path(origin).read_bytes())
    return digest.hexdigest()


def sources() -> set[Path]:
    """Files of the package that decide what a cell holds."""
    roots = [PACKAGE / name for name in PLAYING]
    return {
        path
        for root in roots
        for path in (root.rglob("*.py") if root.is_dir() else [root])
    }


def estimated_split(policy: Any, episode: KnownEpisode) -> dict[str, float]:
    """How the policy's split compares with the true one; nothing for a policy that has none."""
    split = getattr(policy, "split", None)
    if split is None:
        return {}
    truth = episode.logs.split
    return {
        "right dimensions": float(split.invariant_dim == truth.invariant_dim),
        "invariant dimensions": float(split.invariant_dim),
        "projection error": float(split.distance(truth)),
        "component error": float(
            np.linalg.norm(np.asarray(policy.component) - episode.logs.component)
        ),
    }


class PolicyProbe(SelectingPolicy):
    """Plays in a policy's place and compares it with the truth in every round before it decides.

    A subclass says in `compare` what it notes.
    """

    def __init__(self, policy: Any, episode: KnownEpisode) -> None:
        super().__init__(policy)
        self.means: Array = episode.means
        self.rounds = 0

    def compare(self, features: Any, means: Array) -> None:
        """Note how the policy judges the offered actions (K, p), whose expected rewards are `means` (K,)."""
        raise NotImplementedError

    def select(self, features: Any) -> int:
        """The policy's own choice."""
        self.compare(features, self.means[self.rounds])
        self.rounds += 1
        return super().select(features)

    def update(self, features: Any, reward: float, **round_: Any) -> None:
        """As the policy."""
        self.policy.update(features, reward, **round_)


class CoverageProbe(PolicyProbe):
    """Counts the rounds in which an offered action has its true mean outside mean ± width."""

    uncovered = 0

    def compare(self, features: Any, means: Array) -> None:
        """Count the round if there is such an action."""
        scores = self.policy.scores(features)
        self.uncovered += bool((np.abs(scores.mean - means) > scores.width).any())


class Coverage:
    """Coverage of all offered actions by mean ± width: the share of rounds, and whether all were covered."""

    watch = CoverageProbe

    def __call__(self, probe: CoverageProbe, episode: KnownEpisode) -> dict[str, float]:
        """What the probe has seen."""
        share = 1.0 - probe.uncovered / probe.rounds
        return {"covered": float(probe.uncovered == 0), "rounds covered": share}


OBSERVERS: Mapping[str, Observer] = {"split": estimated_split, "coverage": Coverage()}


KEPT_ROUNDS = 50
"""Rounds of a regret curve that a stored cell keeps: more than a picture can tell apart."""
OVERWRITING = (
    "{} would be overwritten, and no run wrote it; use another folder or --force"
)
LOCK = ".lock"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Cell:
    """One world, `horizon` rounds of it, and who plays them.

    name: unique within a run, and that of its file; policies: what plays by its name, a PolicySpec where the
    cell is stored; observe: what is noted of every policy beside its regret, an observer or one of OBSERVERS
    by its name. The rounds depend on (seed, environment, horizon) alone: adding a policy does not change
    them.
    """

    name: str
    environment: Environment
    horizon: int
    policies: Mapping[str, Any]
    observe: str | Observer | None = None

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result but for seed and replications, as plain data."""
        policies = {
            name: {"kind": who.name, **who.options}
            for name, who in self.policies.items()
        }
        environment = described(self.environment)
        world = {"environment": environment, "horizon": self.horizon}
        return {**world, "policies": policies, "observe": self.observe}

    @classmethod
    def from_settings(cls, name: str, settings: Mapping[str, Any]) -> Cell:
        """Return the cell of which `settings` made this plain data, also after a way through JSON."""
        environment = dict(settings["environment"])
        kind = ENVIRONMENTS.find(environment.pop("kind")).kind
        policies = {
            label: _policy_spec(label, options)
            for label, options in settings["policies"].items()
        }
        return cls(
            name,
            _rebuilt(kind, environment),
            settings["horizon"],
            policies,
            settings["observe"],
        )

    def seed(self, seed: int) -> int:
        """The cell's own seed."""
        world = {
            "environment": described(self.environment, seeded=True),
            "horizon": self.horizon,
        }
        words = np.frombuffer(
            hashlib.sha256(_plain(world)).digest()[:16], dtype=np.uint32
        )
        return int(
            np.random.SeedSequence((seed, *map(int, words))).generate_state(
                1, np.uint64
            )[0]
        )

    def identity(self, replications: int, seed: int) -> str:
        """A fingerprint of all that determines the result."""
        run = {
            "replications": replications,
            "seed": seed,
            "code": fingerprint(self.modules()),
        }
        everything = self.settings() | run
        return hashlib.sha256(_plain(everything)).hexdigest()[:12]

    def modules(self) -> tuple[str, ...]:
        """Modules that define its policies, their recipes and its world, those of the user included."""
        recipes = {
            find_recipe("published").__module__
            for who in self.policies.values()
            if who.options.get("split") == "published"
        }
        kinds = [kind for who in self.policies.values() for kind in who.layers()]
        return tuple(
            sorted(
                recipes | {kind.__module__ for kind in (*kinds, type(self.environment))}
            )
        )

    def play(
        self,
        replications: int,
        seed: int,
        jobs: int,
        progress: Callable[[int, int], None],
        client: Any = None,
    ) -> SimulationResult:
        """All rounds of all repetitions; the parameters are those of `simulate`."""
        observe = (
            OBSERVERS[self.observe] if isinstance(self.observe, str) else self.observe
        )
        world = dict(self.policies), self.environment, self.horizon
        return simulate(
            *world, replications, seed, jobs, progress, client=client, observe=observe
        )

    def kept_rounds(self) -> list[int]:
        """The rounds whose regret is stored: about KEPT_ROUNDS of them, evenly spaced, the last included."""
        step = max(1, self.horizon // KEPT_ROUNDS)
        return list(range(self.horizon, 0, -step))[::-1]


@dataclass
class Tally:
    """Progress over many cells.

    progress: called with the cell, the repetitions done so far and those of all cells; total: the latter.
    """

    progress: Progress | None
    total: int
    begun: int = 0

    def begin(self, name: str, replications: int) -> Callable[..., None]:
        """Begin the next cell; what it returns is called with the repetitions of that cell that are done."""
        before, self.begun = self.begun, self.begun + replications

        def note(done: int, _: int = 0) -> None:
            if self.progress is not None:
                self.progress(name, before + done, self.total)

        return note


def run(
    cells: Iterable[Cell],
    folder: Path,
    *,
    replications: int,
    seed: int,
    jobs: int = 1,
    client: Any = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    force: bool = False,
) -> dict[str, SimulationResult]:
    """Return the results of all cells by name.

    A cell whose file exists and fits is read, the others are played and stored.

    Cells are finished one by one and their files appear whole or not at all, so that a run that was
    interrupted goes on where it stopped and ends with the same bytes. A folder belongs to one run at a time:
    another one is refused. `notice` hears of files that do not fit and are replayed; files that no run has
    written are refused unless `force` is given.
    """
    wanted = {folder / f"{cell.name}.parquet": cell for cell in cells}
    for path in () if force else wanted:
        if path.exists() and not SimulationResult.may_replace(path):
            raise InputError(OVERWRITING.format(path))
    results: dict[str, SimulationResult] = {}
    tally, loaded = Tally(progress, replications * len(wanted)), set[str]()
    with only_run_in(folder):
        for path, cell in wanted.items():
            note = tally.begin(cell.name, replications)
            identity = cell.identity(replications, seed)
            result = stored(path, identity)
            if result is None:
                if path.exists() and notice is not None:
                    notice(
                        f"{path} is damaged, or of other settings or code: it is played again"
                    )
                if jobs > 1:
                    load_compiled_code([cell], loaded)
                played = cell.play(replications, cell.seed(seed), jobs, note, client)
                noted = {
                    "identity": identity,
                    "cell": cell.settings(),
                    "run_seed": seed,
                }
                result = replace(
                    played.at(cell.kept_rounds()), settings=played.settings | noted
                )
                result.save(path)
            results[cell.name] = result
            note(replications)
    return results


def tidy_rows(results: Mapping[str, SimulationResult]) -> list[dict[str, Any]]:
    """Return one mapping per cell and policy.

    It has the cell's name, those of its settings in which cells differ, and what `SimulationResult.rows`
    says of the policy.
    """
    worlds = {name: result.settings["environment"] for name, result in results.items()}
    settings = {
        name: {"environment": of["class"], **flatten(of["fields"])}
        for name, of in worlds.items()
    }
    parts = dict.fromkeys(part for of in settings.values() for part in of)
    varied = [
        part
        for part in parts
        if len({json.dumps(of.get(part)) for of in settings.values()}) > 1
    ]
    return [
        {"cell": name, **{part: settings[name].get(part) for part in varied}, **row}
        for name, result in results.items()
        for row in result.rows()
    ]


def regret_words(finals: Array) -> str:
    """Mean ± standard error (worst) of the regrets at the horizon (n,)."""
    error = finals.std(ddof=1) / len(finals) ** 0.5
    return f"{finals.mean():.1f} ± {error:.1f} ({finals.max():.0f})"


def write_tidy(results: Mapping[str, SimulationResult], path: Path) -> Path:
    """Write the `tidy_rows` as CSV, replacing the file in one step."""
    text, rows = io.StringIO(), tidy_rows(results)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_file(path, text.getvalue().encode())
    return path


def load_compiled_code(cells: Iterable[Cell], loaded: set[str] | None = None) -> None:
    """Play a few rounds of each policy not in `loaded`, so that its inner loops are compiled and stored.

    Forked workers then inherit the compiled code.
    """
    loaded = set() if loaded is None else loaded
    for cell in cells:
        fresh = {
            name: who for name, who in cell.policies.items() if repr(who) not in loaded
        }
        if fresh:
            # A memory forgets nothing in so few rounds.
            with warnings.catch_warnings(
                action="ignore", category=ForgetsNothingWarning
            ):
                simulate(fresh, cell.environment, min(cell.horizon, 30), 1, 0)
        loaded.update(map(repr, cell.policies.values()))


def stored(path: Path, identity: str | None = None) -> SimulationResult | None:
    """The result in a file, if it is there, readable, and has this identity."""
    try:
        result = SimulationResult.load(path)
    except (FileNotFoundError, FileError):
        return None
    return result if identity in (None, result.settings.get("identity")) else None


def belongs(cell: Cell, result: SimulationResult, replications: int, seed: int) -> bool:
    """Whether a stored result is one of this cell in this run, also if the code has changed since."""
    noted, wanted = result.settings, json.loads(_plain(cell.settings()))
    same_run = (noted.get("run_seed"), result.replications) == (seed, replications)
    return same_run and _plain(noted.get("cell") or {}) == _plain(wanted)


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Hold a folder for one run; InputError if another run holds it. The lock ends with the process."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = f"another run is writing into {folder}; wait until it has ended, or use another folder"
            raise InputError(words) from None
        yield


def _plain(settings: Mapping[str, Any]) -> bytes:
    return json.dumps(settings, sort_keys=True, default=str).encode()


MOST_CELLS = 10_000
"""Cells of a grid: more would be a mistake in a file, at a second each they take three hours."""
TOP = ("replications", "horizon", "seed", "environment", "policies")


@dataclass(frozen=True)
class Grid:
    """What a configuration asks for."""

    cells: list[Cell]
    replications: int
    seed: int


def read_grid(path: Path) -> Grid:
    """Read a grid of worlds and policies from a TOML file: every combination of its lists is a cell.

    replications = 50
    horizon = 500
    seed = 1

    [environment]               # kind = "paper" if nothing is said; its fields; a list means: each of these
    logged = [1000, 8000]
    violation = [0.0, 2.0]
    [environment.world]         # fields of a part of it
    drift = 1.0

    [policies.linucb]           # the name is that of a registered policy, unless `kind` says otherwise
    [policies."LinUCB, tuned"]
    kind = "linucb"
    exploration = 0.3

    Every error names the file and the entry.
    """
    config = read_toml(path)
    try:
        return grid_of(config)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def grid_of(config: Mapping[str, Any]) -> Grid:
    """The grid of a configuration that is already a dictionary."""
    entries = _table(_table(config, "the file", TOP).get("policies", {}), "policies")
    if not entries:
        raise InputError(
            "[policies] is empty: at least one policy is needed, for instance [policies.LinUCB]"
        )
    policies = {name: _policy_spec(name, options) for name, options in entries.items()}
    environment = dict(_table(config.get("environment", {}), "environment"))
    worlds = _worlds(
        ENVIRONMENTS.find(environment.pop("kind", "paper")).kind, environment
    )
    horizons = config.get("horizon", 500)
    horizons = horizons if isinstance(horizons, list) else [horizons]
    _require_few(len(worlds) * len(horizons))
    cells = []
    for horizon, (words, world) in product(horizons, worlds):
        whole_number("horizon", horizon, 1)
        parts = [*words, *([f"horizon={horizon}"] if len(horizons) > 1 else [])]
        cells.append(
            Cell(",".join(parts).replace("/", "-") or "world", world, horizon, policies)
        )
    replications = whole_number("replications", config.get("replications", 20), 2)
    return Grid(cells, replications, whole_seed(config.get("seed", 0)))


def _policy_spec(name: str, options: Any) -> PolicySpec:
    given = dict(_table(options, f"policies.{name}"))
    policy = find_policy(str(given.pop("kind", name))).name
    for option, value in given.items():
        if isinstance(value, list):
            raise InputError(
                f"policies.{name}.{option} must be one value; add an entry for each: {value}"
            )
    return PolicySpec(policy, given).check()


def _worlds(kind: Any, environment: dict[str, Any]) -> list[tuple[list[str], Any]]:
    """(what is particular about it, environment) for every combination of the lists."""
    parts: dict[str, Any] = {
        name: type(value)
        for name, value in _defaults(kind).items()
        if is_dataclass(value)
    }
    tables = {part: environment.pop(part) for part in parts if part in environment}
    choices = {}
    for part, table in {"": environment, **tables}.items():
        defaults = _defaults(parts.get(part, kind))
        for name, value in _table(
            table, f"environment.{part}".rstrip("."), tuple(defaults)
        ).items():
            choices[part, name] = _choices(
                name, value, isinstance(defaults[name], tuple)
            )
    _require_few(prod(map(len, choices.values())))
    worlds = []
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        words = [
            f"{key[1]}={'-'.join(map(str, value)) if isinstance(value, tuple) else value}"
            for key, value in settings.items()
            if len(choices[key]) > 1
        ]
        of = {
            part: {name: settings[p, name] for p, name in settings if p == part}
            for part in ("", *tables)
        }
        try:
            built = {part: parts[part](**of[part]) for part in tables}
            worlds.append((words, kind(**of[""], **built)))
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"environment: {error}") from None
    return worlds


def _rebuilt(kind: Any, values: Mapping[str, Any]) -> Any:
    """Return the dataclass of which `asdict` made these values; lists are tuples that JSON has read."""
    defaults = _defaults(kind)
    whole: dict[str, Any] = {}
    for name, value in values.items():
        if is_dataclass(defaults[name]) and isinstance(value, Mapping):
            whole[name] = _rebuilt(type(defaults[name]), value)
        else:
            whole[name] = tuple(value) if isinstance(value, list) else value
    return kind(**whole)


def _defaults(kind: Any) -> dict[str, Any]:
    """What the fields of a dataclass are if nothing is said."""
    return {
        field.name: field.default_factory()
        if callable(field.default_factory)
        else field.default
        for field in fields(kind)
    }


def _choices(name: str, value: Any, is_sequence: bool) -> list[Any]:
    """The values an entry may take: a list means each of them, unless the entry is itself a sequence."""
    nested = (
        [isinstance(each, list) for each in value] if isinstance(value, list) else []
    )
    if is_sequence and (
        not isinstance(value, list) or (any(nested) and not all(nested))
    ):
        raise InputError(f"{name} must be a list, or a list of lists, got {value!r}")
    if not isinstance(value, list) or (is_sequence and not any(nested)):
        value = [value]
    if not value:
        raise InputError(f"{name} is an empty list: at least one value is needed")
    return [tuple(each) if isinstance(each, list) else each for each in value]


def _require_few(cells: int) -> None:
    if cells > MOST_CELLS:
        raise InputError(
            f"the lists of the file make {cells:,} cells; at most {MOST_CELLS:,} can be played"
        )


def _table(
    value: Any, where: str, names: Sequence[str] | None = None
) -> Mapping[str, Any]:
    """The value if it is a table without entries of other names."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a table, [{where}], got {value!r}")
    unknown = sorted(set(value).difference(value if names is None else names))
    if unknown:
        raise InputError(
            f"{where} has no entry {unknown[0]!r}; it may have {', '.join(sorted(names or ()))}"
        )
    return value
