"""What a simulation found: regret paths and beliefs, with the settings that produced them, in memory and as a
file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits import storage
from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.optional import frame_of, require

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

KIND = "simulation"


class BeliefRow(NamedTuple):
    """One number that a policy believed after a round, for instance the probability of one of AutoISD's
    hypotheses.

    Attributes
    ----------
    policy : str
        Name of the policy.
    replication : int
        Number of the repetition.
    round : int
        After which it was asked, from 1.
    belief : str
        Name of the number.
    value : float
        The number.
    """

    policy: str
    replication: int
    round: int
    belief: str
    value: float


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult:
    """Dynamic regret of policies that played the same rounds.

    Parameters
    ----------
    regret : policy -> array, shape (replications, R)
        Cumulative, in units of the reward: Σ_{s≤t} max_a φ_s(a)ᵀγ_s − φ_s(a_s)ᵀγ_s.
    rounds : array of int, shape (R,)
        The rounds t, from 1, of its columns.
    settings : dict
        Seed, horizon, repetitions, environment and versions.
    beliefs : tuple of BeliefRow
        What the policies believed at the traced rounds, one row per number
        (`pandas.DataFrame(result.beliefs)`).
    observations : policy -> quantity -> array, shape (replications,)
        What an observer noted of each policy after its last round.

    >>> import invariant_bandits as ib
    >>> result = ib.simulate(["linucb", "uniform"], ib.PaperEpisodes(logged=200), 50, replications=3, seed=0)
    >>> result.replications, result.final("LinUCB").shape, result.at([10]).rounds.tolist()
    (3, (3,), [10, 50])
    >>> bool(result.final("LinUCB").mean() < result.final("uniform").mean())
    True
    """

    regret: dict[str, Array]
    rounds: Array
    settings: dict[str, Any] = field(default_factory=dict)
    beliefs: tuple[BeliefRow, ...] = ()
    observations: dict[str, dict[str, Array]] = field(default_factory=dict)

    def noting(self, **facts: Any) -> SimulationResult:
        """The same result with further settings, which are stored with it."""
        return replace(self, settings=self.settings | facts)

    @property
    def first(self) -> int:
        """Number of the first repetition."""
        return int(self.settings.get("first", 0))

    @property
    def replications(self) -> int:
        """How many repetitions there are."""
        return len(next(iter(self.regret.values())))

    def final(self, policy: str) -> Array:
        """Regret of one policy at the end of each repetition (replications,)."""
        return np.asarray(self.regret[policy][:, -1])

    def at(self, rounds: Sequence[int]) -> SimulationResult:
        """The same result at these rounds (from 1) and the last one only. Beliefs stay."""
        wanted = {whole_number("rounds", number, 1) for number in rounds} | {int(self.rounds[-1])}
        missing = sorted(wanted.difference(self.rounds.tolist()))
        if missing:
            raise InputError(f"rounds must be among those that were recorded, got {missing[0]}")
        kept = np.isin(self.rounds, sorted(wanted))
        return replace(
            self, regret={name: path[:, kept] for name, path in self.regret.items()}, rounds=self.rounds[kept]
        )

    def followed_by(self, later: SimulationResult) -> SimulationResult:
        """These repetitions and the later ones, which must continue them with the same settings."""
        for name, mine, theirs in (
            ("policies", list(self.regret), list(later.regret)),
            ("rounds", self.rounds.tolist(), later.rounds.tolist()),
            ("settings", _shared(self.settings), _shared(later.settings)),
        ):
            if mine != theirs:
                raise InputError(f"later must have the same {name}: {mine}, got {theirs}")
        if later.first != self.first + self.replications:
            raise InputError(
                f"later must begin with repetition {self.first + self.replications}, got {later.first}"
            )
        regret = {name: np.concatenate([path, later.regret[name]]) for name, path in self.regret.items()}
        settings = self.settings | {"replications": self.replications + later.replications}
        observations = {
            name: {
                quantity: np.concatenate([values, later.observations[name][quantity]])
                for quantity, values in of.items()
            }
            for name, of in self.observations.items()
        }
        return SimulationResult(regret, self.rounds, settings, self.beliefs + later.beliefs, observations)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame with one line per policy, replication (from `first`) and round. Needs pandas."""
        names = np.array(list(self.regret), dtype=object)
        columns = self._columns()
        return frame_of(columns | {"policy": names[columns["policy"]]}, "to_frame")

    def summary(self) -> str:
        """A table a person can read: regret of every policy at the end, the lowest mean first."""
        finals = {name: self.final(name) for name in self.regret}
        order = sorted(finals, key=lambda name: float(finals[name].mean()))
        wide = max(len(name) for name in ("policy", *order))
        lines = [
            f"Regret after {int(self.rounds[-1]):,} rounds, {self.replications} repetitions",
            f"{'policy':<{wide}} {'mean':>10} {'std. err.':>10} {'median':>10} {'worst':>10}",
        ]
        for name in order:
            values = finals[name]
            numbers = (values.mean(), _error(values), np.median(values), values.max())
            lines.append(f"{name:<{wide}} " + " ".join(f"{number:>10.4g}" for number in numbers))
        return "\n".join(lines)

    def plot(self, *, theme: str = "light") -> Figure:
        """Mean regret over the rounds with bands of two standard errors. Needs matplotlib; the caller shows
        it.
        """
        from invariant_bandits import plotting

        paths = {name: (path.mean(axis=0), _error(path)) for name, path in self.regret.items()}
        return plotting.regret_paths(self.rounds, paths, theme_name=theme, words="cumulative regret")

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary and the picture."""
        from invariant_bandits import plotting

        return plotting.notebook_html(self.summary(), self.plot)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        played = f"{self.replications} repetitions of {int(self.rounds[-1]):,} rounds"
        return f"SimulationResult({', '.join(self.regret)}; {played})"

    def _columns(self) -> dict[str, Array]:
        """One entry per policy (its index), replication and round, and the regret there."""
        stacked = np.stack(list(self.regret.values()))
        policy, replication, column = (index.ravel() for index in np.indices(stacked.shape))
        return {
            "policy": policy,
            "replication": replication + self.first,
            "round": self.rounds[column],
            "regret": stacked.ravel(),
        }

    # -- storing --

    def save(self, path: str | PathLike[str], rounds: Sequence[int] | None = None) -> None:
        """Write a Parquet table (policy, replication, round, regret), replacing the file in one step. Needs
        pyarrow.

        Settings, beliefs and a checksum are in the file's metadata under the product's name, as JSON.

        Parameters
        ----------
        path : str or PathLike
            Where the file will be.
        rounds : sequence of int, optional
            Keep the regret of these rounds (from 1) and the last one only.
        """
        arrow = _pyarrow("save")
        kept = self if rounds is None else self.at(rounds)
        sink = arrow.BufferOutputStream()
        arrow.parquet.write_table(
            kept._table(),
            sink,
            compression="zstd",
            use_dictionary=["policy", "replication", "round"],
            column_encoding={"regret": "BYTE_STREAM_SPLIT"},
        )
        storage.replace_file(path, sink.getvalue().to_pybytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SimulationResult:
        """What `save` stored under `path`, bit for bit. A foreign, damaged or newer file raises FileError."""
        arrow, name = _pyarrow("load"), str(path)
        content = Path(path).read_bytes()
        try:
            table = arrow.parquet.read_table(arrow.BufferReader(content))
            header = json.loads((table.schema.metadata or {}).get(storage.PRODUCT.encode(), b"{}"))
            product, version, kind = header.get("product"), header.get("format"), header.get("kind")
        except Exception as error:
            raise storage.FileError(f"{name} is damaged or foreign: {error}") from None
        if (product, kind) != (storage.PRODUCT, KIND):
            raise storage.FileError(f"{name} is not a simulation written by {storage.PRODUCT}")
        if version != storage.FORMAT_VERSION:
            raise storage.FileError(
                f"{name} has format {version}, this version reads format {storage.FORMAT_VERSION}:"
                " a newer release may be needed"
            )
        try:
            result = cls._from_table(table, json.loads(header["about"]))
            whole = result._table().equals(table, check_metadata=True)
        except Exception as error:
            raise storage.FileError(f"{name} is damaged: {error}") from None
        if not whole:
            raise storage.FileError(f"{name} is damaged: its checksum does not match its content")
        return result

    @classmethod
    def may_replace(cls, path: str | PathLike[str]) -> bool:
        """Whether a file is empty, or a stored simulation, damaged or not: another Parquet file is somebody
        else's.
        """
        arrow = _pyarrow("load")
        with Path(path).open("rb") as file:
            start = file.read(4)
        if not start:
            return True
        try:
            metadata = arrow.parquet.read_schema(path).metadata or {}
        except (arrow.ArrowException, OSError):
            return start == b"PAR1"  # cut off
        return storage.PRODUCT.encode() in metadata

    @classmethod
    def _from_table(cls, table: Any, about: dict[str, Any]) -> SimulationResult:
        names, rounds = about["policies"], np.array(about["rounds"], dtype=np.int64)
        values = table.column("regret").to_numpy().reshape(len(names), -1, len(rounds))
        beliefs = tuple(BeliefRow(*row) for row in about["beliefs"])
        observations = {
            name: {quantity: np.array(values, dtype=np.float64) for quantity, values in of.items()}
            for name, of in about["observations"].items()
        }
        return cls(
            dict(zip(names, values.copy(), strict=True)), rounds, about["settings"], beliefs, observations
        )

    def _table(self) -> Any:
        """The Arrow table that is stored, its checksum in its metadata."""
        arrow = _pyarrow("save")
        about = {
            "policies": list(self.regret),
            "rounds": self.rounds.tolist(),
            "settings": self.settings,
            "beliefs": [list(row) for row in self.beliefs],
            "observations": {
                name: {quantity: values.tolist() for quantity, values in of.items()}
                for name, of in self.observations.items()
            },
        }
        described = json.dumps(about, sort_keys=True)
        columns = self._columns()
        header = {
            "product": storage.PRODUCT,
            "format": storage.FORMAT_VERSION,
            "kind": KIND,
            "about": described,
            "sha256": storage.digest(KIND, described, columns),
        }
        policy = arrow.DictionaryArray.from_arrays(columns["policy"].astype(np.int32), list(self.regret))
        return arrow.table(
            {"policy": policy} | {name: columns[name] for name in ("replication", "round", "regret")},
            metadata={storage.PRODUCT: json.dumps(header, sort_keys=True)},
        )


def _error(values: Array) -> Array:
    """Standard error of the mean over the first axis, 0 for a single repetition."""
    count = len(values)
    return np.asarray(
        values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(values.shape[1:])
    )


def _shared(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that do not say which repetitions were played."""
    return {name: value for name, value in settings.items() if name not in ("first", "replications")}


def _pyarrow(caller: str) -> Any:
    require("pyarrow.parquet", caller)
    return require("pyarrow", caller)
