"""Events as a decision service logs them, and the rows that they are read as."""

import json
from contextlib import contextmanager

import pytest

from invariant_bandits.logs.events import NONE
from invariant_bandits.logs.formats.registry import open_source

BITS = 24
FIXED = {
    "event_id",
    "action",
    "chosen",
    "reward",
    "propensity",
    "time",
    "__observed_reward",
    "__weight",
}


def event(number=0, *, chosen=1, cost=-1.0, context=None, actions=2, **more):
    """A line of the log; the second of its actions is chosen unless told otherwise."""
    multi = [
        {"A": {"price": 1.0 + place, "color": "red" if place % 2 else "blue"}}
        for place in range(actions)
    ]
    return {
        "_label_cost": cost,
        "_label_probability": 0.25,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "o": [{"v": -cost, "EventId": f"e{number}", "ActionTaken": False}],
        "Timestamp": f"2024-03-0{1 + number % 9}T10:00:00.1234567Z",
        "Version": "1",
        "EventId": f"e{number}",
        "a": [chosen + 1, *(place + 1 for place in range(actions) if place != chosen)],
        "c": {"U": {"age": 20.0 + number}, "_multi": multi}
        if context is None
        else context,
        "p": [0.25] + [0.75 / max(1, actions - 1)] * (actions - 1),
        "VWState": {"m": "N/A"},
        **more,
    }


def written(path, lines):
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def rows_of(path):
    source = open_source(path)
    names = source.arrow_schema.names
    return [
        row
        for task in source.tasks
        for _, batch in source.batches(task, names)
        for row in batch.to_pylist()
    ]


def rounds_of(path):
    """Rows by event, in the order of the log."""
    found = {}
    for row in rows_of(path):
        found.setdefault(row["event_id"], []).append(row)
    return list(found.values())


@contextmanager
def vowpal_parser():
    """Vowpal's own parser of dsjson, the judge."""
    pyvw = pytest.importorskip(
        "vowpalwabbit", reason="Vowpal's own parser is the judge"
    )
    with pyvw.Workspace(f"--cb_explore_adf --dsjson --quiet -b {BITS}") as workspace:
        yield workspace


def seen_by_vowpal(workspace, line):
    """Per action, without the shared line: (tag, labels, shared and own features as hash → value)."""
    from vowpalwabbit import LabelType

    parsed = workspace.parse(line)
    found = []
    for item in parsed:
        features = {}
        for place in range(item.num_namespaces()):
            if item.namespace(place) != 128:  # the constant
                for index in range(item.num_features_in(place)):
                    key = item.feature(place, index) % 2**BITS
                    features[key] = features.get(key, 0.0) + item.feature_weight(
                        place, index
                    )
        costs = [
            (cost.cost, cost.probability)
            for cost in item.get_label(LabelType.CONTEXTUAL_BANDIT).costs
        ]
        found.append((item.get_tag(), costs, features))
    workspace.finish_example(parsed)
    shared = found[0][2]
    sums = [
        {key: shared.get(key, 0.0) + own.get(key, 0.0) for key in shared | own}
        for _, _, own in found[1:]
    ]
    return [
        (tag, costs, {key: value for key, value in features.items() if value})
        for (tag, costs, _), features in zip(found[1:], sums, strict=True)
    ]


def hashed(workspace, row):
    """The features of a row under the hashes that Vowpal gives them."""
    features = {}
    for column, value in row.items():
        if column in FIXED or value in (0.0, NONE):
            continue
        namespace, dot, name = (
            column.removesuffix(" (word)").removesuffix(" (number)").rpartition(".")
        )
        name = name.replace("=", "").replace(" ", "_")  # of a name with several words
        if not dot and name.endswith("]"):
            namespace, _, place = name[:-1].partition("[")
            key = workspace.hash_space(namespace) + int(place)
        else:
            word = (
                f"{name}{value.replace(' ', '_')}" if isinstance(value, str) else name
            )
            key = workspace.hash_feature(word, workspace.hash_space(namespace or " "))
        features[key % 2**BITS] = features.get(key % 2**BITS, 0.0) + (
            1.0 if isinstance(value, str) else value
        )
    return features


def assert_agrees(workspace, path):
    """Labels, costs, propensities, chosen actions and features of every event; returns how many there
    were.
    """
    lines = path.read_text().splitlines()
    rounds = rounds_of(path)
    assert len(rounds) == len(lines)
    for line, rows in zip(lines, rounds, strict=True):
        judged = seen_by_vowpal(workspace, line)
        assert len(judged) == len(rows)
        for place, (row, (tag, costs, features)) in enumerate(
            zip(rows, judged, strict=True)
        ):
            assert row["action"] == (tag or str(place + 1))
            assert row["chosen"] == bool(costs)
            if costs:
                assert (row["reward"], row["propensity"]) == pytest.approx(
                    (-costs[0][0], costs[0][1]), rel=1e-6
                )
            assert hashed(workspace, row) == pytest.approx(features, rel=1e-6)
    return len(lines)
