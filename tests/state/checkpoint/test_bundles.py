"""V2 checkpoints of TensorFlow: what it wrote is read, and nothing that is damaged."""

from __future__ import annotations

import json
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.base.values import SaveSliceInfo, as_strings
from jflow.errors import (
    AlreadyExistsError,
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    UnimplementedError,
)
from jflow.state.checkpoint_files import (
    Item,
    checkpoint_roots,
    delete,
    locate,
    open_checkpoint,
    sorted_table,
    write_tensorflow,
)
from jflow.state.checkpoint_files.ordered_code import signed_number, text, unsigned_number
from jflow.state.checkpoint_files.regions import TensorBox, box_of, do_overlap
from jflow.state.checkpoint_files.sorted_table import read_table, table_of, varint_of
from jflow.state.checkpoint_files.storage import FileSource
from jflow.state.records.crc32c import checksum, masked
from jflow.state.records.v1 import tensor_bundle_pb2 as pb
from tests.drawn import examples
from tests.state.checkpoint.saving import names, save
from tests.tensorflow_values.bundles import DTYPES, FOLDER, OBJECTS, QUANTIZED, SHARDS, TRAINED

EXPECTED = json.loads((FOLDER / "expected.json").read_text())["read"]
NUMBERED = np.arange(12, dtype=np.float32).reshape(4, 3)


# What TensorFlow wrote ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [DTYPES, SHARDS, TRAINED, OBJECTS], ids=lambda path: path.name)
def test_every_tensor_is_what_tensorflow_reads(path: Path) -> None:
    expected = EXPECTED[path.name]
    with open_checkpoint(path) as checkpoint:
        checkpoint.verify()
        assert checkpoint.keys() == sorted(expected)
        for key, (dtype, shape, numbers) in expected.items():
            info = checkpoint.info(key)
            assert (info.dtype, [*info.shape]) == (dtype, shape), key
            if numbers is not None:
                value = checkpoint.read(key)
                kind = np.complex128 if value.dtype.kind == "c" else np.float64
                assert [str(one) for one in value.astype(kind).ravel().tolist()] == numbers, key


def test_strings_are_read_also_in_regions() -> None:
    with open_checkpoint(DTYPES) as checkpoint:
        assert checkpoint.read("string").item() == b"scalar"
        assert checkpoint.read("no_strings").shape == (0, 2)
        whole = [[b"", b"a"], [b"\xff\x00", b"long" * 50]]
        assert checkpoint.read("strings").tolist() == whole
        assert checkpoint.read("strings", [slice(1, 2), slice(0, 1)]).tolist() == [[b"\xff\x00"]]
    with open_checkpoint(OBJECTS) as checkpoint:
        assert b"save_counter" in checkpoint.read("_CHECKPOINTABLE_OBJECT_GRAPH").item()


@pytest.mark.parametrize("key", ["scope/rows", "scope/columns"])
@pytest.mark.parametrize(
    "region", [(0, 4, 0, 3), (1, 3, 0, 3), (0, 4, 1, 2), (1, 4, 1, 3), (2, 2, 0, 1)]
)
def test_regions_of_partitioned_tensors_are_read(key: str, region: tuple[int, ...]) -> None:
    a, b, c, d = region
    with open_checkpoint(SHARDS) as checkpoint:
        value = checkpoint.read(key, [slice(a, b), slice(c, d)])
    np.testing.assert_array_equal(value, NUMBERED[a:b, c:d])


def test_a_dtype_that_jflow_lacks_is_listed_and_not_read() -> None:
    with open_checkpoint(QUANTIZED) as checkpoint:
        checkpoint.verify()
        assert checkpoint.info("quantized").dtype == "qint8"
        with pytest.raises(UnimplementedError, match="dtype qint8, which jflow lacks"):
            checkpoint.read("quantized")


def test_slices_that_were_not_saved_are_missed_only_where_they_are_read() -> None:
    key = "scoped/parts/art_0/Adam"  # to which TensorFlow gives the shape of the whole
    with open_checkpoint(TRAINED) as checkpoint:
        assert checkpoint.read(key, [slice(0, 2), slice(0, 1)]).shape == (2, 1)
        with pytest.raises(DataLossError, match=r"2 of 3 elements of '.*art_0/Adam'"):
            checkpoint.read(key)


def test_roots_and_links_are_for_these_files_too(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    copied(SHARDS, outside)
    with pytest.raises(PermissionDeniedError, match="outside the checkpoint roots"):
        open_checkpoint(outside / "shards", checkpoint_roots([str(inside)]))
    copied(SHARDS, inside)
    shard = inside / "shards.data-00001-of-00002"
    shard.unlink()
    shard.symlink_to(outside / shard.name)
    with pytest.raises(PermissionDeniedError, match="it is a link"):
        open_checkpoint(inside / "shards")


def test_a_checkpoint_is_deleted_with_its_shards(tmp_path: Path) -> None:
    copied(SHARDS, tmp_path)
    copied(OBJECTS, tmp_path)
    (tmp_path / "shards.data-of").touch()
    with locate(tmp_path / "shards") as prefix:
        delete(prefix)
    assert names(tmp_path) == ["o-1.data-00000-of-00001", "o-1.index", "shards.data-of"]


# Damage -------------------------------------------------------------------------------------------


def copied(path: Path, directory: Path) -> None:
    """Copies a recorded checkpoint."""
    for file in FOLDER.glob(f"{path.name}.*"):
        shutil.copy(file, directory)


def values_of(path: Path) -> dict[str, Any]:
    """All that can be read of a checkpoint."""
    with open_checkpoint(path) as checkpoint:
        return {key: checkpoint.read(key).tolist() for key in checkpoint.keys()}  # noqa: SIM118


def refusal_of(path: Path, whole: dict[str, Any]) -> str:
    """The message of the error with which a checkpoint is refused; "" if it says what it should."""
    refusal, is_damaged = "", False
    try:
        found = str(values_of(path))
    except (DataLossError, UnimplementedError) as error:
        refusal = error.message
    else:
        assert found == str(whole)
    try:
        with open_checkpoint(path) as checkpoint:
            checkpoint.verify()
    except (DataLossError, UnimplementedError):
        is_damaged = True
    assert is_damaged == bool(refusal)
    return refusal


@pytest.mark.parametrize("file", sorted(one.name for one in FOLDER.glob("shards.*")))
def test_every_flipped_bit_is_found_or_is_in_what_no_reader_needs(
    file: str, tmp_path: Path
) -> None:
    copied(SHARDS, tmp_path)
    path, whole = tmp_path / "shards", values_of(SHARDS)
    data = (tmp_path / file).read_bytes()
    harmless = []
    for at in range(0, len(data), 1 + (len(data) > 100)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        (tmp_path / file).write_bytes(damaged)
        refusal = refusal_of(path, whole)
        assert file in refusal or not refusal
        if not refusal:
            harmless.append(at)
    # The empty block before the block of places, its place in the footer, and the zeros after it.
    unneeded = range(len(data) - 48 - 31 - 13, len(data) - 8) if file.endswith("index") else ()
    assert {*harmless} <= {*unneeded}


def test_a_region_of_a_damaged_tensor_is_refused(tmp_path: Path) -> None:
    copied(SHARDS, tmp_path)
    data = tmp_path / "shards.data-00000-of-00002"
    data.write_bytes(bytes(len(data.read_bytes())))
    with open_checkpoint(tmp_path / "shards") as checkpoint:
        for region in ([slice(0, 1), slice(0, 1)], [slice(0, 4), slice(0, 1)]):
            with pytest.raises(DataLossError, match=r"wrong CRC of 'scope/rows', offset \d+ to"):
                checkpoint.read("scope/rows", region)


@pytest.mark.parametrize("file", sorted(one.name for one in FOLDER.glob("shards.*")))
def test_every_short_file_is_found(file: str, tmp_path: Path) -> None:
    copied(SHARDS, tmp_path)
    data = (tmp_path / file).read_bytes()
    for n in [*range(0, len(data), 3), len(data) - 1]:
        (tmp_path / file).write_bytes(data[:n])
        with pytest.raises(DataLossError, match=file):
            values_of(tmp_path / "shards")
    (tmp_path / file).unlink()
    with pytest.raises((DataLossError, NotFoundError), match=file):
        values_of(tmp_path / "shards")


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["index", "data-00000-of-00001"]),
        st.integers(0, 900),
        st.integers(0, 20),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(30), deadline=None)
@given(edits=EDITS)
def test_edited_files_are_refused_or_say_the_same(
    edits: list[tuple[str, int, int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("edited")
    copied(DTYPES, directory)
    for suffix, at, n_removed, added in edits:
        file = directory / f"dtypes.{suffix}"
        data = file.read_bytes()
        file.write_bytes(data[:at] + added + data[at + n_removed :])
    refusal = refusal_of(directory / "dtypes", values_of(DTYPES))
    assert "dtypes" in refusal or not refusal
    shutil.rmtree(directory)


# What a malicious file may say --------------------------------------------------------------------

Entries = dict[bytes, Any]


def forged(path: Path, directory: Path, change: Callable[[Entries], Entries]) -> Path:
    """Copies a checkpoint with other entries, whose checksums are as they must be."""
    copied(path, directory)
    with locate(path) as prefix:
        file = prefix.storage.open(f"{path.name}.index")
        table = dict(read_table(file))
        file.close()
    entries: Entries = {key: pb.BundleEntry.FromString(value) for key, value in table.items()}
    entries[b""] = pb.BundleHeader.FromString(table[b""])
    changed = change(entries)
    plain = {
        key: value if isinstance(value, bytes) else value.SerializeToString()
        for key, value in sorted(changed.items())
    }
    (directory / f"{path.name}.index").write_bytes(table_of(plain))
    return directory / path.name


def with_fields(key: bytes, **fields: Any) -> Callable[[Entries], Entries]:
    """Sets fields of an entry; a shape is a list of sizes."""

    def change(entries: Entries) -> Entries:
        for name, value in fields.items():
            if name == "shape":
                entries[key].shape.CopyFrom(pb.Shape(dim=[pb.Dim(size=n) for n in value]))
            elif name == "slices":
                del entries[key].slices[:]
                entries[key].slices.extend(value)
            else:
                setattr(entries[key], name, value)
        return entries

    return change


def slice_of(*extents: tuple[int, int] | None) -> pb.Slice:
    """A slice by its starts and lengths; None for a whole dimension."""
    return pb.Slice(
        extent=[pb.Extent(start=e[0], length=e[1]) if e else pb.Extent() for e in extents]
    )


ROWS, WHOLE = b"scope/rows", b"scope/whole"
FIRST, SECOND = slice_of((0, 2), None), slice_of((2, 2), None)


@pytest.mark.parametrize(
    "change",
    [
        with_fields(WHOLE, size=2**62),
        with_fields(WHOLE, size=-1),
        with_fields(WHOLE, size=16),
        with_fields(WHOLE, offset=2**62),
        with_fields(WHOLE, offset=-8),
        with_fields(WHOLE, offset=64),
        with_fields(WHOLE, shard_id=2),
        with_fields(WHOLE, shard_id=-1),
        with_fields(WHOLE, dtype=99),
        with_fields(WHOLE, dtype=0),
        with_fields(WHOLE, shape=[2**61], size=2**63 - 4),
        with_fields(WHOLE, shape=[0, 2**62], size=0),
        with_fields(WHOLE, shape=[-3]),
        with_fields(WHOLE, shape=[1] * 70 + [3]),
        with_fields(WHOLE, dtype=7),
        with_fields(ROWS, shape=[4, 4]),
        with_fields(ROWS, shape=[12]),
        with_fields(ROWS, dtype=3),
        with_fields(ROWS, slices=[FIRST, FIRST]),
        with_fields(ROWS, slices=[FIRST, slice_of((2, 3), None)]),
        with_fields(ROWS, slices=[slice_of((-1, 2), None)]),
        with_fields(ROWS, slices=[slice_of((2**62, 2**62), None)]),
        with_fields(ROWS, slices=[slice_of((1, 2), None)]),
        with_fields(ROWS, slices=[slice_of((0, 2))]),
        with_fields(b"", num_shards=-1),
        with_fields(b"", num_shards=3),
        with_fields(b"", endianness=2),
        lambda entries: entries | {WHOLE: b"\xff"},
        lambda entries: entries | {b"": b"\xff"},
        lambda entries: entries | {b"\xff": entries[WHOLE]},
        lambda entries: {key: value for key, value in entries.items() if key},
        lambda _: {},
    ],
)
def test_what_cannot_be_is_refused_before_memory_is_allocated(
    change: Callable[[Entries], Entries], tmp_path: Path
) -> None:
    assert values_of(forged(SHARDS, tmp_path, lambda entries: entries)) == values_of(SHARDS)
    path = forged(SHARDS, tmp_path, change)
    with limited_memory(), pytest.raises(DataLossError, match="shards"):
        values_of(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.__setattr__("endianness", 1), "big-endian machine"),
        (lambda header: header.version.__setattr__("min_consumer", 2), "version 2 or later"),
        (lambda header: header.version.bad_consumers.append(1), "jflow has 1"),
    ],
)
def test_other_versions_of_the_format_are_refused(
    change: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    def changed(entries: Entries) -> Entries:
        change(entries[b""])
        return entries

    with pytest.raises(UnimplementedError, match=message):
        open_checkpoint(forged(SHARDS, tmp_path, changed))


class limited_memory:  # noqa: N801 - a context manager
    """Fails if more memory is allocated than a small checkpoint needs."""

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, *_: object) -> None:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 22


SIZES = st.integers(-2, 6) | st.integers(0, 2**63 - 1)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("offset", "size"), SIZES),
        "dtype": st.integers(0, 40),
        "shard_id": st.integers(-1, 3),
        "shape": st.lists(SIZES, max_size=3),
        "slices": st.lists(
            st.lists(st.none() | st.tuples(SIZES, SIZES), max_size=3).map(lambda e: slice_of(*e)),
            max_size=2,
        ),
    },
)


@settings(max_examples=examples(30), deadline=None)
@given(fields=FIELDS, key=st.sampled_from([ROWS, WHOLE]))
def test_no_entry_makes_a_reader_crash_or_grow(
    fields: dict[str, Any], key: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("forged")
    path = forged(SHARDS, directory, with_fields(key, **fields))
    with limited_memory(), suppress(DataLossError, UnimplementedError):
        values_of(path)
    shutil.rmtree(directory)


# Tables -------------------------------------------------------------------------------------------


class Bytes(FileSource):
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.path, self._data, self.n_bytes = "table", data, len(data)

    def read_into(self, offset: int, data: memoryview) -> None:
        data[:] = self._data[offset : offset + len(data)]

    def close(self) -> None:
        pass


def block(content: bytes, kind: int = 0) -> bytes:
    """A block with its kind and checksum."""
    return content + struct.pack("<BI", kind, masked(checksum(content + bytes((kind,)))))


ENDS = struct.pack("<II", 0, 1)
"""The list of whole keys at the end of a block."""


def table_with(first: bytes, kind: int = 0, places: Iterator[bytes] | None = None) -> bytes:
    """A table of one block with any content, which it may name several times."""
    named = places or [b"\0" + varint_of(len(first))]
    index = b"".join(bytes((0, 1, len(p), i)) + p for i, p in enumerate(named)) + ENDS
    data = block(first, kind)
    footer = b"\0\0" + varint_of(len(data)) + varint_of(len(index))
    return data + block(index) + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def test_a_small_table_is_read() -> None:
    assert [*read_table(Bytes(table_with(b"\0\1\1kv" + ENDS)))] == [(b"k", b"v")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0",
        b"\xff\xff\xff\xff",
        b"\1\1\1kv" + ENDS,  # shares what is not there
        b"\0\5\1kv" + ENDS,
        b"\0\1\5kv" + ENDS,
        b"\0\1" + b"\xff" * 11 + ENDS,
        b"\0\1\1kv\0\1\1kv" + ENDS,  # a key twice
        b"\0\1\1kv\0\1\1jv" + ENDS,
        b"\0\1\1kv\1\x80\x80\x80\x80\x80\x80\x80\x80\x80\1\1" + ENDS,
    ],
)
def test_malformed_blocks_are_refused(content: bytes) -> None:
    with limited_memory(), pytest.raises(DataLossError, match="'table' is damaged"):
        [*read_table(Bytes(table_with(content)))]


@pytest.mark.parametrize("n_shared", [1000, 100_000])
def test_keys_that_are_much_more_than_their_bytes_are_refused(n_shared: int) -> None:
    first = b"\0" + varint_of(n_shared) + b"\0" + b"k" * n_shared
    others = [varint_of(n_shared) + b"\1\0" + bytes((i,)) for i in range(200)]
    with limited_memory(), pytest.raises(DataLossError, match=f"a key of .*{n_shared}"):
        [*read_table(Bytes(table_with(first + b"".join(others) + ENDS)))]


def test_a_block_that_is_named_twice_is_refused() -> None:
    content = b"\0\1\1kv" + ENDS
    place = bytes((0, len(content)))
    with pytest.raises(DataLossError, match="not in order"):
        [*read_table(Bytes(table_with(content, places=iter([place] * 2))))]


@pytest.mark.parametrize(("kind", "name"), [(1, "by Snappy"), (2, "is compressed")])
def test_a_compressed_block_is_refused(kind: int, name: str) -> None:
    with pytest.raises(UnimplementedError, match=f"{name}.*save it again"):
        [*read_table(Bytes(table_with(b"\0\1\1kv" + ENDS, kind)))]


@settings(max_examples=examples(25), deadline=None)
@given(
    entries=st.dictionaries(
        st.text("ab/\xff", max_size=5).map(str.encode), st.binary(max_size=40), max_size=60
    )
)
def test_a_table_of_many_blocks_is_read_as_it_was_written(entries: dict[bytes, bytes]) -> None:
    in_order = dict(sorted(entries.items()))
    size = sorted_table._BLOCK_BYTES
    sorted_table._BLOCK_BYTES = 64
    try:
        table = table_of(in_order)
    finally:
        sorted_table._BLOCK_BYTES = size
    assert dict(read_table(Bytes(table))) == in_order


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_codes_of_numbers_sort_as_the_numbers(numbers: list[int]) -> None:
    assert sorted(numbers) == sorted(numbers, key=signed_number)
    naturals = [abs(number) for number in numbers]
    assert sorted(naturals) == sorted(naturals, key=unsigned_number)


@given(texts=st.lists(st.text("\0\1a\xff", max_size=4).map(str.encode), max_size=8))
def test_codes_of_texts_sort_as_the_texts(texts: list[bytes]) -> None:
    assert sorted(texts) == sorted(texts, key=text)
    assert text(b"\0a\xff") == b"\0\xffa\xff\0\0\1"


# Writing ------------------------------------------------------------------------------------------


def test_what_is_written_is_what_tensorflow_writes(tmp_path: Path) -> None:
    with open_checkpoint(DTYPES) as checkpoint:
        write_tensorflow(checkpoint, tmp_path / "new" / "dtypes")
    for file in FOLDER.glob("dtypes.*"):
        assert (tmp_path / "new" / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_partitioned_tensor_and_random_keys_are_written_as_whole_arrays(tmp_path: Path) -> None:
    halves = [
        Item("w", np.full(2, i), slice=SaveSliceInfo("w", (4,), (2 * i,), (2,))) for i in (0, 1)
    ]
    key = Item("key", np.zeros(2, np.uint32), dtype="key<fry>")
    save(tmp_path / "own", [*halves, key, Item("s", as_strings([b"x"]))])
    with open_checkpoint(tmp_path / "own") as checkpoint:
        write_tensorflow(checkpoint, tmp_path / "all")
        write_tensorflow(checkpoint, tmp_path / "some", ["w"])
        with pytest.raises(NotFoundError, match="'missing'"):
            write_tensorflow(checkpoint, tmp_path / "other", ["missing"])
        for taken in ("own", "all"):
            with pytest.raises(AlreadyExistsError, match=taken):
                write_tensorflow(checkpoint, tmp_path / taken)
    assert values_of(tmp_path / "all") == {"key": [0, 0], "s": [b"x"], "w": [0, 0, 1, 1]}
    assert values_of(tmp_path / "some") == {"w": [0, 0, 1, 1]}


def test_a_dtype_that_tensorflow_lacks_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    save(tmp_path / "own", [Item("w", np.zeros(2, ml_dtypes.float8_e3m4))])
    before = names(tmp_path)
    with (
        open_checkpoint(tmp_path / "own") as checkpoint,
        pytest.raises(InvalidArgumentError, match=r"'w' has dtype float8_e3m4"),
    ):
        write_tensorflow(checkpoint, tmp_path / "new")
    assert names(tmp_path) == before


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    copied(SHARDS, tmp_path)
    data = tmp_path / "shards.data-00000-of-00002"
    data.write_bytes(bytes(len(data.read_bytes())))
    before = names(tmp_path)
    with open_checkpoint(tmp_path / "shards") as checkpoint, pytest.raises(OpError, match="CRC"):
        write_tensorflow(checkpoint, tmp_path / "new")
    assert names(tmp_path) == before


@pytest.mark.parametrize("axis", [0, 1])
def test_many_slices_of_one_dimension_are_compared_with_their_neighbours(
    axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small index of a hostile file could keep a server busy otherwise."""
    n_compared = 0
    common = TensorBox.common

    def counted(box: TensorBox, other: TensorBox) -> TensorBox | None:
        nonlocal n_compared
        n_compared += 1
        return common(box, other)

    monkeypatch.setattr(TensorBox, "common", counted)
    boxes = [box_of((i, 0) if axis == 0 else (0, i), (1, 1)) for i in range(1000)]
    assert not do_overlap(boxes)
    assert n_compared <= len(boxes)
    assert do_overlap([*boxes, box_of((500, 0) if axis == 0 else (0, 500), (1, 1))])
