"""Forged files, their checksums right: refused before anything large is made, or accepted and lawful."""

import json
import os
import tracemalloc
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest

import forge
import invariant_bandits as ib
import policy_laws
from containers import put_together, taken_apart
from invariant_bandits import storage
from invariant_bandits.decomposition.drift_prior import ARM_ARRAYS, ARRAYS, NUMBERS
from invariant_bandits.decomposition.population import ArmPopulation
from invariant_bandits.policies.registry import POLICIES
from invariant_bandits.policies.state import from_bytes, to_bytes
from invariant_bandits.storage import ANYTHING, StateSchema
from judging import LAWFUL, REFUSED
from originals import originals

SHORT_RUN = 2000


@pytest.fixture(scope="module")
def whole_files():
    return originals()


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


def test_forged_files_are_refused_or_lawful(whole_files):
    """A short run of `python attacks/forge.py`; every kind of change is both tried and, by most files, refused."""
    counts, found = forge.run(SHORT_RUN, 0, whole_files)
    assert not found
    assert sum(counts.values()) == SHORT_RUN
    outcomes = Counter()
    for (_, outcome), number in counts.items():
        outcomes[outcome] += number
    assert outcomes[REFUSED] > 0.6 * SHORT_RUN
    assert outcomes[LAWFUL] > 0.05 * SHORT_RUN
    assert {words for words, outcome in counts if outcome == REFUSED} == set(forge.KINDS)


def test_without_descriptions_the_same_run_finds_states_that_break_laws(whole_files, monkeypatch):
    """The attack has teeth: values that nobody checks make policies that decide by NaN."""
    monkeypatch.setattr(StateSchema, "check_values", lambda self, arrays: None)
    policies = [one for one in whole_files if one.kind == "policy" and "auto-isd" in one.name]
    counts, _ = forge.run(1000, 0, policies)
    assert sum(number for (_, outcome), number in counts.items() if outcome in forge.BAD) > 0


def test_a_worker_that_dies_is_counted_and_the_others_go_on(whole_files, monkeypatch):
    honest = forge.judged
    monkeypatch.setattr(forge, "judged", lambda *given: os._exit(3) if given[2] == 7 else honest(*given))
    counts, found = forge.run(20, 0, whole_files)
    assert sum(counts.values()) == 20
    assert sum(number for (_, outcome), number in counts.items() if outcome == forge.CRASHED) == 1
    assert "attempt 7" in found[0]


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


def test_every_part_of_a_prior_is_described():
    assert {one.name for one in fields(ib.DriftPrior)} == ARRAYS.keys() | NUMBERS.keys() | {"population"}
    assert {one.name for one in fields(ArmPopulation)} == ARM_ARRAYS.keys() | {"layout", "likeness"}


def test_every_policy_of_the_library_describes_its_state():
    for entry in POLICIES:
        if entry.kind.__module__.startswith("invariant_bandits."):
            assert "state_schema" in {name for kind in entry.kind.__mro__[:-2] for name in vars(kind)}, entry.name
            assert entry.kind.state_schema.__func__ is not ib.policies.base.BasePolicy.state_schema.__func__, entry.name


SIZES = [
    ("LinUCB, forever", {"dim": 70_000}),
    ("SWLinUCB", {"window": 10**9}),
    ("LinUCB, window", {"memory.window": 10**9}),
    ("DisjointLinUCB", {"arms": 10**9}),
    ("BOBLinUCB", {"block": 10**12, "horizon": 10**13}),
    ("BOBLinUCB", {"block": 10**7, "horizon": 10**13}),
    ("ISDLinUCB recomputing, window", {"memory.window": 10**8}),
]


@pytest.mark.parametrize(("name", "settings"), SIZES)
def test_sizes_that_the_file_does_not_have_are_refused_before_there_is_room_for_them(name, settings):
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
    ("LinUCB, restart", "counters", [30, 9]),
    ("SWLinUCB", "counters", [30, 2**40]),
    ("SWLinUCB", "memory.clock", [12, 1]),
    ("ISDLinUCB recomputing, window", "record.rounds", [2**40]),
    ("BOBLinUCB", "rounds", [30, 99]),
    ("AutoISD", "counters", [-5]),
    ("AutoISD", "hypothesis_index", None),
    ("AutoISD", "trusts_logs", None),
]


@pytest.mark.parametrize(("name", "array", "values"), COUNTS)
def test_counters_and_indices_outside_their_range_are_refused(name, array, values):
    content = content_of(name)
    _, arrays, _ = taken_apart(content)
    forged = np.full_like(arrays[array], 10**6) if values is None else np.array(values, dtype=np.int64)
    with pytest.raises(ib.FileError):
        from_bytes(changed(content, arrays={array: forged}), "forged")


SETTINGS = [
    ("ISDLinUCB recomputing, forever", {"recompute.every": 0}),
    ("ISDLinUCB recomputing, forever", {"recompute.every": -40}),
    ("ISDLinUCB recomputing, forever", {"recompute": {"every": 40}}),
    ("AutoISD", {"prior": []}),
    ("AutoISD", {"prior.noise_variance": 0.0}),
    ("AutoISD", {"prior.noise_variance": -1.0}),
    ("AutoISD", {"exploration": 10**400}),
    ("AutoISD", {"intercept": "yes"}),
    ("Randomised twice", {"policy": "linucb,exploration=3"}),
    ("LinUCB, forever", {"ridge": True}),
    ("LinTS, forever", {"seed": 2**63}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_settings_outside_their_range_are_refused(name, settings):
    with pytest.raises(ib.FileError):
        from_bytes(changed(content_of(name), settings=settings), "forged")


@pytest.mark.parametrize("name", ["AutoISD", "AutoISD without a baseline", "AutoISD with known noise"])
def test_numbers_of_a_prior_that_json_wrote_as_whole_ones_are_as_good(name):
    """Forging found this one: a baseline of 10³⁰ made an array of objects, and learning never ended."""
    forged = changed(content_of(name), settings={"prior.baseline": 10**30, "prior.noise_variance": 1})
    policy = from_bytes(forged, "forged")
    assert type(policy.prior.baseline) is float
    policy.update(np.ones(policy.dim), 1.0)
    from_bytes(to_bytes(policy), "again")


def test_wrappers_without_end_are_refused():
    kind, arrays, about = taken_apart(to_bytes(ib.Randomised(ib.LinUCB(2))))
    for _ in range(50):
        about = {"policy": "randomised", "settings": {**about["settings"], **about}}
        arrays = {f"inner.{name}": array for name, array in arrays.items()}
    with pytest.raises(ib.FileError, match="wrapped in each other"):
        from_bytes(put_together((kind, arrays, about)), "forged")


@pytest.mark.parametrize("header", [b"[]      ", b"1       ", b'"x"     ', b"null    ", b"[" * 80_000, b'{"a":' * 8000])
def test_headers_that_are_no_dictionary_are_refused(header, tmp_path):
    content = len(header).to_bytes(8, "little") + header
    with pytest.raises(ib.FileError, match="damaged or foreign"):
        from_bytes(content, "forged")
    (tmp_path / "forged").write_bytes(content)
    assert storage.kind_of(tmp_path / "forged") is None


def test_a_description_that_is_no_dictionary_or_was_not_written_like_this_is_refused():
    kind, arrays, about = taken_apart(content_of("LinUCB, forever"))
    for said in ([], 3, None, {**about, "settings": []}, {**about, "policy": 5}, {}):
        with pytest.raises(ib.FileError):
            from_bytes(put_together((kind, arrays, said)), "forged")
    text = json.dumps(about, sort_keys=True)
    for other in (text.replace("0.1", "1e-1", 1), text.replace("0.1", "NaN", 1), text + " ", text[:-1] + ', "a": 1}'):
        content = put_together((kind, arrays, about)).replace(json.dumps(text).encode(), json.dumps(other).encode(), 1)
        with pytest.raises(ib.FileError):
            from_bytes(content, "forged")


def test_a_broken_state_is_not_stored_and_the_file_stays(tmp_path):
    policy = policy_laws.MAKERS["AutoISD"]()
    policy.save(tmp_path / "policy")
    before = (tmp_path / "policy").read_bytes()
    policy.mixture.filters.covariances[3, 1, 1] = np.nan
    with pytest.raises(ib.InputError, match="this AutoISD cannot be stored, its state is broken: covariances"):
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

    ib.policy("counting")(Counting)
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


def test_who_stores_itself_in_a_way_of_its_own_need_not_describe_it():
    class Mean(ib.LinUCB):
        def settings(self):
            return {"size": self.dim}

        def arrays(self):
            return {"factor": self._memory.factor, "rounds": np.array([self.rounds])}

        @classmethod
        def from_state(cls, settings, arrays):
            policy = cls(settings["size"])
            policy._memory.factor[:], policy.rounds = arrays["factor"], int(arrays["rounds"][0])
            return policy

    ib.policy("mean")(Mean)
    try:
        policy = Mean(2)
        policy.update([1.0, 2.0], 3.0)
        assert from_bytes(to_bytes(policy), "own").coefficients.tolist() == policy.coefficients.tolist()
        policy._memory.factor[0, 0] = np.inf
        with pytest.raises(ib.InputError, match="cannot be stored"):
            to_bytes(policy)
    finally:
        POLICIES.remove("mean")


def test_a_state_that_nobody_described_is_any_finite_numbers():
    ANYTHING.check({"a": np.ones(3), "b": np.array([1, 2])})
    with pytest.raises(ib.InputError, match="a must be from"):
        ANYTHING.check({"a": np.array([np.nan])})
    with pytest.raises(ib.InputError, match="a does not belong here"):
        StateSchema().check({"a": np.ones(3)})
