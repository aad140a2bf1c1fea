"""Files to begin with: every registered policy with every memory, priors of both kinds, moments and models."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import invariant_bandits as ib
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.policies.state import to_bytes
from invariant_bandits.simulation.sample_logs import write_samples
from invariant_bandits.testing import DIM, MEMORIES, example_past, play, registered_makers

OLD_FILES = Path(__file__).parents[1] / "tests" / "data" / "version_0_1"
SPLIT = ib.Split(np.eye(DIM)[:, :3], np.eye(DIM)[:, 3:])


@dataclass(frozen=True)
class Original:
    """One whole file, and for a model rounds that it can decide."""

    name: str
    kind: str
    content: bytes
    rounds: tuple[Any, ...] = field(default=(), repr=False)


def originals() -> list[Original]:
    """All of them; making them takes some seconds."""
    with warnings.catch_warnings(action="ignore"):
        return [*_policies(), *_moments(), *_models(), *_old_ones()]


def _policies() -> list[Original]:
    moments = example_past().moments
    makers = dict(registered_makers())
    for words, memory in MEMORIES.items():
        makers[f"recomputing, {words}"] = lambda memory=memory: ib.ISDLinUCB.from_history(
            moments, recompute_every=40, memory=memory
        )
        makers[f"known component, {words}"] = lambda memory=memory: ib.ISDLinUCB(SPLIT, np.ones(DIM), memory=memory)
    makers |= {
        "known split": lambda: ib.ISDLinUCB.from_history(moments, split=SPLIT, recompute_every=30),
        "all invariant": lambda: ib.ISDLinTS(ib.Split(np.eye(DIM), np.zeros((DIM, 0))), np.ones(DIM)),
        "auto-isd, rehearsed": lambda: ib.AutoISD.from_history(moments, offered=np.eye(DIM), horizon=50),
        "auto-isd, no baseline": lambda: ib.AutoISD.from_history(moments, intercept=False, noise="known"),
        "auto-isd, arms": lambda: ib.AutoISD.from_arms(_arms(clicks=False)),
        "auto-isd, clicks": lambda: ib.AutoISD.from_arms(_arms(clicks=True)),
        "randomised twice": lambda: ib.Randomised(ib.Randomised(ib.LinUCB(DIM)), kind="inverse-gap"),
        "randomised clicks": lambda: ib.Randomised(ib.AutoISD.from_arms(_arms(clicks=True)), floor=0.2),
    }
    made = []
    for name, make in makers.items():
        policy = make()
        play(policy, 30, seed=0)
        made.append(Original(name, "policy", to_bytes(policy)))
    return made


def _arms(*, clicks: bool) -> ArmStatistics:
    """Two arms with one slope each: as many coefficients as features in the other files."""
    rng = np.random.default_rng(0)
    contexts, arms = np.column_stack([np.ones(1500), rng.normal(size=1500)]), rng.integers(2, size=1500)
    odds = np.where(arms == 0, 0.5, -0.5) * contexts[:, 1]
    rewards = (rng.random(1500) < 1.0 / (1.0 + np.exp(-odds))).astype(float) if clicks else odds + rng.normal(size=1500)
    return ArmStatistics.from_rounds(contexts, arms, rewards, windows=4)


def _moments() -> list[Original]:
    rng = np.random.default_rng(0)
    offered, rewards = rng.normal(size=(300, 3, DIM)), rng.normal(size=300)
    days = np.datetime64("2024-01-01") + np.arange(300)
    dated = {"times": days, "edges": days[[0, 100, 200, 299]]}
    numbered = {"times": np.arange(300.0), "edges": np.array([0.0, 150.0, 300.0])}
    made = {
        "moments": ib.WindowedMoments.from_arrays(offered[:, 0], rewards, windows=4),
        "moments, offered and dated": ib.WindowedMoments.from_arrays(offered[:, 0], rewards, offered=offered, **dated),
        "moments, timed": ib.WindowedMoments.from_arrays(offered[:, 0], rewards, **numbered),
    }
    return [Original(name, "moments", one.to_bytes()) for name, one in made.items()]


def _models() -> list[Original]:
    rng, made = np.random.default_rng(1), []
    with tempfile.TemporaryDirectory() as folder:
        write_samples(folder, rounds=1500)
        context = {"age": 31.0, "device": "phone", "hour": 20}
        for policy in ("auto-isd", "linucb", "randomised-lints"):
            model = ib.fit_logs(Path(folder, "banners.csv"), policy=policy)
            model.decide(context)
            made.append(Original(f"model of arms, {policy}", "model", model.to_bytes(), (context,)))
        for policy in ("auto-isd", "isd-linucb", "epsilon-greedy"):
            model = ib.fit_logs(Path(folder, "rows.parquet"), policy=policy)
            row = {column.name: rng.normal(size=3).tolist() for column in model.feature_map.columns}
            actions = [{name: values[k] for name, values in row.items()} for k in range(3)]
            model.decide({}, actions)
            made.append(Original(f"model of rows, {policy}", "model", model.to_bytes(), ({}, actions)))
    return made


def _old_ones() -> list[Original]:
    """Files of version 0.1, where they are at hand."""
    rows = {f"x{j}": [0.3 * j, -0.2, 1.1] for j in range(3)} | {"kind": ["a", "b", "c"]}
    actions = [{name: values[k] for name, values in rows.items()} for k in range(3)]
    found = []
    for name in ("autoisd.policy", "isdlinucb-recomputing--window.policy", "boblinucb.policy", "auto-isd.model"):
        if (OLD_FILES / name).exists():
            kind = name.rpartition(".")[2]
            found.append(Original(f"0.1: {name}", kind, (OLD_FILES / name).read_bytes(), ({}, actions)))
    return found
