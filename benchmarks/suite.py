"""Speed beside the peers, in one interleaved run of at most a quarter of an hour: a table, a page, a picture.

Contenders of a section take turns, so that a busy machine slows them alike; each figure is the median of its
turns, in processor time unless it says otherwise. What counts are the ratios. Growth is the slope of log time
over log size. Peers that are not installed are named and left out.

Run: python benchmarks/suite.py [--page docs/studies/speed.md] [--figures docs/figures] [--turns 7]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import invariant_bandits as ib
from invariant_bandits.plotting import THEMES, theme
from invariant_bandits.policies.mixture import default_members
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction.studies.harness import wrap_prose
from invariant_bandits_reproduction.studies.peer_policies import PEERS
from invariant_bandits_reproduction.studies.stamps import stamp_of, stamped
from online import NumpyLinUCB, player

ACTIONS, DIMS = 5, (10, 50, 100)
READS = 3
"""How often every reader reads the log: the first time may compile."""
ROUNDS = 300
"""Of a turn: enough that what happens now and then, such as a look of the alarm, has its share."""
OURS = ("LinUCB", "AutoISD", "ISDLinUCB", "DLinUCB", "SWLinUCB")
Table = dict[str, dict[str, float]]
"""Row -> column -> number."""


def medians(
    calls: Mapping[str, Callable[[int], None]], turns: int, inner: int
) -> dict[str, float]:
    """Median processor seconds of a call; contenders take turns of `inner` calls, the first not counted."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            start = time.process_time()
            for place in range(turn * inner, (turn + 1) * inner):
                call(place)
            if turn:
                spent[name].append((time.process_time() - start) / inner)
    return {name: float(np.median(values)) for name, values in spent.items()}


def moments_of(
    dim: int, rounds: int, windows: int = 8, actions: int = ACTIONS
) -> ib.WindowedMoments:
    logs = PaperWorld(blocks=(4, 1, 3, 2) * (dim // 10), actions=actions).log(
        rounds, np.random.default_rng(dim)
    )
    return ib.WindowedMoments.from_arrays(
        logs.features, logs.rewards, windows=windows, offered=logs.offered
    )


def our_policies(dim: int) -> dict[str, Any]:
    moments = moments_of(dim, max(2000, 80 * dim))
    return {
        "LinUCB": ib.LinUCB(dim),
        "AutoISD": ib.AutoISD.from_history(moments, horizon=1000),
        "ISDLinUCB": ib.ISDLinUCB.from_history(moments),
        "DLinUCB": ib.DLinUCB(dim, discount=0.99),
        "SWLinUCB": ib.SWLinUCB(dim, window=100),
    }


def stub_past(dim: int, labelled: bool) -> Any:
    """What a peer starts from: a few logged rounds of feature rows, or of contexts with five arms."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(50, dim))
    contexts[:, 0] = 1.0
    arms = np.arange(50) % ACTIONS
    logs = SimpleNamespace(features=contexts, rewards=rng.normal(size=50))
    if labelled:
        logs.contexts, logs.arms = contexts, arms
    else:
        logs.offered, logs.actions = contexts[:, None], 0 * arms
    return SimpleNamespace(
        dim=dim * ACTIONS if labelled else dim, actions=ACTIONS, logs=logs
    )


def rounds_of(dim: int, count: int, labelled: bool) -> list[Any]:
    rng = np.random.default_rng(1)
    if not labelled:
        return [rng.normal(size=(ACTIONS, dim)) for _ in range(count)]
    contexts = rng.normal(size=(count, dim))
    contexts[:, 0] = 1.0
    return [np.kron(np.eye(ACTIONS), context) for context in contexts]


def decide_and_learn(turns: int) -> Table:
    """Microseconds to decide and learn a round with five actions."""
    table: Table = {}
    for dim in DIMS:
        count = ROUNDS * (turns + 1)
        rewards = np.random.default_rng(2).normal(size=count).tolist()
        rows = rounds_of(dim, count, False)
        calls = {
            f"{name}": player(policy, rows, rewards)
            for name, policy in our_policies(dim).items()
        }
        calls["NumPy, rank-one"] = player(NumpyLinUCB(dim), rows, rewards)
        arms = rounds_of(dim, count, True)
        for name, peer in PEERS.items():
            if (
                peer.is_installed
                and "Sift" not in name
                and "FeatureWise" not in name
                and "Stab" not in name
            ):
                offered = arms if peer.labelled else rows
                setting = next(iter(peer.settings.values()))
                made = peer.make(stub_past(dim, peer.labelled), *setting)
                calls[name] = player(made, offered, rewards)
        with warnings.catch_warnings(action="ignore"):
            for name, value in medians(calls, turns, ROUNDS).items():
                table.setdefault(name, {})[f"p = {dim}"] = 1e6 * value
    return table


def batch_decisions(turns: int, count: int = 10_000) -> Table:
    """Milliseconds for 10,000 decisions with one state."""
    table: Table = {}
    for dim in DIMS:
        features = np.random.default_rng(0).normal(size=(count, ACTIONS, dim))
        plain, flat = NumpyLinUCB(dim), features.reshape(-1, dim)

        def with_numpy(place: int, plain: Any = plain, flat: Any = flat) -> None:
            norms = np.einsum("np,np->n", flat @ plain.inverse, flat)
            (flat @ plain.estimate + plain.radius() * np.sqrt(norms)).reshape(
                count, ACTIONS
            ).argmax(axis=1)

        policies = our_policies(dim)
        calls: dict[str, Callable[[int], Any]] = {
            name: lambda place, policy=policies[name], features=features: (
                policy.select_many(features)
            )
            for name in ("LinUCB", "AutoISD")
        }
        calls["NumPy"] = with_numpy
        calls |= batch_peers(features[:, 0])
        with warnings.catch_warnings(action="ignore"):
            for name, value in medians(calls, turns, 1).items():
                table.setdefault(name, {})[f"p = {dim}"] = 1e3 * value
    return table


def batch_peers(contexts: Any) -> dict[str, Callable[[int], Any]]:
    """mabwiser's and contextualbandits' own batch predictions for five arms."""
    past, calls = stub_past(contexts.shape[1], True), {}
    for name, method in (
        ("mabwiser LinUCB", "mab"),
        ("contextualbandits LinUCB", "model"),
    ):
        if PEERS[name].is_installed:
            model = getattr(PEERS[name].make(past, 0.1), method)
            calls[name] = lambda place, model=model: model.predict(contexts)
    return calls


def offline_fit(turns: int) -> Table:
    """Milliseconds to find what lasts: from moments and from rows, against the published recipe on the rows,
    which is timed once at p = 50 and not at p = 100.
    """
    table: Table = {}
    for dim, rounds in ((10, 4000), (50, 20_000), (100, 40_000)):
        moments = moments_of(dim, rounds)
        logs = PaperWorld(blocks=(4, 1, 3, 2) * (dim // 10)).log(
            rounds, np.random.default_rng(dim)
        )
        rows = logs.features, logs.rewards
        ours, published = (
            ib.InvariantSubspaceDecomposition(recipe=of)
            for of in ("windowed", "published")
        )
        calls: dict[str, Callable[[int], Any]] = {
            "fit from moments": lambda place, ours=ours, moments=moments: ours.fit(
                moments
            ),
            "fit from rows": lambda place, ours=ours, rows=rows: ours.fit(*rows),
            "AutoISD starts": lambda place, moments=moments: ib.AutoISD.from_history(
                moments
            ),
            "published recipe, rows": lambda place, recipe=published, rows=rows: (
                recipe.fit(*rows)
            ),
        }
        slow = (
            calls["published recipe, rows"]
            if dim == DIMS[0]
            else calls.pop("published recipe, rows")
        )
        for name, value in medians(calls, min(turns, 3), 1).items():
            table.setdefault(name, {})[f"p = {dim}"] = 1e3 * value
        if dim == DIMS[1]:
            start = time.process_time()
            slow(0)
            table["published recipe, rows"][f"p = {dim}"] = 1e3 * (
                time.process_time() - start
            )
    return table


def reading(rows: int = 1_000_000) -> Table:
    """Processor seconds and memory for the moments of a log of 20 features: ours, DuckDB, polars."""
    names = [f"x{j}" for j in range(20)]
    columns = [*names, "reward"]
    pairs = [
        (left, right) for i, left in enumerate(columns) for right in columns[: i + 1]
    ]
    sums = ", ".join(f"sum({left} * {right})" for left, right in pairs)
    polars = "[(pl.col(a) * pl.col(b)).sum().alias(a + b) for a, b in PAIRS]"
    queries = {
        "ours": "import invariant_bandits as ib; ib.open_log(PATH).moments(windows=8)",
        "DuckDB": f'import duckdb; duckdb.sql("select {sums} from \'" + PATH + "\' group by w").fetchall()',
        "polars": f"import polars as pl; pl.scan_parquet(PATH).group_by('w').agg({polars}).collect()",
    }
    table: Table = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, rows, names)
        for name, query in list(queries.items()) * READS:
            code = f"PATH = {str(path)!r}; PAIRS = {pairs!r}; {query}"
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", f"{code}; {MEMORY}"],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                print(f"  {name} is left out: {done.stderr.strip().splitlines()[-1]}")
                continue
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            row = {
                "processor seconds": spent,
                "memory, MB": json.loads(done.stdout.splitlines()[-1]) / 1024,
            }
            kept = table.setdefault(name, row)
            table[name] = {
                column: min(value, kept[column]) for column, value in row.items()
            }
    return table


MEMORY = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"
"""Prints the largest memory of a process in KiB."""
IMPORTS = {
    "invariant-bandits": "import invariant_bandits as ib; ib.LinUCB; ib.AutoISD",
    "coba": "from coba.learners import LinUCBLearner",
    "vowpalwabbit": "import vowpalwabbit",
    "bayesianbandits": "import bayesianbandits",
    "mabwiser": "from mabwiser.mab import MAB",
    "contextualbandits": "from contextualbandits.online import LinUCB",
    "river": "from river.bandit import LinUCBDisjoint",
    "paretobandit": "from pareto_bandit import DisjointLinUCBPolicy",
}
"""What it takes to make a policy."""


def write_log(path: Path, rows: int, names: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, len(names)))
    columns: dict[str, Any] = {name: features[:, j] for j, name in enumerate(names)}
    columns |= {
        "reward": features.sum(axis=1) + rng.standard_normal(rows),
        "w": np.arange(rows) * 8 // rows,
    }
    pq.write_table(pa.table(columns), path, row_group_size=100_000)


def throughput() -> Table:
    """Rounds per second that `simulate` plays in one process."""
    world, table = ib.simulation.PaperEpisodes(logged=1000), {}
    for name in ("linucb", "isd-linucb", "auto-isd"):
        start = time.process_time()
        ib.simulate([name], world, 2000, replications=5, seed=0)
        table[name] = {"rounds per second": 10_000 / (time.process_time() - start)}
    return table


def starting() -> Table:
    """Processor seconds until a policy can be made, memory then, and the size of the package's own files."""
    table: Table = {}
    for package, statement in IMPORTS.items():
        code = f"import time; t = time.process_time(); {statement}; print(time.process_time() - t); {MEMORY}"
        runs = [
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                capture_output=True,
                text=True,
            )
            for _ in range(3)
        ]
        if any(run.returncode for run in runs):
            continue
        taken, memory = np.array(
            [[float(line) for line in run.stdout.split()[-2:]] for run in runs]
        ).min(axis=0)
        table[package] = {
            "import, s": taken,
            "memory, MB": memory / 1024,
            "installed, MB": installed(package),
        }
    return table


def installed(package: str) -> float:
    """Megabytes of a package's own files; of this one, those of its source tree."""
    if package == "invariant-bandits":
        folder = Path(ib.__file__).parent
        return (
            sum(
                path.stat().st_size
                for path in folder.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts
            )
            / 1e6
        )
    files = distribution(package).files or []
    return (
        sum(
            path.stat().st_size
            for file in files
            if (path := Path(str(file.locate()))).is_file()
        )
        / 1e6
    )


def growth(turns: int) -> Table:
    """Exponents: how time grows with features, actions, logged rounds, windows and filters."""
    table: Table = {}

    def measured(
        name: str,
        sizes: tuple[int, ...],
        call_of: Callable[[int], Callable[[int], Any]],
        inner: int,
    ) -> None:
        times = medians({str(size): call_of(size) for size in sizes}, turns, inner)
        slope = np.polyfit(np.log(sizes), np.log(list(times.values())), 1)[0]
        table[name] = {
            "exponent": float(slope),
            "from": float(sizes[0]),
            "to": float(sizes[-1]),
        }

    def round_of(
        make: Callable[[int], Any], actions: int | None = None
    ) -> Callable[[int], Callable[[int], Any]]:
        def call_of(size: int) -> Callable[[int], Any]:
            dim, count = (20, size) if actions is None else (size, actions)
            offered = np.random.default_rng(0).normal(size=(64, count, dim))
            return player(
                make(dim),
                [offered[t % 64] for t in range(20 * (turns + 1))],
                [0.5] * 20 * (turns + 1),
            )

        return call_of

    auto = {
        dim: ib.AutoISD.from_history(moments_of(dim, 80 * dim))
        for dim in (20, 40, 80, 160)
    }
    measured(
        "LinUCB, a round, features p",
        (20, 40, 80, 160),
        round_of(ib.LinUCB, ACTIONS),
        20,
    )
    measured(
        "AutoISD, a round, features p",
        (20, 40, 80, 160),
        round_of(auto.__getitem__, ACTIONS),
        20,
    )
    measured("LinUCB, a round, actions K", (10, 40, 160), round_of(ib.LinUCB), 20)
    measured(
        "AutoISD, a round, actions K", (10, 40, 160), round_of(auto.__getitem__), 20
    )
    fit = ib.InvariantSubspaceDecomposition
    fits = {dim: moments_of(dim, 100 * dim) for dim in (20, 40, 80)}
    measured(
        "fit, features p",
        (20, 40, 80),
        lambda dim: lambda place: fit().fit(fits[dim]),
        1,
    )
    cut = {windows: moments_of(20, 8000, windows) for windows in (4, 8, 16, 32)}
    measured(
        "fit, windows",
        (4, 8, 16, 32),
        lambda windows: lambda place: fit().fit(cut[windows]),
        1,
    )
    rows = np.random.default_rng(0).normal(size=(512_000, 11))
    measured(
        *("moments, logged rounds T0", (32_000, 128_000, 512_000)),
        lambda rounds: (
            lambda place: ib.WindowedMoments.from_arrays(
                rows[:rounds, 1:], rows[:rounds, 0]
            )
        ),
        1,
    )
    prior = auto[20].prior
    members = 4 * default_members(prior, intercept=True)
    measured(
        *("AutoISD, a round, filters", (8, 16, 32, 64)),
        lambda count: round_of(
            lambda dim: ib.AutoISD(prior, members=members[:count], noise="known"),
            ACTIONS,
        )(20),
        20,
    )
    return table


SECTIONS: Mapping[str, tuple[str, Callable[[int], Table]]] = {
    "Decide and learn": (
        "Each number is the time in microseconds to decide and learn one round with five actions and p"
        " features.",
        decide_and_learn,
    ),
    "Batches": (
        "Each number is the time in milliseconds for 10,000 decisions among five actions each, from one"
        " state of the policy.",
        batch_decisions,
    ),
    "The offline phase": (
        "Each number is the time in milliseconds to process a log of 8 windows (periods) with 4,000,"
        " 20,000 and 40,000 rows.",
        offline_fit,
    ),
    "Reading logs": (
        "Each package computes all second moments in 8 windows (periods of the log) from one million rows"
        " of 20 features in Parquet. The numbers are the least of three turns, because the first turn may"
        " include compilation. In an earlier run our library took 3.3 s because of compilation.",
        lambda turns: reading(),
    ),
    "Simulation": ("The simulation runs in one process.", lambda turns: throughput()),
    "Starting": (
        "Import time and memory are the least of three runs, and the column *installed* has the size of"
        " the package's own files.",
        lambda turns: starting(),
    ),
    "Growth": ("The exponent is the slope of log time over log size.", growth),
}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def lines_of(title: str, words: str, table: Table) -> list[str]:
    """A section of the page."""
    columns = list(dict.fromkeys(column for row in table.values() for column in row))
    lines = [
        f"## {title}",
        "",
        words,
        "",
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for name, row in table.items():
        lines.append(
            f"| {name} | "
            + " | ".join(number(row[c]) if c in row else "–" for c in columns)
            + " |"
        )
    return [*lines, ""]


def picture(table: Table, theme_name: str) -> Any:
    """Microseconds per round over the number of features, ours against the others."""
    from matplotlib import pyplot as plt

    with theme(theme_name) as colours:
        figure = plt.figure(figsize=(7.4, 4.2), layout="constrained")
        axis = figure.subplots()
        height = -np.inf
        for name, row in sorted(
            table.items(), key=lambda item: item[1][f"p = {DIMS[-1]}"]
        ):
            values = [row[f"p = {dim}"] for dim in DIMS]
            faint = {"lw": 1.0, "marker": ".", "color": colours["faint"]}
            axis.plot(
                DIMS, values, **({"lw": 2.2, "marker": "o"} if name in OURS else faint)
            )
            height = max(
                np.log(values[-1]), height + 0.19
            )  # names do not cover each other
            leader = {
                "arrowstyle": "-",
                "lw": 0.5,
                "color": colours["faint"],
                "relpos": (0, 0.5),
            }
            place = (120, float(np.exp(height)))
            axis.annotate(
                name,
                (DIMS[-1], values[-1]),
                place,
                va="center",
                fontsize=7.5,
                arrowprops=leader,
            )
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="features p",
            ylabel="microseconds per round",
            xlim=(9, 260),
        )
        axis.set_xticks(DIMS, [str(dim) for dim in DIMS])
        axis.set_ylim(top=1.3 * np.exp(height))
        axis.minorticks_off()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("docs/studies/speed.md"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    parser.add_argument("--turns", type=int, default=7, help="turns of each contender")
    options = parser.parse_args()
    missing = sorted({peer.package for peer in PEERS.values() if not peer.is_installed})
    lines = [
        "# Speed, beside other packages",
        "",
        "All numbers are from one run of `make bench`, in which the packages take turns. Each number is a"
        " median of processor time, and only the ratios between packages count. The packages mabwiser,"
        " contextualbandits, river and paretobandit have one model of p features per arm, and all other"
        " packages have one model for all actions. In the table *Decide and learn* a package plays"
        f" {ROUNDS} rounds per turn. In turns of 30 rounds the median time of AutoISD at p = 10"
        " features was 22 to 24 µs, mostly for checks of its alarm.",
        "",
        *(
            [f"Not installed, so left out: {', '.join(missing)}.", ""]
            if missing
            else []
        ),
    ]
    for title, (words, measure) in SECTIONS.items():
        print(f"{title} ...", flush=True)
        table = measure(options.turns)
        if measure is decide_and_learn:
            for theme_name in THEMES:
                picture(table, theme_name).savefig(
                    options.figures / f"speed-{theme_name}.png", dpi=160
                )
            lines += [
                "<picture>",
                '  <source media="(prefers-color-scheme: dark)" srcset="../figures/speed-dark.png">',
                '  <img alt="Microseconds per round over features" src="../figures/speed-light.png">',
                "</picture>",
                "",
            ]
        section = lines_of(title, words, table)
        print("\n".join(section[4:]), flush=True)
        lines += section
    page = wrap_prose("\n".join(lines))
    options.page.write_text(stamped(page, stamp_of("speed")))
    print(f"written to {options.page}")


if __name__ == "__main__":
    main()
