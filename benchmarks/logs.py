"""Reading a big log: a bare pyarrow + NumPy pass, ours, Dask and Spark, in one run; ratios, memory and
agreement. Then `fit` of a labelled log of clicks in four formats beside one DuckDB scan of the same files.

Run: python benchmarks/logs.py --folder /some/folder [--rows 5000000] [--engines local,dask,spark]
With --labelled only the table of the labelled log is made, as Markdown. Each pass
runs in a process of its own, so that its peak memory is its own (of clusters: the client's); starting up is
timed apart. Seconds, and processor seconds of all threads, are the least of three runs: a busy machine
disturbs less.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, WINDOWS = 20, 50
BEGIN, END = np.datetime64("2024-01-01", "us"), np.datetime64("2024-12-16", "us")
EDGES = BEGIN + (END - BEGIN) // WINDOWS * np.arange(WINDOWS + 1)


def write_log(path: Path, rows: int) -> None:
    """Rows in time order, float64 features with a mean, row groups of 100,000 rows, at least ten of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(FEATURES)]
    scratch = path.with_suffix(".part")
    writer = None
    for start in range(0, rows, 100_000):
        n = min(100_000, rows - start)
        features = rng.standard_normal((n, FEATURES)) + np.linspace(-3.0, 3.0, FEATURES)
        rewards = features @ np.linspace(0.5, 1.5, FEATURES) + rng.standard_normal(n)
        share = (start + np.arange(n)) / rows
        times = BEGIN + (share * (EDGES[-1] - BEGIN).astype(float)).astype(
            "timedelta64[us]"
        )
        columns = {"time": times, "reward": rewards} | {
            name: features[:, j] for j, name in enumerate(names)
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(scratch, table.schema)
        writer.write_table(table, row_group_size=min(100_000, rows // 10))
    assert writer is not None
    writer.close()
    scratch.rename(path)


def bare(path: str) -> np.ndarray[Any, Any]:
    """Sums of products of [1, φ, r] per window (50, 22, 22): what anyone would write first."""
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(FEATURES)]
    sums = np.zeros((WINDOWS, FEATURES + 2, FEATURES + 2))
    for batch in pq.ParquetFile(path).iter_batches(
        65_536, columns=["time", *names, "reward"]
    ):
        times = batch.column("time").to_numpy(zero_copy_only=False)
        columns = [batch.column(name).to_numpy() for name in (*names, "reward")]
        rows = np.column_stack([np.ones(len(times)), *columns])
        window = np.minimum(
            np.searchsorted(EDGES, times, side="right") - 1, WINDOWS - 1
        )
        for item in np.unique(window):
            part = rows[window == item]
            sums[item] += part.T @ part
    return sums


def augmented(moments: Any) -> np.ndarray[Any, Any]:
    """The same sums from our centred moments."""
    chosen = moments.chosen
    sums = np.empty((WINDOWS, FEATURES + 2, FEATURES + 2))
    sums[:, 0, 0] = chosen.count
    sums[:, 0, 1:] = sums[:, 1:, 0] = chosen.count[:, None] * chosen.mean
    outer = chosen.mean[:, :, None] * chosen.mean[:, None, :]
    sums[:, 1:, 1:] = chosen.scatter + chosen.count[:, None, None] * outer
    return sums


def one_pass(engine: str, path: str, out: str) -> None:
    """Run one engine, warm (imports, compiled functions, cluster) and then measured; called in its own
    process.
    """
    began = time.perf_counter()
    warm = f"{path}.small.parquet"
    close = None
    if engine == "bare":
        run = bare
        bare(warm)
    else:
        import invariant_bandits as ib

        target: Any = engine
        if engine == "dask":
            import distributed

            cluster = distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                dashboard_address=None,
                host="127.0.0.1",
                silence_logs=50,
            )
            target, close = distributed.Client(cluster), cluster.close
        elif engine == "spark":
            from invariant_bandits.logs.engines import open_spark_session

            target = open_spark_session("local[2]")
            close = target.stop

        def run(name: str) -> Any:
            log = ib.open_log(name)
            return augmented(log.moments(edges=EDGES, engine=target).moments)

        run(warm)
    started = time.perf_counter() - began
    times, work = [], []
    for _ in range(3):
        began, worked = time.perf_counter(), time.process_time()
        sums = run(path)
        times.append(time.perf_counter() - began)
        work.append(time.process_time() - worked)
    np.save(out, sums)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {"start": started, "seconds": min(times), "work": min(work), "peak": peak}
        )
    )
    if close is not None:
        close()


def measured(
    engine: str, path: Path, folder: Path, **environment: str
) -> tuple[dict[str, Any], Any]:
    out = folder / f"{engine}.npy"
    command = [
        sys.executable,
        __file__,
        "--one",
        engine,
        "--path",
        str(path),
        "--out",
        str(out),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environment
    )
    if done.returncode:
        raise SystemExit(f"{engine} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), np.load(out)


COUNTRIES = ("DE", "FR", "IT", "PL")
ARMS = 5
CONTEXT = ("age", "visits", "price")
RUNS = 3
ROWS_PER_TINY_GROUP = 200


def write_labelled(folder: Path, rows: int) -> dict[str, str]:
    """A log of clicks with time, arm, propensity, three numbers and a category; kind -> where it is."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = {
        "Parquet": "log.parquet",
        "CSV": "log.csv",
        "JSON lines": "log.jsonl",
        "hive folders": "days",
    }
    kinds = {kind: str(folder / name) for kind, name in places.items()}
    if (folder / "done").exists():
        return kinds
    rng, writer = np.random.default_rng(0), None
    for start in range(0, rows, 250_000):
        n = min(250_000, rows - start)
        numbers = {name: rng.normal(size=n).round(3) for name in CONTEXT}
        arm = rng.integers(0, ARMS, n)
        odds = -1.2 + 0.2 * arm + 0.3 * numbers["age"] * (arm - 2)
        share = (start + np.arange(n)) / rows
        table = pa.table(
            {
                "time": BEGIN
                + (share * (END - BEGIN).astype(float)).astype("timedelta64[us]"),
                "arm": np.array([f"banner {label}" for label in "ABCDE"])[arm],
                "clicked": (rng.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(int),
                "propensity": np.full(n, 1.0 / ARMS),
                **numbers,
                "country": np.array(COUNTRIES)[rng.integers(0, 4, n)],
            }
        )
        writer = writer or pq.ParquetWriter(kinds["Parquet"], table.schema)
        writer.write_table(table, row_group_size=100_000)
        days = table.column("time").to_numpy().astype("datetime64[D]")
        cuts = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), n]
        for first, last in pairwise(cuts):
            day = Path(kinds["hive folders"]) / f"day={days[first]}"
            day.mkdir(parents=True, exist_ok=True)
            part = day / f"{start + first}.parquet"
            pq.write_table(
                table.slice(first, last - first),
                part,
                row_group_size=ROWS_PER_TINY_GROUP,
            )
    assert writer is not None
    writer.close()
    for kind, how in (("CSV", "csv, header"), ("JSON lines", "json")):
        duckdb.sql(
            f"copy (from '{kinds['Parquet']}') to '{kinds[kind]}' (format {how})"
        )
    (folder / "done").touch()
    return kinds


def one_labelled(engine: str, path: str) -> None:
    """Fit the log, or aggregate it with DuckDB as `fit` does: products of context and click, by arm and
    window; prints processor seconds and peak memory. Called in its own process.
    """
    if engine == "fit":
        import invariant_bandits as ib

        ib.fit_logs(f"{path}.small.csv")  # imports and compiled functions
        worked = time.process_time()
        rounds = ib.fit_logs(path).moments.rounds
    else:
        import duckdb

        duckdb.sql("set threads = 2")
        files = (
            f"read_parquet('{path}/*/*.parquet')"
            if Path(path).is_dir()
            else f"'{path}'"
        )
        terms = [
            "1",
            *CONTEXT,
            *(f"(country = '{name}')::int" for name in COUNTRIES[1:]),
            "clicked",
        ]
        sums = [
            f"sum({a} * {b})" for place, a in enumerate(terms) for b in terms[place:]
        ]
        began = BEGIN.astype("datetime64[s]").astype(int)
        window = f"floor((epoch(time::timestamp) - {began}) / {350 * 86400 // 8})::int"
        worked = time.process_time()
        query = f"select arm, {window}, {', '.join(sums)} from {files} group by all"
        groups = duckdb.sql(query).fetchall()
        assert len(groups) == ARMS * 8, len(groups)
        rounds = sum(row[2] for row in groups)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {"work": time.process_time() - worked, "peak": peak, "rounds": int(rounds)}
        )
    )


def labelled_table(folder: Path, rows: int) -> None:
    """Processor seconds (the least of three interleaved runs), their ratio, and peak memory."""
    writing = multiprocessing.Process(target=write_labelled, args=(folder, rows))
    writing.start()  # a process hands its peak memory on to those that it starts
    writing.join()
    kinds = write_labelled(folder, rows)
    print(
        "| format | `fit`, processor s | one DuckDB scan | ratio | `fit`, peak MB | DuckDB, peak MB |"
    )
    print("|---|---|---|---|---|---|")
    for kind, path in kinds.items():
        with (
            open(kinds["CSV"]) as log,
            open(f"{path}.small.csv", "w") as small,
        ):
            small.writelines(line for line, _ in zip(log, range(5000), strict=False))
        runs: dict[str, list[dict[str, float]]] = {"fit": [], "duckdb": []}
        for _ in range(RUNS):
            for engine, done in runs.items():
                command = [
                    sys.executable,
                    __file__,
                    "--one-labelled",
                    engine,
                    "--path",
                    path,
                ]
                said = subprocess.run(
                    command, capture_output=True, text=True, check=True
                ).stdout
                done.append(json.loads(said.splitlines()[-1]))
        assert {run["rounds"] for done in runs.values() for run in done} == {rows}
        work = {
            engine: min(run["work"] for run in done) for engine, done in runs.items()
        }
        peak = {
            engine: max(run["peak"] for run in done) for engine, done in runs.items()
        }
        cells = [f"{seconds:.1f}" for seconds in work.values()] + [
            f"{work['fit'] / work['duckdb']:.1f} ×"
        ]
        print(
            f"| {' | '.join([kind, *cells, *(f'{size:.0f}' for size in peak.values())])} |",
            flush=True,
        )


def first_look(path: Path) -> None:
    """Schema, moments and fit of the first million rows, as a new user would ask for them, in a fresh
    process.
    """
    code = (
        "import time; t = time.perf_counter(); import invariant_bandits as ib; "
        f"read = ib.open_log({str(path)!r}).moments(windows=8); "
        "fit = ib.InvariantSubspaceDecomposition().fit(read.moments); print(time.perf_counter() - t, "
        "read.quality.rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    seconds, rows = done.stdout.split()
    print(
        f"first look (imports, schema, moments, fit) at {int(rows):,} rows × {FEATURES}: "
        f"{float(seconds):.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "invariant-bandits-benchmark",
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--engines", default="local,dask,spark")
    parser.add_argument("--labelled", action="store_true")
    parser.add_argument("--one")
    parser.add_argument("--one-labelled")
    parser.add_argument("--path")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.one:
        one_pass(arguments.one, arguments.path, arguments.out)
        return
    if arguments.one_labelled:
        one_labelled(arguments.one_labelled, arguments.path)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    labelled_table(arguments.folder, arguments.rows)
    if arguments.labelled:
        return
    path = arguments.folder / f"log-{arguments.rows}.parquet"
    for name, rows in (
        (path, arguments.rows),
        (Path(f"{path}.small.parquet"), 10_000),
        (arguments.folder / "million.parquet", 1_000_000),
    ):
        if not name.exists():
            write_log(name, rows)
    size = path.stat().st_size / 1e9
    print(
        f"{arguments.rows:,} rows × {FEATURES}, {size:.2f} GB of Parquet, {WINDOWS} windows, "
        f"{os.cpu_count()} cores"
    )
    head = f"{'':<22} {'start-up s':>10} {'seconds':>8} {'× bare':>7} {'CPU s':>6} {'peak MB':>8}"
    print(f"{head}  difference to bare, to local")
    several, bare_sums = measured("bare", path, arguments.folder)
    single, _ = measured("bare", path, arguments.folder, OPENBLAS_NUM_THREADS="1")
    base = min(
        several["seconds"], single["seconds"]
    )  # the faster of the two is what we are measured against
    show("bare", several, base)
    show("bare, BLAS one thread", single, base)
    local_sums = None
    for engine in arguments.engines.split(","):
        measures, sums = measured(engine, path, arguments.folder)
        local_sums = sums if engine == "local" else local_sums
        differences = [
            difference(sums, other)
            for other in (bare_sums, local_sums)
            if other is not None
        ]
        show(engine, measures, base, "  ".join(f"{item:.1e}" for item in differences))
    first_look(arguments.folder / "million.parquet")


def show(name: str, measures: dict[str, Any], base: float, against: str = "") -> None:
    times = f"{measures['start']:>10.1f} {measures['seconds']:>8.2f} {measures['seconds'] / base:>7.2f}"
    times += f" {measures['work']:>6.1f}"
    print(f"{name:<22} {times} {measures['peak']:>8.0f}  {against}")


def difference(sums: Any, reference: Any) -> float:
    """The largest difference of a sum of products relative to its Cauchy–Schwarz bound."""
    size = np.sqrt(np.diagonal(reference, axis1=1, axis2=2))
    return float(
        (np.abs(sums - reference) / (size[:, :, None] * size[:, None, :])).max()
    )


if __name__ == "__main__":
    main()
