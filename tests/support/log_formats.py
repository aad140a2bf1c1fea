"""Small logs written in every format that can be read."""

import json

import pyarrow.parquet as pq
from pyarrow import csv, feather

import invariant_bandits as ib


def read_table(path):
    """The Arrow table of a CSV or Parquet file."""
    return csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)


def write_log(table, path):
    """Write a table in the format of a suffix; .vw and .dsjson need one row per offered action."""
    if path.suffix in (".csv", ".tsv"):
        delimiter = "," if path.suffix == ".csv" else "\t"
        csv.write_csv(
            table, path, csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        )
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix in (".arrow", ".feather"):
        feather.write_feather(table, path)
    elif path.suffix == ".jsonl":
        path.write_text(
            "".join(f"{json.dumps(row, default=str)}\n" for row in table.to_pylist())
        )
    else:
        as_event = _vowpal_text if path.suffix == ".vw" else _dsjson
        path.write_text("".join(as_event(*each) for each in _events(table)))


def _events(table):
    """(id, place of the chosen action, cost, propensity, features of every action) of every round."""
    schema, rounds = ib.open_log(table).schema, {}
    for row in table.to_pylist():
        rounds.setdefault(str(row[schema.round]), []).append(row)
    for name, rows in rounds.items():
        (chosen,) = (place for place, row in enumerate(rows) if row[schema.chosen])
        cost, share = -rows[chosen][schema.reward], rows[chosen][schema.propensity]
        yield (
            name,
            chosen,
            cost,
            share,
            [{key: row[key] for key in schema.features} for row in rows],
        )


def _vowpal_text(name, chosen, cost, share, actions):
    lines = [
        " ".join(["|", *(f"{key}:{value!r}" for key, value in action.items())])
        for action in actions
    ]
    lines[chosen] = f"0:{cost!r}:{share!r} {lines[chosen]}"
    return "\n".join([*lines, "", ""])


def _dsjson(name, chosen, cost, share, actions):
    label = {
        "_label_cost": cost,
        "_label_probability": share,
        "_labelIndex": chosen,
        "EventId": name,
    }
    return (
        json.dumps(
            {**label, "o": [{"v": -cost, "EventId": name}], "c": {"_multi": actions}}
        )
        + "\n"
    )
