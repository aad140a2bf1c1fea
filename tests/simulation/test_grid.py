"""A configuration file becomes exactly the cells it describes, or an error that names the entry."""

import datetime
import sys
import warnings
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest

from invariant_bandits import WindowedMoments
from invariant_bandits.checks import InputError
from invariant_bandits.policies import registry
from invariant_bandits.policies.past import ForgetsNothingWarning, Past
from invariant_bandits.simulation.cells import (
    TOP,
    grid_of,
    load_compiled_code,
    read_grid,
    run,
)
from invariant_bandits.simulation.episodes import ENVIRONMENTS
from invariant_bandits.simulation.paper import PaperWorld

POLICIES = {"LinUCB": {}, "tuned": {"kind": "LinUCB", "exploration": 0.3}}


def test_every_combination_of_the_lists_is_a_cell():
    grid = grid_of(
        {
            "replications": 7,
            "seed": 3,
            "horizon": 50,
            "environment": {
                "logged": [500, 1000],
                "violation": [0.0, 2.0],
                "world": {"drift": [0.5, 1.0]},
            },
            "policies": POLICIES,
        }
    )
    seen = {
        (c.environment.logged, c.environment.violation, c.environment.world.drift)
        for c in grid.cells
    }
    assert len(grid.cells) == len(seen) == 8
    assert len({cell.name for cell in grid.cells}) == 8
    assert all(
        cell.horizon == 50 and list(cell.policies) == ["LinUCB", "tuned"]
        for cell in grid.cells
    )
    assert (grid.replications, grid.seed) == (7, 3)


def test_blocks_are_one_value_and_lists_of_blocks_are_several():
    one = grid_of(
        {
            "environment": {"world": {"blocks": [2, 2], "varying": 1}},
            "policies": POLICIES,
        }
    )
    several = grid_of(
        {
            "environment": {"world": {"blocks": [[2, 2], [3, 1]], "varying": 1}},
            "policies": POLICIES,
        }
    )
    assert [cell.environment.world.blocks for cell in one.cells] == [(2, 2)]
    assert [cell.environment.world.blocks for cell in several.cells] == [(2, 2), (3, 1)]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"policies": {}}, r"\[policies\] is empty"),
        ({"policies": POLICIES, "horizont": 3}, "no entry 'horizont'"),
        (
            {"policies": POLICIES, "environment": {"log": 3}},
            "environment has no entry 'log'",
        ),
        (
            {"policies": POLICIES, "environment": {"world": {"drif": 3}}},
            "environment.world has no entry 'drif'",
        ),
        (
            {"policies": POLICIES, "environment": {"kind": "cube"}},
            "environment must be one of .*hypercube, labelled-arms, paper",
        ),
        (
            {"policies": POLICIES, "environment": {"logged": []}},
            "logged is an empty list",
        ),
        ({"policies": {"LinUBC": {}}}, "policy must be one of"),
        (
            {"policies": {"LinUCB": {"explore": 1}}},
            "'linucb' has no option 'explore'; it has delta",
        ),
        (
            {"policies": {"own": {"kind": "no_such_module:make"}}},
            "policy must be one of",
        ),
        (
            {"policies": {"LinUCB": {"exploration": [0.1, 0.3]}}},
            "exploration must be one value",
        ),
        ({"policies": POLICIES, "horizon": 0}, "horizon"),
    ],
)
def test_a_wrong_entry_is_named(config, words):
    with pytest.raises(InputError, match=words):
        grid_of(config)


def test_the_file_is_named_with_the_entry(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text("replications = 5\n[policies.LinUBC]\n")
    with pytest.raises(InputError, match=r"grid\.toml: policy must be one of"):
        read_grid(path)
    path.write_text("replications = \n")
    with pytest.raises(InputError, match=r"grid\.toml is not readable as TOML"):
        read_grid(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"policies": 3}, "policies must be a table"),
        (
            {"policies": {"linucb": {}}, "environment": []},
            "environment must be a table",
        ),
        (
            {"policies": {"linucb": {}}, "environment": {"world": 1}},
            "environment.world must be a table",
        ),
        (
            {"policies": {"linucb": {}}, "environment": {"world": {"blocks": 3}}},
            "blocks must be a list",
        ),
        (
            {"policies": {"linucb": {}}, "environment": {"logged": "many"}},
            "logged|environment",
        ),
        ({"policies": {"linucb": {}}, "horizon": "long"}, "horizon"),
        (
            {"policies": {"linucb": {"kind": "os:system"}}},
            "policy must be one of",
        ),
        (
            {
                "policies": {"linucb": {}},
                "environment": {"world": {"blocks": [[1, 2], 3]}},
            },
            "blocks must be a list",
        ),
        (
            {"policies": {"linucb": {}}, "horizon": [5] * 20_000},
            "make 20,000 cells; at most 10,000",
        ),
        (
            {
                "policies": {"linucb": {}},
                "environment": {"kind": "hypercube", "residual_dim": 10**15},
            },
            "would offer 2",
        ),
        (
            {"policies": {"linucb": {"exploration": "much"}}, "replications": "x"},
            "replications",
        ),
    ],
)
def test_values_of_the_wrong_shape_are_one_clear_line(config, words):
    with pytest.raises(InputError, match=words) as caught:
        grid_of(config)
    assert "\n" not in str(caught.value)


ODD = (
    *(
        0,
        -1,
        1,
        10**30,
        -(10**30),
        0.5,
        -0.5,
        float("inf"),
        float("nan"),
        1e308,
        "x",
        "",
        "\x1b",
        True,
    ),
    *(
        [],
        [[]],
        [1],
        ["x"],
        [[1, 2], 3],
        [[1], [2]],
        {},
        {"a": 1},
        [{}],
        datetime.date(2024, 1, 1),
        [True],
    ),
)
"""What TOML can say and nobody means."""


def entries():
    """Every place of a grid that can be told something, as a function of what it is told."""
    policies = {"linucb": {}}
    for name in TOP:
        yield lambda odd, name=name: {"policies": policies, name: odd}
    for words in ("linucb", "kind"):
        yield lambda odd, words=words: {
            "policies": {"linucb": odd if words == "linucb" else {"kind": odd}}
        }
    for kind in ENVIRONMENTS:
        for field in fields(kind.kind):
            yield lambda odd, kind=kind, field=field: {
                "policies": policies,
                "environment": {"kind": kind.name, field.name: odd},
            }
    for field in fields(PaperWorld):
        yield lambda odd, field=field: {
            "policies": policies,
            "environment": {"world": {field.name: odd}},
        }


def test_whatever_an_entry_says_is_a_grid_or_one_clear_line():
    outcomes = Counter()
    for entry in entries():
        for odd in ODD:
            try:
                grid_of(entry(odd))
                outcomes["grid"] += 1
            except InputError as error:
                outcomes[len(str(error).splitlines())] += 1
    assert outcomes.keys() == {"grid", 1}
    assert outcomes["grid"] > 100
    assert outcomes[1] > 300


def a_past():
    rng = np.random.default_rng(0)
    moments = WindowedMoments.from_arrays(
        rng.normal(size=(60, 3)), rng.normal(size=60), windows=2
    )
    return Past(moments=moments, horizon=10)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a = " + b"[" * 100_000, b"[policies", b"\x00"]
)
def test_a_file_that_is_no_toml_is_one_clear_line(content, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not readable as TOML"):
        read_grid(path)


@pytest.mark.filterwarnings(
    "ignore::invariant_bandits.policies.past.ForgetsNothingWarning"
)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 10**30}, "window must be below"),
        ({"window": 10**12}, "policy 'sw-linucb' cannot be made with window=1000"),
        (
            {"feature_bound": 1e308},
            "feature_bound must lie between 1e-100 and 1e\\+100",
        ),
    ],
)
def test_options_that_no_policy_can_have_are_named(options, words):
    with pytest.raises(InputError, match=words):
        registry.PolicySpec("sw-linucb", options).build(a_past())


def test_a_grid_imports_no_code(tmp_path, monkeypatch):
    (tmp_path / "of_my_own.py").write_text("imported = True")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="policy must be one of"):
        grid_of(
            {
                "policies": {"mine": {"kind": "of_my_own:make"}},
                "environment": {"logged": 60},
            }
        )
    assert "of_my_own" not in sys.modules


def test_a_window_as_long_as_the_run_warns_in_a_grid(tmp_path):
    policies = {
        "sw-linucb": {"window": 9},
        "meant": {"kind": "sw-linucb", "window": "horizon"},
    }
    grid = grid_of({"horizon": 9, "environment": {"logged": 60}, "policies": policies})
    with pytest.warns(
        ForgetsNothingWarning, match="policy 'sw-linucb': window is 9 rounds"
    ) as caught:
        run(grid.cells, tmp_path, replications=2, seed=0)
    assert len(caught) == 1
    longer = grid_of(
        {
            "horizon": 50,
            "environment": {"logged": 60},
            "policies": {"sw-linucb": {"window": 40}},
        }
    )
    with warnings.catch_warnings(
        action="error"
    ):  # nor where code is compiled in a shorter run
        load_compiled_code(longer.cells)
