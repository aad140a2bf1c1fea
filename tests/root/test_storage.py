"""Stored moments come back to the last bit, or not at all."""

import json
import os
import resource
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pytest

from invariant_bandits import FileError, InputError, WindowedMoments, storage

DAYS = np.array(["2024-01-01", "2024-02-01", "2024-03-01"], dtype="datetime64[D]")
EDGES = {
    "none": (None, None),
    "float": (np.array([0.0, 1.0 / 3.0, 1.0]), np.linspace(0.0, 1.0, 50)),
    "integer": (np.array([0, 10, 50]), np.arange(50)),
    "days": (DAYS, DAYS[0] + np.arange(50)),
    "nanoseconds": (
        DAYS.astype("datetime64[ns]"),
        (DAYS[0] + np.arange(50)).astype("datetime64[ns]"),
    ),
}


def drawn_moments(kind="none", offered=False):
    rng = np.random.default_rng(0)
    edges, times = EDGES[kind]
    choices = rng.standard_normal((50, 4, 3))
    where = {"windows": 2} if edges is None else {"times": times, "edges": edges}
    return WindowedMoments.from_arrays(
        choices[:, 0],
        rng.standard_normal(50),
        offered=choices if offered else None,
        **where,
    )


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "moments.safetensors"
    drawn_moments("days", offered=True).save(path)
    return path


@pytest.mark.parametrize("offered", [False, True])
@pytest.mark.parametrize("kind", EDGES)
def test_loading_gives_back_every_bit(tmp_path, kind, offered):
    moments = drawn_moments(kind, offered)
    path = tmp_path / "moments.safetensors"
    moments.save(path)
    loaded = WindowedMoments.load(path)
    assert loaded == moments
    assert (loaded.edges is None) == (moments.edges is None)
    if moments.edges is not None:
        assert loaded.edges.dtype == moments.edges.dtype


def test_loaded_moments_can_be_continued(tmp_path):
    moments = drawn_moments()
    path = tmp_path / "moments.safetensors"
    moments.save(path)
    more = {"features": np.ones((2, 3)), "rewards": np.zeros(2), "window": 1}
    assert WindowedMoments.load(path).update(**more) == deepcopy(moments).update(**more)


def test_saving_again_replaces_the_file_and_leaves_nothing_beside_it(stored):
    later = drawn_moments()
    later.save(stored)
    assert WindowedMoments.load(stored) == later
    assert [entry.name for entry in stored.parent.iterdir()] == [stored.name]


def test_a_failed_write_leaves_nothing_beside_the_old_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("not here")

    storage.replace_file(tmp_path / "new", b"content")
    assert (tmp_path / "new").read_bytes() == b"content"
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="not here"):
        storage.replace_file(tmp_path / "new", b"other content")
    assert (tmp_path / "new").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["new"]


def test_every_truncation_is_refused(stored):
    content = stored.read_bytes()
    for length in range(0, len(content), 13):
        stored.write_bytes(content[:length])
        with pytest.raises(FileError, match=stored.name):
            WindowedMoments.load(stored)


def test_every_flipped_bit_is_refused_or_harmless(stored):
    original = WindowedMoments.load(stored)
    content = stored.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for bit in rng.choice(8 * len(content), size=2000, replace=False):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        stored.write_bytes(damaged)
        try:
            loaded = WindowedMoments.load(stored)
        except FileError:
            refused += 1
        else:
            assert loaded == original
    assert refused >= 1990


def test_appended_bytes_are_refused(stored):
    stored.write_bytes(stored.read_bytes() + b"\0" * 8)
    with pytest.raises(FileError):
        WindowedMoments.load(stored)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 a zip file", b"\x80\x04\x95pickle", b"\x02\0\0\0\0\0\0\0{}"],
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(FileError, match="foreign is damaged or foreign"):
        WindowedMoments.load(path)


def test_another_products_container_is_refused(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"weights": np.zeros(3)}, path, metadata={"product": "something else"})
    with pytest.raises(FileError, match="was not written by invariant-bandits"):
        WindowedMoments.load(path)


def test_a_newer_format_is_refused_with_advice(tmp_path, monkeypatch):
    path = tmp_path / "newer"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "FORMAT_VERSION", 2)
        drawn_moments().save(path)
    with pytest.raises(
        FileError, match="has format 2, this version reads format 1: a newer release"
    ):
        WindowedMoments.load(path)


def test_another_kind_of_content_is_refused(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(storage.encode("policy", {"weights": np.zeros(3)}, {}))
    with pytest.raises(FileError, match="holds 'policy', not 'windowed-moments'"):
        WindowedMoments.load(path)


def test_a_header_that_lies_about_the_content_is_refused(stored):
    content = stored.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["about"] = header["__metadata__"]["about"].replace(
        "datetime64[D]", "datetime64[h]"
    )
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    stored.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(FileError, match="checksum does not match"):
        WindowedMoments.load(stored)


def test_a_failed_write_keeps_the_old_file(stored, monkeypatch):
    before = stored.read_bytes()

    def full_disk(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(storage.os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        drawn_moments().save(stored)
    assert stored.read_bytes() == before
    assert [entry.name for entry in stored.parent.iterdir()] == [stored.name]


def test_a_missing_file_is_simply_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        WindowedMoments.load(tmp_path / "nothing")


def test_the_same_content_has_the_same_bytes():
    """The container's own writer orders metadata at random: twenty equal files by chance have probability
    5!⁻¹⁹.
    """
    moments = drawn_moments("days", offered=True)
    assert len({moments.to_bytes() for _ in range(20)}) == 1


def test_a_link_is_followed_and_what_is_no_file_is_refused(tmp_path):
    target, link, pipe = tmp_path / "model", tmp_path / "link", tmp_path / "pipe"
    storage.replace_file(target, b"old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    storage.replace_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    for bad in (pipe, tmp_path, "/dev/null"):
        with pytest.raises(InputError, match="is not a file and is not written to"):
            storage.replace_file(bad, b"x")


KILLED = """
import os, sys, time
from invariant_bandits import storage
def write(path):
    with storage.atomic_write(path) as scratch:
        scratch.write_bytes(b"half")
        print("writing", flush=True)
        time.sleep(600)
write(sys.argv[1])
"""


@pytest.mark.system
def test_what_a_killed_writer_left_is_gone_after_the_next_save_and_a_living_one_is_left_alone(
    tmp_path,
):
    """A living writer holds a lock on its scratch file: its number says nothing, every container has a
    process 1.
    """
    target = tmp_path / "model"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, target], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [writer.stdout.readline() for writer in writers] == ["writing\n"] * 2
    killed, living = (
        next(tmp_path.glob(f".model.{writer.pid}-*")) for writer in writers
    )
    writers[0].kill()
    writers[0].communicate()
    assert killed.read_bytes() == b"half"
    of_my_number = tmp_path / f".model.{os.getpid()}-0123abcd"
    others = [
        tmp_path / ".model.bak",
        tmp_path / ".model.12-34",
        tmp_path / ".other.1-0123abcd",
    ]
    for path in (of_my_number, *others):
        path.write_bytes(b"half")
    storage.replace_file(target, b"whole")
    assert not killed.exists()
    assert not of_my_number.exists()
    assert all(path.exists() for path in (living, *others))
    writers[1].kill()
    writers[1].communicate()
    with storage.atomic_write(target) as scratch:
        scratch.write_bytes(b"other")
        assert target.read_bytes() == b"whole"
    assert target.read_bytes() == b"other"
    assert sorted(tmp_path.iterdir()) == sorted((target, *others))


@pytest.mark.system
def test_a_writer_that_is_killed_leaves_the_old_file_whole(tmp_path):
    """Killed at a time drawn from the length of a save, five times: the file is one of those that were
    saved.
    """
    target, rng = tmp_path / "model", np.random.default_rng(0)
    storage.replace_file(target, b"0" * 1_000_000)
    program = "import sys; from invariant_bandits import storage\nprint('ready', flush=True)\nfor n in range(10**6):"
    program += " storage.replace_file(sys.argv[1], str(n % 10).encode() * 1_000_000)"
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, target], stdout=subprocess.PIPE
        )
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        writer.kill()
        writer.communicate()
        content = target.read_bytes()
        assert len(content) == 1_000_000
        assert len(set(content)) == 1
    storage.replace_file(target, b"end")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.system
def test_writers_of_one_file_do_not_get_into_each_others_way(tmp_path):
    program = "import sys; from invariant_bandits import storage\n"
    program += "for n in range(150): storage.replace_file(sys.argv[1], str(n).encode())"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / "model"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert [writer.communicate()[1] for writer in writers] == [""] * 3
    assert (tmp_path / "model").read_bytes() == b"149"
    assert os.listdir(tmp_path) == ["model"]


@dataclass
class Line:
    slope: Annotated[np.ndarray, storage.ArraySpec(("p",), least=-1.0)]
    level: Annotated[float, storage.finite_number] = 0.0


@dataclass
class Drawing:
    lines: tuple[str, ...]
    first: Line
    other: Line | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    when: Any = None
    edges: np.ndarray | None = None
    seen: int = field(default=0, metadata={"stored": False})


def drawings():
    return {
        "little": Drawing((), Line(np.ones(2))),
        "all": Drawing(
            ("a", "b"),
            Line(np.ones(2), 3.0),
            Line(np.zeros(0)),
            {"x": 4},
            DAYS[1],
            DAYS,
        ),
        "a number for a date": Drawing(("a",), Line(np.ones(1)), when=7),
    }


@pytest.mark.parametrize("name", drawings())
def test_a_dataclass_comes_back_from_plain_settings_and_arrays(name):
    drawing = drawings()[name]
    settings, arrays = storage.to_state(drawing)
    storage.schema_of(Drawing, arrays).check(arrays)
    again = storage.from_state(Drawing, json.loads(json.dumps(settings)), arrays)
    assert str(again) == str(drawing)
    assert storage.to_state(again)[0] == settings
    assert "seen" not in settings


def test_the_specs_beside_the_fields_are_the_schema_and_settings_keep_their_types():
    settings, arrays = storage.to_state(drawings()["all"])
    for bad in (
        np.array([-2.0]),
        np.array([np.nan]),
        np.ones((2, 2)),
        np.ones(2, dtype=np.float32),
    ):
        with pytest.raises(InputError, match=r"slope must be"):
            storage.schema_of(Drawing, arrays).check(arrays | {"first.slope": bad})
    with pytest.raises(InputError, match=r"level must"):
        storage.from_state(Drawing, settings | {"first": {"level": "high"}}, arrays)
    with pytest.raises(InputError, match="must be str, got 1"):
        storage.from_state(Drawing, settings | {"lines": ["a", 1]}, arrays)


def limited(size):
    """No file may become longer: what a full disk does to a writer."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.system
@pytest.mark.parametrize(
    "way", ["replace_file(sys.argv[1], b'x' * 100_000)", "write(sys.argv[1])"]
)
def test_on_a_full_disk_the_old_file_stays_whole_and_the_error_names_it(way, tmp_path):
    target = tmp_path / "model"
    target.write_bytes(b"old")
    program = f"""
import sys
from invariant_bandits import storage
from invariant_bandits.storage import replace_file
def write(path):
    with storage.atomic_write(path) as scratch:
        scratch.write_bytes(b"x" * 100_000)
try:
    {way}
except OSError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, target],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited(10_000),
    )
    assert f"it could not be written: File too large: '{target}'" in done.stdout
    assert done.stderr == ""
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model"]
