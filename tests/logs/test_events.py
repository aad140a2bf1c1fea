"""dsjson and Vowpal's text: what is read is what Vowpal itself reads, and nothing strange is passed over
in silence.
"""

from pathlib import Path

import numpy as np
import pytest

import invariant_bandits as ib
from event_logs import assert_agrees, event, rows_of, vowpal_parser, written
from invariant_bandits.logs import events
from invariant_bandits.logs.formats import dsjson
from invariant_bandits.logs.formats.registry import open_source
from reading import read_moments, read_rounds

SAMPLES = Path(__file__).parents[2] / "../shared/data/dsjson"


@pytest.fixture(scope="module")
def vowpal():
    with vowpal_parser() as workspace:
        yield workspace


def test_every_sample_is_read_as_vowpal_reads_it(vowpal):
    if not SAMPLES.is_dir():
        pytest.skip("the samples are not beside the project")
    assert (
        sum(assert_agrees(vowpal, path) for path in sorted(SAMPLES.glob("*.json")))
        == 207
    )


def test_features_of_every_kind_are_those_of_vowpal(vowpal, tmp_path):
    """Numbers, words, truth, nothing, zero, lists of numbers and objects, objects within objects, text."""
    rng = np.random.default_rng(6)

    def namespace(depth):
        kinds = {
            "n": float(rng.integers(-3, 4)),
            "i": int(rng.integers(0, 9)),
            "w": str(rng.choice(["one", "two words"])),
            "t": bool(rng.random() < 0.5),
            "z": 0,
            "x": None,
            "v": rng.integers(0, 3, 3).tolist(),
            "_text": "some words here",
            "_hidden": 7,
            "L": [{"q": 1.5, "r": "word"}],
        }
        keys = rng.choice(list(kinds), size=rng.integers(1, len(kinds)), replace=False)
        inner = {"Inner": namespace(depth - 1)} if depth and rng.random() < 0.5 else {}
        return {str(key): kinds[str(key)] for key in keys} | inner

    lines = []
    for number in range(60):
        actions = [
            {"B": namespace(1), **({"_tag": f"tag{place}"} if number % 2 else {})}
            for place in range(3)
        ]
        context = {"U": namespace(2), "top": 2.5, "word": "here", "_multi": actions}
        lines.append(
            event(
                number,
                chosen=int(rng.integers(3)),
                cost=float(rng.normal()),
                context=context,
                actions=3,
            )
        )
    assert assert_agrees(vowpal, written(tmp_path / "log.json", lines)) == 60


def test_events_are_the_same_however_the_file_is_cut_into_blocks(tmp_path, monkeypatch):
    """Every kind of line, tags, lists, and words that look like times."""
    rng = np.random.default_rng(9)
    lines = []
    for n in range(300):
        user = {
            "age": int(rng.integers(2)),
            "day": f"2024-01-{1 + n % 28:02d}",
            "score": rng.integers(0, 3, 2).tolist(),
        }
        items = [
            {
                "B": [{"w": f"word {(n + k) % 5}", "x": float(rng.normal())}],
                **({"_tag": f"t{k}"} if n % 3 else {}),
            }
            for k in range(1 + n % 4)
        ]
        context = {
            "U": {**user, "Inner": {"deep": bool(n % 2), "day": None}},
            "only": n % 9,
            "_multi": items,
        }
        more = [
            {},
            {"_skipLearn": n % 2 == 0},
            {"pdrop": 0.5},
            {"pdrop": 1.0},
            {"_original_label_cost": -1.0},
        ]
        line = event(
            n,
            chosen=int(rng.integers(5)),
            cost=float(rng.normal()),
            context=context,
            **more[n % 5],
        )
        lines.append(line if n % 7 else {"EventId": f"d{n}", "RewardValue": 1.0})
        if n % 11 == 0:
            lines[-1].pop("o", None)
        if n % 13 == 0:
            lines[-1].pop("_label_cost", None)
    lines[155] |= {
        "_labelIndex": 0,
        "c": {"U": {"tags": ["several", "words"]}, "_multi": [{}, {}]},
    }
    path = written(tmp_path / "log.json", lines)

    def read(block_bytes):
        monkeypatch.setattr(dsjson, "BLOCK_BYTES", block_bytes)
        source = dsjson.DsjsonSource((str(path),))
        (task,) = source.tasks
        rows = [
            row
            for _, batch in source.batches(task, source.arrow_schema.names)
            for row in batch.to_pylist()
        ]
        return source.arrow_schema, source.schema, rows, dict(source.skipped(task))

    whole = read(dsjson.BLOCK_BYTES)
    assert read(path.stat().st_size // 3) == whole
    assert len(whole[3]) == 8


def test_a_list_of_words_is_one_feature_per_word(tmp_path):
    """Vowpal refuses such an event; to lose it would be worse."""
    lines = [
        event(n, context={"U": {"tags": ["a", "b"][: 1 + n % 2]}, "_multi": [{}, {}]})
        for n in range(4)
    ]
    rows = rows_of(written(tmp_path / "log.json", lines))
    assert [(row["U.tags=a"], row["U.tags=b"]) for row in rows[::2]] == [
        (1.0, 0.0),
        (1.0, 1.0),
    ] * 2


def test_what_is_no_event_is_counted_by_its_reason(tmp_path):
    no_label = {
        key: value for key, value in event(5).items() if not key.startswith("_label")
    }
    no_outcome = {
        key: value for key, value in event(6, cost=-0.0).items() if key != "o"
    }
    lines = [
        event(0),
        '{"_label_cost": -1, "c": {',
        {"EventId": "e1", "RewardValue": 3.0, "ActionTaken": False},
        event(2, _skipLearn=True),
        event(3, pdrop=1.0),
        event(4, chosen=7),
        no_label,
        no_outcome,
        event(7, pdrop=0.75),
        event(8, _original_label_cost=-5.0),
        "[1, 2]",
    ]
    path = written(tmp_path / "log.dsjson", lines)
    quality = read_moments(
        path, {"features": ["U.age"]}, windows=1, keep_going=True
    ).quality
    counted = {reason: problem.count for reason, problem in quality.problems.items()}
    assert counted == {
        dsjson.DAMAGED: 2,
        dsjson.DANGLING: 1,
        dsjson.NOT_LEARNED: 1,
        dsjson.ALL_DROPPED: 1,
        dsjson.OUTSIDE: 1,
        dsjson.UNLABELLED: 1,
        dsjson.NO_OUTCOME: 1,
        dsjson.DROPPED: 1,
        dsjson.APPRENTICE: 1,
    }
    assert quality.rounds == 4
    chosen = [row for row in rows_of(path) if row["chosen"]]
    assert [row["reward"] for row in chosen] == [1.0, 0.0, 1.0, 1.0]
    assert [row["__observed_reward"] for row in chosen] == [1.0, 0.0, 1.0, 5.0]
    assert [row["__weight"] for row in chosen] == [1.0, 1.0, 4.0, 1.0]


@pytest.mark.parametrize(
    "changed",
    [
        {"_label_cost": "much"},
        {"_labelIndex": "1"},
        {"_label_probability": [0.5]},
        {"pdrop": "x"},
        {"c": {"_multi": [None, {}]}},
        {"c": {"_multi": [3, {}]}},
        {"c": {"U": {"age": 10**400}, "_multi": [{}, {}]}},
        {"c": [1]},
    ],
)
def test_values_of_a_wrong_kind_cost_their_event_only(changed, tmp_path):
    path = written(
        tmp_path / "log.json",
        [event(n, **(changed if n == 5 else {})) for n in range(20)],
    )
    quality = read_moments(
        path, {"features": ["U.age"]}, windows=1, keep_going=True
    ).quality
    assert (quality.rounds, quality.left_out) == (19, 1)


def test_the_reward_that_was_observed_can_be_asked_for(tmp_path):
    path = written(
        tmp_path / "log.json",
        [event(n, _original_label_cost=-float(n)) for n in range(2, 9)],
    )
    batches = read_rounds(
        path, {"reward": "__observed_reward", "features": ["A.price"]}
    )
    assert [reward for batch in batches for reward in batch.rewards] == [
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
        7.0,
        8.0,
    ]


@pytest.mark.parametrize(
    "line",
    [
        {"_outcomes": [{"_label_cost": 0}], "c": {}, "EventId": "x"},
        event(context={"_multi": [], "_slots": [{}]}),
    ],
)
def test_decisions_for_several_slots_are_refused_with_the_reason(line, tmp_path):
    path = written(tmp_path / "log.json", [line])
    with pytest.raises(ib.FileError, match=r"line 0 has decisions for several slots"):
        open_source(path)


def test_rounds_times_and_offered_actions_are_the_planted_ones(tmp_path):
    rng = np.random.default_rng(2)
    chosen, rewards = rng.integers(0, 3, 50), rng.normal(size=50)
    lines = [
        event(n, chosen=int(chosen[n]), cost=-rewards[n], actions=3) for n in range(50)
    ]
    batches = list(
        read_rounds(
            written(tmp_path / "log.json", lines), {"features": ["A.price", "U.age"]}
        )
    )
    np.testing.assert_array_equal(
        np.concatenate([batch.action for batch in batches]), chosen
    )
    np.testing.assert_allclose(
        np.concatenate([batch.rewards for batch in batches]), rewards
    )
    offered = np.concatenate([batch.offered for batch in batches])
    np.testing.assert_array_equal(offered[:, 0], np.tile([1.0, 2.0, 3.0], 50))
    np.testing.assert_array_equal(offered[:, 1], np.repeat(20.0 + np.arange(50), 3))
    assert {share for batch in batches for share in batch.propensity} == {0.25}
    assert batches[0].times[0] == np.datetime64("2024-03-01T10:00:00.123456")


def test_only_the_most_frequent_features_are_columns_and_the_rest_is_said(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(events, "MOST_FEATURES", 6)
    monkeypatch.setattr(events, "MANY_WORDS", 10)
    context = [
        {
            "U": {"id": f"user {n}", f"rare{n}": 1, "age": n},
            "_multi": [{"A": {"x": 1.5}}, {}],
        }
        for n in range(30)
    ]
    path = written(
        tmp_path / "log.json",
        [event(n, context=item) for n, item in enumerate(context)],
    )
    source = dsjson.DsjsonSource((str(path),))
    assert len(source.columns) == 6
    assert {"U.id", "U.age", "A.x"} <= set(source.columns)
    assert "U.id" not in source.schema.features
    assert (
        "27 features that are not among the 6 most frequent" in source.schema.describe()
    )


def drinks(n, **changed):
    items = [
        {"_tag": tag, "item": {"id": tag, "hot": tag != "juice", **changed}}
        for tag in ("tea", "mocha", "juice")
    ]
    return event(
        n,
        chosen=n % 3,
        context={
            "user": {"age": float(n % 7)},
            "_multi": items[: 2 + n % 5 % 2 if n else 3],
        },
    )


def test_actions_whose_features_depend_on_their_label_only_are_arms(tmp_path):
    lines = [
        line
        for n in range(60)
        if (line := drinks(n))["_labelIndex"] < len(line["c"]["_multi"])
    ]
    path = written(tmp_path / "log.json", lines)
    log = ib.open_log(path)
    assert (log.schema.arm, log.schema.action, log.schema.features) == (
        "action",
        None,
        ("user.age",),
    )
    assert log.arms.labels == ("juice", "mocha", "tea")
    assert ("ignored", "item.hot", "depends on the arm only") in log.schema.rows()
    rows = ib.open_log(path, {"features": ["item.hot", "user.age"]}).schema
    assert (rows.arm, rows.action, rows.features) == (
        None,
        "action",
        ("item.hot", "user.age"),
    )
    assert ib.open_log(path, {"arm": None}).schema.features == (
        "item.hot",
        "item.id",
        "user.age",
    )
    varied = written(tmp_path / "varied.json", [*lines, drinks(3, price=1.5)])
    assert ib.open_log(varied).schema.arm is None


def test_rare_names_among_very_many_are_forgotten_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MOST_NAMES", 2000)
    users = [{f"key {n} {k}": 1 for k in range(15)} for n in range(600)]
    lines = [
        event(n, context={"U": user, "_multi": [{"A": {"x": n % 5}}, {}]})
        for n, user in enumerate(users)
    ]
    source = dsjson.DsjsonSource((str(written(tmp_path / "log.json", lines)),))
    assert "A.x" in source.schema.features
    assert len(source.columns) == 500
    assert (
        "8,501 features that are not among the 500 most frequent"
        in source.schema.describe()
    )


def test_json_lines_that_are_no_events_stay_json_lines(tmp_path):
    path = written(tmp_path / "log.json", [{"reward": n % 2, "x": n} for n in range(9)])
    assert type(open_source(path)).__name__ == "JsonLinesSource"


TEXT = """\
shared |user age:0.3 country=DE
|item price:2.5 color=red
2:-1.5:0.25 |item price:1.5 color=blue |other:2 x:3

shared |user age:0.5 country=FR
0:0:0.5 'first |item price:2.5 color=red
'second |item price:1.5 color=blue

|item price:1
|item price:2

0:1:x |item price:1

shared |user age:1
0:1:0.5 |item price:1
0:1:0.5 |item price:2

shared |user age:1
"""


def test_vowpal_text_is_one_row_per_action(tmp_path):
    (tmp_path / "log.vw").write_text(TEXT)
    rows = rows_of(tmp_path / "log.vw")
    assert [row["action"] for row in rows] == ["1", "2", "first", "second"]
    assert [row["chosen"] for row in rows] == [False, True, True, False]
    assert [row["reward"] for row in rows] == [None, 1.5, 0.0, None]
    assert [row["propensity"] for row in rows] == [None, 0.25, 0.5, None]
    assert [row["item.color"] for row in rows] == ["red", "blue", "red", "blue"]
    assert [row["item.price"] for row in rows] == [2.5, 1.5, 2.5, 1.5]
    assert [row["user.country"] for row in rows] == ["DE", "DE", "FR", "FR"]
    assert [row["other.x"] for row in rows] == [0.0, 6.0, 0.0, 0.0]
    quality = read_moments(
        tmp_path / "log.vw", {"features": ["item.price"]}, windows=1, keep_going=True
    ).quality
    assert {reason: problem.count for reason, problem in quality.problems.items()} == {
        "event without a label": 1,
        "damaged event": 1,
        "event with more than one labelled action": 1,
        "event without actions": 1,
    }


def test_vowpal_text_without_a_usable_event_is_refused(tmp_path):
    (tmp_path / "log.vw").write_text("hello\n\nworld\n")
    with pytest.raises(
        ib.FileError,
        match=r"log\.vw is not readable: .* used: 2 × event without a label",
    ):
        open_source(tmp_path / "log.vw")
