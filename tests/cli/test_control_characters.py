"""Names, labels and values from a log never steer a terminal or a page: what is no writing is written out."""

import json
import sys
import unicodedata

import numpy as np
import pytest

from invariant_bandits.checks import escape_control_chars, escape_json, escape_line

NAMES = [
    "pri\x1b[31mce",
    "a\x9b31mge",
    "si\u202eze",
    "ho\x07ur\r",
    "k\u2066ey",
    "tag\U000e0041",
]
LABELS = ["A\x1b]0;title\x07", "B\u202e\u2028", "C\x85\x00", "D\ud83d"]
VALUES = ["desk\x1b[2Jtop", "pho\u200fne"]
KINDS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of Unicode: controls, formats, surrogates, ends of lines and paragraphs."""


def steering(text):
    return {
        sign
        for sign in text
        if unicodedata.category(sign) in KINDS and sign not in "\n\t"
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A labelled log whose every name, label and value has control characters; three arms with a
    reason each.
    """
    rng, path = (
        np.random.default_rng(0),
        tmp_path_factory.mktemp("steering") / "log.jsonl",
    )
    lines = []
    for _ in range(600):
        row = dict(zip(NAMES, rng.normal(size=len(NAMES)).tolist(), strict=True))
        row |= {
            "device\x1b": VALUES[rng.integers(2)],
            "arm": LABELS[rng.integers(3)],
            "propensity": 1 / 3,
        }
        lines.append(json.dumps(row | {"reward": float(rng.normal() + row[NAMES[0]])}))
    path.write_text("\n".join(lines))
    return path


def test_nothing_that_a_command_prints_or_draws_steers_anything(
    log, run_apart, tmp_path
):
    model = tmp_path / "m.model"
    said = {}
    said["fit"] = run_apart("fit", log, "-o", model)
    said["inspect"] = run_apart("inspect", model)
    said["arms"] = run_apart(
        "arms",
        model,
        "--add",
        LABELS[3].replace("\ud83d", "\x9d"),
        "--retire",
        LABELS[0],
    )
    said["update"] = run_apart(
        "update", model, log, "-o", tmp_path / "n.model", "--windows", 2
    )
    said["evaluate"] = run_apart(
        "evaluate",
        log,
        "--policy",
        "linucb",
        "--report",
        tmp_path / "e.html",
        "--jobs",
        1,
    )
    for command, (code, out, err) in said.items():
        assert code in (0, 3), (command, err)
        assert not steering(out + err), command
    assert r"pri\x1b[31mce" in said["inspect"][1]
    assert r"B\u202e\u2028" in said["arms"][1]
    for page in ("m.html", "n.html", "e.html"):
        assert not steering((tmp_path / page).read_text()), page
    assert r"si\u202eze" in (tmp_path / "m.html").read_text()


def test_json_says_the_same_names_and_is_plain_to_a_terminal(log, run_apart, tmp_path):
    code, out, err = run_apart(
        "fit", log, "-o", tmp_path / "m.model", "--no-value", "--json"
    )
    assert code == 0, err
    assert not steering(out + err)
    assert set(NAMES) <= set(json.loads(out)["schema"]["features"])


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "\x1b[31mlog.csv", "-o", "m"),
        ("fit", "{log}", "-o", "m", "--reward", "re\u202eward"),
        ("fit", "{log}", "-o", "m\x07/m"),
        ("fit", "{log}", "-o", "m", "--policy", "lin\x9bucb"),
        ("inspect", "m\x1b[2J"),
        ("simulate", "grid\x1b.toml"),
    ],
)
def test_errors_do_not_either(words, log, run_apart, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run_apart(
        *(str(log) if word == "{log}" else word for word in words)
    )
    assert code == 2
    assert not steering(out + err)
    assert "\\x" in err or "\\u" in err
    assert len(err.splitlines()) == 1


def test_names_of_files_are_not_taken_for_markup(log, run_apart, tmp_path):
    folder = tmp_path / "[red]:smile:"
    folder.mkdir()
    _, out, _ = run_apart("fit", log, "-o", folder / "m", "--no-value")
    assert f"model: {folder / 'm'}" in out


def test_writing_out_leaves_writing_alone():
    text = "größe, 価格, قیمت‌ها, 👩‍🚀, prix\tà\n"
    assert escape_control_chars(text) == text
    assert escape_line("a\nb\tc") == r"a\nb\tc"
    for sign in filter(
        lambda item: unicodedata.category(item) in KINDS,
        map(chr, range(sys.maxunicode + 1)),
    ):
        shown = escape_control_chars(sign)
        assert json.loads(escape_json(json.dumps(sign, ensure_ascii=False))) == sign
        assert escape_control_chars(shown) == shown
