"""Events as a decision service logs them, and the rows that they are read as."""

import json

from invariant_bandits.logs.opening import open_source


def event(number=0, *, chosen=1, cost=-1.0, context=None, actions=2, **more):
    """A line of the log; the second of its actions is chosen unless told otherwise."""
    multi = [{"A": {"price": 1.0 + place, "color": "red" if place % 2 else "blue"}} for place in range(actions)]
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
        "c": {"U": {"age": 20.0 + number}, "_multi": multi} if context is None else context,
        "p": [0.25] + [0.75 / max(1, actions - 1)] * (actions - 1),
        "VWState": {"m": "N/A"},
        **more,
    }


def written(path, lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def rows_of(path):
    source = open_source(path)
    names = source.arrow_schema.names
    return [row for task in source.tasks for _, batch in source.batches(task, names) for row in batch.to_pylist()]
