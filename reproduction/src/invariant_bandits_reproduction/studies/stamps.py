"""Which code the numbers of a study's page were measured with, and whether it still is the present code.

A page ends with a comment that
`python -m invariant_bandits_reproduction.studies` writes: a checksum of the code that the study measures,
and one of a short fixed run of it. Below its title stands a mark, which
`python -m invariant_bandits_reproduction.studies stamps` writes
again from the comment and the present code.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import invariant_bandits as ib

LIBRARY = Path(ib.__file__).parent
REPRODUCTION = Path(__file__).parents[1]
RELATED = REPRODUCTION / "policies"
"""The policies of the literature, which only one study measures."""
PAGES = Path(__file__).parents[4] / "docs" / "studies"
DECIDING = ("policies", "decomposition", "moments")
JUDGING = (*DECIDING, "logs", "evaluation")
DIGITS = 6
"""Decimals of a regret in the fixed run: enough to see a change, few enough for other processors."""


@dataclass(frozen=True)
class Measured:
    """What a study measures.

    Attributes
    ----------
    rooms : tuple of str
        Rooms of the library.
    probes : tuple of str
        Names of the fixed runs that show how this code behaves.
    further : tuple of Path
        Folders of code outside the library.
    """

    rooms: tuple[str, ...]
    probes: tuple[str, ...]
    further: tuple[Path, ...] = ()

    def sources(self) -> list[Path]:
        """Return every module that the study measures."""
        folders = [*(LIBRARY / room for room in self.rooms), *self.further]
        return [path for folder in folders for path in folder.rglob("*.py")]


STUDIES: Mapping[str, Measured] = {
    **dict.fromkeys(
        ("online", "stress", "constants", "real", "speed"),
        Measured(DECIDING, ("features",)),
    ),
    **dict.fromkeys(("arms", "drift-level"), Measured(DECIDING, ("arms",))),
    "alarm": Measured(DECIDING, ("features", "arms")),
    "related": Measured(DECIDING, ("features", "related"), (RELATED,)),
    "peers": Measured(DECIDING, ("features", "arms")),
    "offline": Measured(DECIDING, ("split",)),
    "intervals": Measured(JUDGING, ("evaluation",)),
    "randomised": Measured(JUDGING, ("features", "evaluation")),
    "wild": Measured((*JUDGING, "model"), ("features", "evaluation", "model")),
}
"""Name of a study, which is that of its page, -> what it measures."""


@dataclass(frozen=True)
class Stamp:
    """Checksums of the measured code and of its fixed run, and the rounds of that run."""

    code: str
    run: str
    rounds: int


PRESENT = "*The numbers of this page were measured with the present code.*"
SAME_RUN = (
    "*These numbers were measured with older code,"
    " which plays {rounds} rounds as the present does.*"
)
OLDER = "*The numbers of this page are older than the code: the present code may give others.*"
MARK = re.compile(
    r"\*(?:The numbers of this page were measured with|These numbers were measured with older code,"
    r"|The numbers of this page are older than)[^*]*\*\n\n"
)
COMMENT = re.compile(r"<!-- measured with: (\{.*?\}) -->\n?")


def checksum(sources: Iterable[Path]) -> str:
    """Return a digest of the syntax trees of files: comments, docstrings and layout do not count."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode())
        digest.update(structure(source.read_text()).encode())
    return digest.hexdigest()[:16]


def structure(source: str) -> str:
    """Return the syntax tree of a module in words, without docstrings and positions.

    Empty fields are left out, so that every version of Python gives the same words.
    """

    def words(node: Any) -> str:
        if isinstance(node, list):
            return f"[{','.join(map(words, node))}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        fields = [
            f"{name}={words(value)}"
            for name, value in ast.iter_fields(node)
            if value is not None and value != []
        ]
        return f"{type(node).__name__}({','.join(fields)})"

    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return words(tree)


def _is_text(line: Any) -> bool:
    """Whether a line of code is a string that stands alone: a docstring."""
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


Behaviour = dict[str, Any]
HORIZON = 60
REPETITIONS = 2
"""Rounds and repetitions of a fixed run: all runs together take seconds."""


def _regrets(policies: Iterable[str], world: Any) -> Behaviour:
    with warnings.catch_warnings(action="ignore"):
        played = ib.simulate(list(policies), world, HORIZON, REPETITIONS, 1)
    return {
        name: np.round(paths[:, -1], DIGITS).tolist()
        for name, paths in played.regret.items()
    }


def _features() -> tuple[Behaviour, int]:
    """Play policies in two worlds of the paper's generator."""
    policies = (
        "linucb",
        "linucb-warm",
        "greedy",
        "sw-linucb,window=20",
        "d-linucb",
        "isd-linucb,radius=self-normalised",
        "auto-isd",
    )
    few_stable = ib.simulation.PaperWorld(blocks=(1, 2), varying=(1,), regimes=5)
    worlds = {
        "ten features": ib.simulation.PaperEpisodes(logged=400),
        "three features": ib.simulation.PaperEpisodes(
            few_stable, logged=400, windows=5
        ),
    }
    behaviour = {name: _regrets(policies, world) for name, world in worlds.items()}
    return behaviour, HORIZON * REPETITIONS * len(worlds)


def _related() -> tuple[Behaviour, int]:
    """Play the policies of the literature."""
    policies = (
        "affine-linucb",
        "invariant-set",
        "latent-ar-linucb",
        "latent-linucb",
        "sequential-linucb",
    )
    world = ib.simulation.PaperEpisodes(logged=400)
    return _regrets(policies, world), HORIZON * REPETITIONS


def _arms() -> tuple[Behaviour, int]:
    """Play policies with labelled arms."""
    world = ib.simulation.LabelledArms(logged=600, later="drift")
    policies = ("linucb-warm", "d-linucb", "auto-isd")
    return _regrets(policies, world), HORIZON * REPETITIONS


def _logged() -> Any:
    return (
        ib.simulation.PaperEpisodes(logged=400)
        .draw(HORIZON, np.random.default_rng(1))
        .logs
    )


def _split() -> tuple[Behaviour, int]:
    """Estimate a split from logs."""
    logs = _logged()
    moments = ib.WindowedMoments.from_arrays(logs.features, logs.rewards, windows=8)
    fit = ib.InvariantSubspaceDecomposition().fit(moments)
    behaviour = {
        "residual": fit.split_.residual_dim,
        "component": np.round(fit.component_, DIGITS).tolist(),
    }
    return behaviour, len(logs.rewards)


def _evaluation() -> tuple[Behaviour, int]:
    """Evaluate two policies from one log."""
    rng = np.random.default_rng(2)
    offered = rng.normal(size=(HORIZON * 20, 3))
    rewards = offered @ [1.0, 0.0, -1.0] + rng.normal(size=len(offered))
    feedback = ib.evaluation.Feedback.from_full_information(
        offered, rewards, seed=0, counts=np.full(HORIZON * 5, 4)
    )
    with warnings.catch_warnings(action="ignore"):
        compared = ib.compare(
            feedback, ["linucb-warm", "uniform"], settings="published"
        )
    return {"text": str(compared)}, HORIZON * 5


def _model() -> tuple[Behaviour, int]:
    """Fit a model to a table and explain it."""
    rng = np.random.default_rng(3)
    age = rng.normal(40, 10, 1000)
    banner = rng.choice(["A", "B"], 1000)
    rate = np.where(banner == "A", 0.2, 0.01 * age)
    click = (rng.random(1000) < rate).astype(int)
    with warnings.catch_warnings(action="ignore"):
        model = ib.fit_logs(pa.table({"age": age, "banner": banner, "click": click}))
    return {
        "text": str(model.explain()),
        "residual": model.decomposition.split_.residual_dim,
    }, len(age)


PROBES: Mapping[str, Callable[[], tuple[Behaviour, int]]] = {
    "features": _features,
    "related": _related,
    "arms": _arms,
    "split": _split,
    "evaluation": _evaluation,
    "model": _model,
}
"""Name -> fixed run of the library: what it gave, and its rounds."""


@cache
def probed(name: str) -> tuple[str, int]:
    """Return what a fixed run gave, as text, and its rounds."""
    behaviour, rounds = PROBES[name]()
    return json.dumps(behaviour, sort_keys=True), rounds


def code_of(study: str) -> str:
    """Return the checksum of the code that a study measures."""
    return checksum(STUDIES[study].sources())


def stamp_of(study: str) -> Stamp:
    """Return the stamp of the present code for a study; takes seconds."""
    runs = [probed(name) for name in STUDIES[study].probes]
    text = "\n".join(behaviour for behaviour, _ in runs)
    run = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Stamp(code_of(study), run, sum(rounds for _, rounds in runs))


def stamp_on(page: str) -> Stamp | None:
    """Return the stamp that a page carries, if any."""
    comment = COMMENT.search(page)
    return None if comment is None else Stamp(**json.loads(comment[1]))


def mark_of(study: str, stamp: Stamp | None) -> str:
    """Return the mark of a page with this stamp under the present code."""
    if stamp is None:
        return OLDER
    if stamp.code == code_of(study):
        return PRESENT
    if stamp.run == stamp_of(study).run:
        return SAME_RUN.format(rounds=stamp.rounds)
    return OLDER


def stamped(page: str, stamp: Stamp) -> str:
    """Return a page that was just measured, with its stamp at the end and its mark below the title."""
    comment = f"<!-- measured with: {json.dumps(asdict(stamp))} -->\n"
    text = COMMENT.sub("", page).rstrip("\n")
    return with_mark(f"{text}\n\n{comment}", PRESENT)


def with_mark(page: str, mark: str) -> str:
    """Return a page with this mark below its title instead of the one it had."""
    title, rest = MARK.sub("", page).split("\n", 1)
    return f"{title}\n\n{mark}\n{rest}"


def marked(study: str, page: str) -> str:
    """Return the page of a study with the mark that it must have under the present code."""
    return with_mark(page, mark_of(study, stamp_on(page)))


def mark_all(folder: Path = PAGES) -> dict[str, str]:
    """Write the mark of every page of a study again; returns study -> mark."""
    marks = {}
    for study in STUDIES:
        path = folder / f"{study}.md"
        page = path.read_text()
        path.write_text(marked(study, page))
        marks[study] = mark_of(study, stamp_on(page))
    return marks
