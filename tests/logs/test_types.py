"""Values that systems write in several ways: text for numbers, words for rewards, spellings of a category."""

import json

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.decode import ANSWERS, TRUTH
from reading import read_feedback

ROUNDS = 3000


def pushes(seed=0, rounds=ROUNDS):
    """Hours for pushes with known propensities; 20 h is best."""
    rng = np.random.default_rng(seed)
    hour = rng.choice(["8h", "12h", "20h"], rounds, p=[0.5, 0.3, 0.2])
    chance = {"8h": 0.5, "12h": 0.3, "20h": 0.2}
    return {
        "sent": [
            f"2024-03-{1 + place * 28 // rounds:02}T10:00:00" for place in range(rounds)
        ],
        "hour": hour.tolist(),
        "student": (rng.random(rounds) < 0.4).astype(int).tolist(),
        "propensity": [chance[each] for each in hour],
        "opened": (rng.random(rounds) < np.where(hour == "20h", 0.5, 0.2))
        .astype(int)
        .tolist(),
    }


def write_lines(path, columns):
    rows = (
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def halves(columns):
    middle = ROUNDS // 2
    return [
        {name: values[part] for name, values in columns.items()}
        for part in (slice(middle), slice(middle, None))
    ]


@pytest.mark.parametrize("name", ["propensity", "router_prob"])
def test_propensities_written_as_text_are_numbers(name, tmp_path):
    columns = pushes()
    columns[name] = [str(p) for p in columns.pop("propensity")]
    log = ib.open_log(write_lines(tmp_path / "log.jsonl", columns), {"arm": "hour"})
    assert log.schema.propensity == name
    np.testing.assert_allclose(
        read_feedback(log).feedback.propensities,
        np.array(columns[name], float),
    )


def test_a_reward_of_text_numbers_is_a_reward(tmp_path):
    columns = pushes()
    columns["opened"] = [str(opened) for opened in columns["opened"]]
    assert (
        ib.open_log(
            write_lines(tmp_path / "log.jsonl", columns), {"arm": "hour"}
        ).schema.reward
        == "opened"
    )


def shuffled(columns):
    order = np.random.default_rng(4).permutation(ROUNDS)
    return {
        name: [values[place] for place in order] for name, values in columns.items()
    }


@pytest.mark.parametrize("later", [str, bool, float])
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_types_that_differ_between_files_out_of_order_are_read_as_those_of_the_log(
    later, suffix, tmp_path
):
    """0 and 1 in the first file, text, truth values or fractions in the second: the same numbers."""
    columns = shuffled(pushes())
    first, second = halves(columns)
    for name in ("student", "opened"):
        second[name] = [later(value) for value in second[name]]
    if suffix == "jsonl":
        for number, part in enumerate((first, second)):
            write_lines(tmp_path / f"part{number}.jsonl", part)
    else:
        for number, part in enumerate((first, second)):
            rows = [
                ",".join(part),
                *(",".join(map(str, row)) for row in zip(*part.values(), strict=True)),
            ]
            (tmp_path / f"part{number}.csv").write_text("\n".join(rows))
    feedback = read_feedback(str(tmp_path), {"arm": "hour"}).feedback
    assert feedback.rounds == ROUNDS
    assert feedback.rewards.sum() == sum(columns["opened"])
    expected = read_feedback(pa.table(columns), {"arm": "hour"}).feedback
    np.testing.assert_array_equal(np.sort(feedback.rewards), np.sort(expected.rewards))
    assert feedback.offered.shape == expected.offered.shape


@pytest.mark.parametrize(("ones", "zeros"), ANSWERS)
def test_answers_of_many_languages_are_rewards_of_one_and_zero(ones, zeros):
    columns = pushes()
    for one, zero in [
        (ones.split()[0], zeros.split()[0]),
        (ones.split()[-1].title(), zeros.split()[-1].title()),
    ]:
        words = [one if opened else zero for opened in columns["opened"]]
        model = ib.fit_logs(pa.table(columns | {"opened": words}), {"arm": "hour"})
        mean = (
            float(model.moments.counts @ model.moments.reward_mean)
            / model.moments.rounds
        )
        assert mean == pytest.approx(np.mean(columns["opened"]))


def test_no_word_means_yes_in_one_language_and_no_in_another():
    ones = {word for line, _ in ANSWERS for word in line.split()}
    zeros = {word for _, line in ANSWERS for word in line.split()}
    assert not ones & zeros
    assert set(TRUTH) == ones | zeros


def test_words_of_a_reward_that_nobody_knows_are_asked_for_and_their_worth_can_be_said():
    columns = pushes()
    words = np.select(
        [np.array(columns["opened"]) == 1, np.arange(ROUNDS) % 2 == 0],
        ["gold", "tin"],
        "iron",
    )
    table = pa.table(columns | {"opened": words})
    with pytest.raises(ib.InputError, match=r"holds words: .*'gold'.* --reward-values"):
        ib.open_log(table, {"arm": "hour", "reward": "opened"})
    worth = {"gold": 3.0, "tin": 1.0, "iron": -1.0}
    known = {"arm": "hour", "reward": "opened", "reward_values": worth}
    model = ib.fit_logs(table.slice(0, 2000), known)
    after = model.update_from(table.slice(2000), windows=1).model
    mean = (
        float(after.moments.counts @ after.moments.reward_mean) / after.moments.rounds
    )
    assert mean == pytest.approx(np.mean([worth[word] for word in words]))


def test_categories_that_differ_in_case_or_blanks_are_named():
    columns = pushes()
    city = np.random.default_rng(5).choice(["Berlin", "berlin ", "Bonn"], ROUNDS)
    columns["hour"][:50] = [hour.upper() for hour in columns["hour"][:50]]
    model = ib.fit_logs(pa.table(columns | {"city": city}), {"arm": "hour"})
    notes = "\n".join(model.notes)
    assert "'Berlin', 'berlin '" in notes
    assert "'20H', '20h'" in notes
    assert "Bonn" not in notes
