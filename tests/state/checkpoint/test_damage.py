"""Damaged and malicious files: each flipped bit and short file is found, nothing is trusted."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import asdict, replace

from jflow.base.values import SaveSliceInfo, as_strings
from jflow.errors import (
    DataLossError,
    FailedPreconditionError,
    OpError,
    PermissionDeniedError,
)
from jflow.state.checkpoint_files import Item, exists, locate, open_checkpoint
from jflow.state.checkpoint_files.commit import read_manifest
from jflow.state.checkpoint_files.layout import BLOCK_BYTES
from jflow.state.records.crc32c import checksum
from tests.state.checkpoint.saving import SAVE, names, read, save
from tests.state.checkpoint.test_round_trips import STATES

SHARD = f"m.{SAVE}.ps-0.safetensors"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkpoint of a few hundred bytes with tensors, strings and a state."""
    items = [
        Item("w", np.arange(5, dtype=np.float32)),
        Item("s", as_strings([b"abc", b""])),
        Item("q", state=STATES["dense"]),
    ]
    save(tmp_path / "m", items)
    return tmp_path


def look(directory: Path) -> None:
    """Looks at every byte."""
    with open_checkpoint(directory / "m") as checkpoint:
        checkpoint.verify()


@pytest.mark.parametrize("name", ["m.index", SHARD])
def test_every_flipped_bit_is_found_and_the_file_and_offset_are_named(
    name: str, small: Path
) -> None:
    look(small)
    data = (small / name).read_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        (small / name).write_bytes(damaged)
        with pytest.raises(DataLossError) as caught:
            look(small)
        assert name in caught.value.message, at
        if name == SHARD:
            assert "offset" in caught.value.message, at


@pytest.mark.parametrize("name", ["m.index", SHARD])
def test_every_short_or_long_file_is_found(name: str, small: Path) -> None:
    data = (small / name).read_bytes()
    for damaged in [*(data[:n] for n in range(0, len(data), 7)), data[:-1], data + b"\0"]:
        (small / name).write_bytes(damaged)
        with pytest.raises(DataLossError, match=name):
            look(small)


def test_a_damaged_block_is_named_with_its_key_and_others_can_be_read(tmp_path: Path) -> None:
    save(tmp_path / "m", [Item("w", np.zeros(3 * BLOCK_BYTES, np.uint8)), Item("v", np.ones(3))])
    with (tmp_path / SHARD).open("r+b") as file:
        file.seek(2 * BLOCK_BYTES)
        file.write(b"\1")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert checkpoint.read("v").all()
        assert not checkpoint.read("w", [slice(0, 100)]).any()
        with pytest.raises(DataLossError, match=rf"{SHARD}' is damaged: wrong CRC of 'w', offset"):
            checkpoint.read("w")


def test_a_missing_shard_is_named(small: Path) -> None:
    (small / SHARD).unlink()
    with pytest.raises(DataLossError, match=rf"{SHARD}.*No such file.*belongs to '.*/m'"):
        look(small)


def test_a_file_that_is_cut_off_while_it_is_read_is_found(tmp_path: Path) -> None:
    save(tmp_path / "m", [Item("w", np.zeros(BLOCK_BYTES, np.uint8))])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        os.truncate(tmp_path / SHARD, 1000)
        with pytest.raises(DataLossError, match=r"ends at offset 1000"):
            checkpoint.read("w")


# What a malicious file may say --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.index", SHARD])
@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_only_regular_files_are_read(name: str, kind: str, small: Path) -> None:
    (small / name).rename(small / "elsewhere")
    path = small / name
    match kind:
        case "link":
            path.symlink_to(small / "elsewhere")
        case "directory":
            path.mkdir()
        case _:
            os.mkfifo(path)
    with pytest.raises((PermissionDeniedError, FailedPreconditionError), match=r"link|regular"):
        look(small)
    with locate(small / "m") as prefix:
        assert exists(prefix) == (name != "m.index")


Fields = dict[str, Any]


def forge(directory: Path, change: Callable[[Fields], Fields]) -> None:
    """Changes the table of a shard, with all checksums as they must be."""
    with locate(directory / "m") as prefix:
        manifest = read_manifest(prefix.storage, "m")
    (shard,) = manifest.shards
    data = (directory / SHARD).read_bytes()
    begin = shard.n_bytes - shard.n_table - shard.n_sums
    table = data[begin : begin + shard.n_table]
    table = msgspec.msgpack.encode(change(msgspec.msgpack.decode(table)))
    sums = data[begin + shard.n_table :]
    forged = data[:begin] + table + sums
    crc = checksum(data[: shard.n_head] + table + sums)
    record = replace(shard, n_bytes=len(forged), n_table=len(table), crc=crc)
    (directory / SHARD).write_bytes(forged)
    whole = replace(manifest, shards=(record,))
    (directory / "m.index").write_bytes(whole.to_file())


def changed(table: Fields, **fields: Any) -> Fields:
    """The table with other fields of the entry of "w"."""
    entries = [one | fields if one["key"] == "w" else one for one in table["entries"]]
    return table | {"entries": entries}


@pytest.mark.parametrize(
    "fields",
    [
        {"n_bytes": 2**62},
        {"n_bytes": 16},
        {"shape": (2**40,), "full_shape": (2**40,), "n_bytes": 2**42},
        {"shape": (2**62,), "full_shape": (2**62,)},
        {"full_shape": (2**62,)},
        {"full_shape": (6,)},
        {"begin": (1,)},
        {"begin": ()},
        {"offset": 4},
        {"offset": 2**62},
        {"first_sum": 0},
        {"first_sum": 2**62},
        {"stored": "object"},
        {"shape": (1,) * 70 + (5,), "full_shape": (1,) * 70 + (5,), "begin": (0,) * 71},
        {"key": "s"},
    ],
    ids=str,
)
def test_sizes_that_cannot_be_are_refused_before_memory_is_allocated(
    fields: dict[str, Any], small: Path
) -> None:
    forge(small, lambda table: table)
    look(small)
    forge(small, lambda table: changed(table, **fields))
    with pytest.raises(DataLossError, match=r"m\b"):
        look(small)


def test_a_table_that_names_bytes_twice_is_refused(small: Path) -> None:
    forge(small, lambda table: table | {"entries": table["entries"] * 2})
    with pytest.raises(DataLossError, match="table does not match its data"):
        look(small)


@pytest.mark.parametrize("begins", [[0], [0, 0], [2, 2], [0, 2, 2]])
def test_slices_that_overlap_or_leave_something_out_are_refused(
    begins: list[int], tmp_path: Path
) -> None:
    tasks = [
        [Item("w", np.ones(2), slice=SaveSliceInfo("w", (4,), (begin,), (2,)))] for begin in begins
    ]
    save(tmp_path / "m", *tasks)
    with pytest.raises(DataLossError, match="exactly one value of each element of 'w'"):
        look(tmp_path)


def test_slices_of_different_tensors_are_refused(tmp_path: Path) -> None:
    first, second = SaveSliceInfo("w", (4,), (0,), (2,)), SaveSliceInfo("w", (4,), (2,), (2,))
    others = np.ones(2, np.int32)
    save(tmp_path / "m", [Item("w", np.ones(2), slice=first)], [Item("w", others, slice=second)])
    with pytest.raises(DataLossError, match="exactly one value of each element of 'w'"):
        look(tmp_path)


def test_two_states_of_one_key_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "m", *[[Item("q", state=STATES["dense"])]] * 2)
    with pytest.raises(DataLossError, match="two states of 'q'"):
        look(tmp_path)


def test_a_state_of_another_kind_is_refused(small: Path) -> None:
    def other(table: Fields) -> Fields:
        (state,) = table["states"]
        return table | {"states": [state | {"kind": "reader"}]}

    forge(small, other)
    with (
        open_checkpoint(small / "m") as checkpoint,
        pytest.raises(DataLossError, match=r"the state of 'q' in .* cannot be read"),
    ):
        checkpoint.state("q")


def test_lengths_of_strings_are_checked(small: Path) -> None:
    data = (small / SHARD).read_bytes()
    forged = data.replace(struct.pack("<QQ", 3, 0), struct.pack("<QQ", 2**63, 2**63))
    assert forged != data
    (small / SHARD).write_bytes(forged)
    with pytest.raises(DataLossError, match="wrong CRC"):
        read(small / "m", "s")
    begin = forged.index(struct.pack("<QQ", 2**63, 2**63))
    sums = np.frombuffer(data[-12:], "<u4").copy()
    number = [*sums].index(checksum(data[begin : begin + 19]))
    sums[number] = checksum(forged[begin : begin + 19])
    (small / SHARD).write_bytes(forged[:-12] + sums.tobytes())
    forge(small, lambda table: table)
    with pytest.raises(DataLossError, match="strings"):
        read(small / "m", "s")


@pytest.mark.parametrize(
    "file", ["../x", f"{SAVE}.a/b.safetensors", f"{SAVE}.ps-0.safetensors\0", "x.safetensors", ""]
)
def test_shards_with_names_of_other_directories_are_refused(file: str, small: Path) -> None:
    with locate(small / "m") as prefix:
        manifest = read_manifest(prefix.storage, "m")
    shard = asdict(manifest.shards[0]) | {"file": file}
    data = msgspec.msgpack.encode({"version": 1, "save": SAVE, "about": {}, "shards": [shard]})
    header = struct.pack("<8sQI", b"JFLOW-CK", len(data), checksum(data))
    (small / "m.index").write_bytes(header + data)
    with pytest.raises(DataLossError, match="invalid name of a shard"):
        look(small)


def test_random_bytes_are_no_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, 19, 20, 21, 1000):
        (tmp_path / "m.index").write_bytes(rng.bytes(n))
        with pytest.raises(DataLossError, match=r"m\.index"):
            look(tmp_path)
    # With a header and a CRC that are right.
    for n in range(0, 300, 3):
        data = rng.bytes(n)
        header = struct.pack("<8sQI", b"JFLOW-CK", n, checksum(data))
        (tmp_path / "m.index").write_bytes(header + data)
        with pytest.raises(OpError, match=r"m\.index"):
            look(tmp_path)
    assert names(tmp_path) == ["m.index"]
