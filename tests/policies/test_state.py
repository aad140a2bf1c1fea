"""State files: what is damaged, foreign or newer is refused with a reason, whatever was done to it."""

import json

import numpy as np
import pytest
from safetensors.numpy import save as to_safetensors

import invariant_bandits as ib
import policy_laws
from invariant_bandits import storage
from invariant_bandits.policies.base import from_bytes

FUZZED = [
    "LinUCB, forever",
    "SWLinUCB",
    "ISDLinTS, discount",
    "DisjointLinUCB",
    "ISDLinUCB recomputing, forever",
    "AutoISD",
]
MUTATIONS = 100_000


def content_of(name, tmp_path):
    policy = policy_laws.MAKERS[name]()
    policy_laws.play(policy, 30, seed=0)
    ib.save(policy, tmp_path / "policy")
    return (tmp_path / "policy").read_bytes()


def mutated(content, rng):
    """One random change: flipped bits, other bytes, a cut, an insertion, a repetition, a swap, or zeros."""
    data = bytearray(content)
    kind = rng.integers(8)
    at, length = int(rng.integers(len(data))), int(rng.integers(1, 17))
    if kind == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[at] = int(rng.integers(256))
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        del data[at : at + length]
    elif kind == 4:
        data[at:at] = rng.bytes(length)
    elif kind == 5:
        data[at:at] = data[at : at + length]
    elif kind == 6:
        other = int(rng.integers(len(data)))
        data[at], data[other] = data[other], data[at]
    else:
        data[at : at + length] = bytes(len(data[at : at + length]))
    return bytes(data)


@pytest.mark.parametrize("name", FUZZED)
def test_every_mutation_of_a_file_raises_file_error_or_means_the_same(name, tmp_path):
    content = content_of(name, tmp_path)
    from_bytes(content, "original")
    rng = np.random.default_rng(0)
    tried = 0
    while tried < MUTATIONS // len(FUZZED):
        # Most of a file is numbers; half of the mutations go to its header, where the structure is.
        part = len(content) if tried % 2 else 8 + int.from_bytes(content[:8], "little")
        changed = mutated(content[:part], rng) + content[part:]
        if changed == content:
            continue
        tried += 1
        try:
            accepted = from_bytes(changed, "mutated")
        except ib.FileError:
            continue
        ib.save(accepted, tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == content


def test_every_truncation_is_refused(tmp_path):
    content = content_of("LinUCB, forever", tmp_path)
    for length in range(len(content)):
        with pytest.raises(ib.FileError):
            from_bytes(content[:length], "truncated")


def rewritten(content, kind="policy", **changes):
    """The same file with other header entries or `arrays`, and a checksum that fits them."""
    arrays, about = storage.decode(content, "policy", "original")
    arrays = arrays | changes.pop("arrays", {})
    described = json.dumps(about | changes.pop("about", {}), sort_keys=True)
    header = {
        "product": storage.PRODUCT,
        "format": str(storage.FORMAT_VERSION),
        "kind": kind,
        "about": described,
        "sha256": storage.digest(kind, described, arrays),
    }
    return to_safetensors(arrays, metadata=header | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"product": "another"}, "not written by"),
        ({"format": "2"}, "newer release"),
        ({"kind": "windowed-moments"}, "holds 'windowed-moments'"),
        ({"about": {"policy": "Oracle"}}, "not known here"),
        ({"about": {"settings": {}}}, "does not hold a whole"),
        (
            {"about": {"settings": {"dim": 7, "memory": {"kind": "Forever"}}}},
            "memory.factor",
        ),
        (
            {"about": {"settings": {"dim": 4, "memory": {"kind": "Elephant"}}}},
            "Elephant",
        ),
        (
            {
                "about": {
                    "settings": {"dim": 4, "ridge": -1.0, "memory": {"kind": "Forever"}}
                }
            },
            "ridge",
        ),
        ({"sha256": "0" * 64}, "checksum"),
    ],
)
def test_foreign_newer_and_inconsistent_files_are_refused_with_the_reason(
    changes, reason, tmp_path
):
    content = content_of("LinUCB, forever", tmp_path)
    from_bytes(rewritten(content), "unchanged")
    with pytest.raises(ib.FileError, match=reason):
        from_bytes(rewritten(content, **changes), "changed")


@pytest.mark.parametrize(
    "name",
    [
        "means",
        "covariances",
        "process",
        "weights",
        "hypothesis_index",
        "counters",
        "prior.basis",
    ],
)
def test_a_mixture_whose_arrays_do_not_fit_together_is_refused(name, tmp_path):
    content = content_of("AutoISD", tmp_path)
    arrays, _ = storage.decode(content, "policy", "original")
    for wrong in (arrays[name][:-1], arrays[name].astype(np.float32)):
        with pytest.raises(ib.FileError, match="does not hold a whole policy"):
            from_bytes(
                rewritten(content, arrays={name: np.ascontiguousarray(wrong)}),
                "changed",
            )


@pytest.mark.parametrize("clock", [(-1, 0), (10**6, 1), (0, 2), (0, -1)])
def test_a_window_whose_clock_points_outside_it_is_refused(clock, tmp_path):
    content = content_of("SWLinUCB", tmp_path)
    arrays, _ = storage.decode(content, "policy", "original")
    forged = np.array(clock, dtype=arrays["memory.clock"].dtype)
    with pytest.raises(ib.FileError, match="clock must be from 0 to"):
        from_bytes(rewritten(content, arrays={"memory.clock": forged}), "changed")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ib.FileError, match="holds 'windowed-moments', not 'policy'"):
        from_bytes(policy_laws.history().to_bytes(), "moments")
    for name, content in {
        "empty": b"",
        "text": b"hello, world",
        "pickle": b"\x80\x04K\x01.",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ib.FileError):
            ib.load(tmp_path / name)


def test_only_policies_of_registered_classes_can_be_saved(tmp_path):
    with pytest.raises(ib.InputError, match="policy"):
        ib.save(object(), tmp_path / "policy")
    assert not list(tmp_path.iterdir())
