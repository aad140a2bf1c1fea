"""Files whose checksum is right and whose shapes, ranges or settings are not: refused before anything
large is made.
"""

import tracemalloc

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
from containers import put_together, taken_apart
from invariant_bandits import storage
from invariant_bandits.policies.base import from_bytes, to_bytes
from invariant_bandits.policies.registry import POLICIES
from invariant_bandits.storage import ANYTHING, StateSchema


def content_of(name, rounds=30):
    policy = policy_laws.MAKERS[name]()
    policy_laws.play(policy, rounds, seed=0)
    return to_bytes(policy)


def changed(content, *, settings=None, arrays=None):
    """The file with other settings, by dotted names, and other arrays; the checksum fits."""
    kind, own, about = taken_apart(content)
    for path, value in (settings or {}).items():
        *outer, last = path.split(".")
        holder = about["settings"]
        for key in outer:
            holder = holder[key]
        holder[last] = value
    return put_together((kind, own | (arrays or {}), about))


def test_taking_apart_and_putting_together_changes_no_byte():
    content = content_of("AutoISD")
    assert put_together(taken_apart(content)) == content


@pytest.mark.parametrize("name", policy_laws.MAKERS)
def test_no_array_of_any_policy_may_hold_a_number_that_is_none(name):
    content = content_of(name)
    _, arrays, _ = taken_apart(content)
    for key, array in arrays.items():
        if array.dtype != np.float64 or not array.size:
            continue
        for bad in (np.nan, np.inf, -np.inf):
            spoiled = array.copy()
            spoiled.flat[array.size // 2] = bad
            with pytest.raises(ib.FileError, match="forged"):
                from_bytes(changed(content, arrays={key: spoiled}), "forged")


def test_every_policy_of_the_library_describes_its_state():
    for entry in POLICIES:
        if entry.kind.__module__.startswith("invariant_bandits"):
            assert "state_schema" in {
                name for kind in entry.kind.__mro__[:-2] for name in vars(kind)
            }, entry.name
            assert (
                entry.kind.state_schema.__func__
                is not ib.policies.base.BasePolicy.state_schema.__func__
            ), entry.name


SIZES = [
    ("LinUCB, forever", {"dim": 70_000}),
    ("SWLinUCB", {"memory.window": 10**9}),
    ("LinUCB, window", {"memory.window": 10**9}),
    ("DisjointLinUCB", {"arms": 10**9}),
    ("ISDLinUCB recomputing, window", {"memory.window": 10**8}),
]


@pytest.mark.parametrize(("name", "settings"), SIZES)
def test_sizes_that_the_file_does_not_have_are_refused_before_there_is_room_for_them(
    name, settings
):
    forged = changed(content_of(name), settings=settings)
    tracemalloc.start()
    try:
        with pytest.raises(ib.FileError):
            from_bytes(forged, "forged")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_loading_a_large_file_takes_its_content_and_its_state_and_no_more(tmp_path):
    """18 MB of a ridge regression over 1,500 features."""
    ib.LinUCB(1500).save(tmp_path / "large")
    size = (tmp_path / "large").stat().st_size
    tracemalloc.start()
    try:
        ib.load(tmp_path / "large")
        assert tracemalloc.get_traced_memory()[1] < 2.2 * size
    finally:
        tracemalloc.stop()


COUNTS = [
    ("LinUCB, forever", "counters", [-1, 0]),
    ("LinUCB, forever", "counters", [2**63 - 1, 0]),
    ("SWLinUCB", "memory.clock", [12, 1]),
    ("AutoISD", "counters", [-5]),
    ("AutoISD", "hypothesis_index", None),
    ("AutoISD", "trusts_logs", None),
]


@pytest.mark.parametrize(("name", "array", "values"), COUNTS)
def test_counters_and_indices_outside_their_range_are_refused(name, array, values):
    content = content_of(name)
    _, arrays, _ = taken_apart(content)
    forged = (
        np.full_like(arrays[array], 10**6)
        if values is None
        else np.array(values, dtype=np.int64)
    )
    with pytest.raises(ib.FileError):
        from_bytes(changed(content, arrays={array: forged}), "forged")


SETTINGS = [
    ("ISDLinUCB recomputing, forever", {"recompute.every": 0}),
    ("ISDLinUCB recomputing, forever", {"recompute.every": -40}),
    ("ISDLinUCB recomputing, forever", {"recompute": {"every": 40}}),
    ("AutoISD", {"prior": []}),
    ("AutoISD", {"prior.noise_variance": 0.0}),
    ("AutoISD", {"prior.noise_variance": -1.0}),
    ("AutoISD", {"caution": 10**400}),
    ("AutoISD", {"intercept": "yes"}),
    ("Randomised twice", {"policy": "linucb,exploration=3"}),
    ("LinUCB, forever", {"ridge": True}),
    ("LinTS, forever", {"seed": 2**63}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_settings_outside_their_range_are_refused(name, settings):
    with pytest.raises(ib.FileError):
        from_bytes(changed(content_of(name), settings=settings), "forged")


@pytest.mark.parametrize(
    "name", ["AutoISD", "AutoISD without a baseline", "AutoISD with known noise"]
)
def test_numbers_of_a_prior_that_json_wrote_as_whole_ones_are_as_good(name):
    """Forging found this one: a baseline of 10³⁰ made an array of objects, and learning never ended."""
    forged = changed(
        content_of(name), settings={"prior.baseline": 10**30, "prior.noise_variance": 1}
    )
    policy = from_bytes(forged, "forged")
    assert type(policy.prior.baseline) is float
    policy.update(np.ones(policy.dim), 1.0)
    from_bytes(to_bytes(policy), "again")


@pytest.mark.parametrize(
    "header",
    [
        b"[]      ",
        b"1       ",
        b'"x"     ',
        b"null    ",
        b"[" * 80_000,
        b'{"a":' * 8000,
    ],
)
def test_headers_that_are_no_dictionary_are_refused(header, tmp_path):
    content = len(header).to_bytes(8, "little") + header
    with pytest.raises(ib.FileError, match="damaged or foreign"):
        from_bytes(content, "forged")
    (tmp_path / "forged").write_bytes(content)
    assert storage.kind_of(tmp_path / "forged") is None


def test_settings_of_another_kind_are_refused():
    kind, arrays, about = taken_apart(content_of("LinUCB, forever"))
    for settings in (
        [],
        3,
        None,
        {**about, "settings": []},
        {**about, "policy": 5},
        {},
    ):
        with pytest.raises(ib.FileError):
            from_bytes(put_together((kind, arrays, settings)), "forged")


def test_a_broken_state_is_not_stored_and_the_file_stays(tmp_path):
    policy = policy_laws.MAKERS["AutoISD"]()
    policy.save(tmp_path / "policy")
    before = (tmp_path / "policy").read_bytes()
    policy.mixture.filters.covariances[3, 1, 1] = np.nan
    with pytest.raises(
        ib.InputError,
        match="this AutoISD cannot be stored, its state is broken: covariances",
    ):
        policy.save(tmp_path / "policy")
    assert (tmp_path / "policy").read_bytes() == before


def test_what_others_keep_beside_what_they_inherit_is_stored_if_it_is_finite():
    class Counting(ib.LinUCB):
        def __init__(self, dim, **rest):
            super().__init__(dim, **rest)
            self.seen = np.zeros(3)

        def arrays(self):
            return super().arrays() | {"seen": self.seen}

        @classmethod
        def from_state(cls, settings, arrays):
            policy = super().from_state(settings, arrays)
            policy.seen = arrays["seen"]
            return policy

    ib.register_policy("counting")(Counting)
    try:
        policy = Counting(2)
        policy.seen[1] = 4.0
        loaded = from_bytes(to_bytes(policy), "own")
        loaded.seen[1] += 1.0  # arrays that are handed over are the policy's own
        assert loaded.seen.tolist() == [0.0, 5.0, 0.0]
        policy.seen[0] = np.nan
        with pytest.raises(ib.InputError, match="seen must be from"):
            to_bytes(policy)
    finally:
        POLICIES.remove("counting")


def test_a_state_that_nobody_described_is_any_finite_numbers():
    ANYTHING.check({"a": np.ones(3), "b": np.array([1, 2])})
    with pytest.raises(ib.InputError, match="a must be from"):
        ANYTHING.check({"a": np.array([np.nan])})
    with pytest.raises(ib.InputError, match="a does not belong here"):
        StateSchema().check({"a": np.ones(3)})
