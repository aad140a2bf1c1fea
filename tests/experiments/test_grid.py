"""A configuration file becomes exactly the cells it describes, or an error that names the entry."""

import pytest

from invariant_bandits.checks import InputError
from invariant_bandits.experiments.grid import grid_of, read_grid

POLICIES = {"LinUCB": {}, "tuned": {"kind": "LinUCB", "exploration": 0.3}}


def test_every_combination_of_the_lists_is_a_cell():
    grid = grid_of(
        {
            "replications": 7,
            "seed": 3,
            "horizon": 50,
            "environment": {"logged": [500, 1000], "violation": [0.0, 2.0], "world": {"drift": [0.5, 1.0]}},
            "policies": POLICIES,
        }
    )
    seen = {(c.environment.logged, c.environment.violation, c.environment.world.drift) for c in grid.cells}
    assert len(grid.cells) == len(seen) == 8
    assert len({cell.name for cell in grid.cells}) == 8
    assert all(cell.horizon == 50 and list(cell.policies) == ["LinUCB", "tuned"] for cell in grid.cells)
    assert (grid.replications, grid.seed) == (7, 3)


def test_blocks_are_one_value_and_lists_of_blocks_are_several():
    one = grid_of({"environment": {"world": {"blocks": [2, 2], "varying": 1}}, "policies": POLICIES})
    several = grid_of({"environment": {"world": {"blocks": [[2, 2], [3, 1]], "varying": 1}}, "policies": POLICIES})
    assert [cell.environment.world.blocks for cell in one.cells] == [(2, 2)]
    assert [cell.environment.world.blocks for cell in several.cells] == [(2, 2), (3, 1)]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"policies": {}}, r"\[policies\] is empty"),
        ({"policies": POLICIES, "horizont": 3}, "no entry 'horizont'"),
        ({"policies": POLICIES, "environment": {"log": 3}}, "environment has no entry 'log'"),
        ({"policies": POLICIES, "environment": {"world": {"drif": 3}}}, "environment.world has no entry 'drif'"),
        (
            {"policies": POLICIES, "environment": {"kind": "cube"}},
            "environment must be one of fixed-arms, hypercube, labelled-arms, paper",
        ),
        ({"policies": POLICIES, "environment": {"logged": []}}, "logged is an empty list"),
        ({"policies": {"LinUBC": {}}}, "policy must be one of"),
        ({"policies": {"LinUCB": {"explore": 1}}}, "'linucb' has no option 'explore'; it has confidence"),
        ({"policies": {"own": {"kind": "no_such_module:make"}}}, "policy must be one of"),
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
    with pytest.raises(InputError, match=r"grid\.toml is not TOML"):
        read_grid(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"policies": 3}, "policies must be a table"),
        ({"policies": {"linucb": {}}, "environment": []}, "environment must be a table"),
        ({"policies": {"linucb": {}}, "environment": {"world": 1}}, "environment.world must be a table"),
        ({"policies": {"linucb": {}}, "environment": {"world": {"blocks": 3}}}, "blocks must be a list"),
        ({"policies": {"linucb": {}}, "environment": {"logged": "many"}}, "logged|environment"),
        ({"policies": {"linucb": {}}, "horizon": "long"}, "horizon"),
        ({"policies": {"linucb": {"kind": "os:system"}}}, "policy must be one of"),
        ({"policies": {"linucb": {"exploration": "much"}}, "replications": "x"}, "replications"),
    ],
)
def test_values_of_the_wrong_shape_are_one_clear_line(config, words):
    with pytest.raises(InputError, match=words) as caught:
        grid_of(config)
    assert "\n" not in str(caught.value)
