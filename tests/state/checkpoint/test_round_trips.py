"""What is saved is read back: every dtype, slices in any partitioning, states of every kind."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.values import NUMBERS, SaveSliceInfo, TensorSpec, as_strings, to_physical
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.state.checkpoint_files import Item, locate, open_checkpoint, write_shard
from jflow.state.checkpoint_files.layout import BLOCK_BYTES
from jflow.state.resources.accumulator import AccumulatorSnapshot, AccumulatorSpec, SumSnapshot
from jflow.state.resources.iterator_state import IteratorStateSnapshot, IteratorStateSpec
from jflow.state.resources.queue import QueueSnapshot, QueueSpec, RngState
from jflow.state.resources.reader import ReaderSnapshot, ReaderSpec
from tests.samples import KEYS, assert_same, keys, numbers
from tests.state.checkpoint.saving import NEXT_SAVE, SAVE, read, save

SHAPES = ((), (3,), (2, 0, 2), (2, 3))


@pytest.mark.parametrize("name", NUMBERS)
def test_every_dtype_and_shape_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    physical = {str(shape): _physical(name, shape) for shape in SHAPES}
    save(tmp_path / "m", [Item(key, value, name) for key, value in physical.items()])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert checkpoint.keys() == sorted(physical)
        for shape in SHAPES:
            info = checkpoint.info(str(shape))
            assert (info.dtype, info.shape) == (name, shape)
            assert_same(checkpoint.read(str(shape)), physical[str(shape)])


def _physical(name: str, shape: tuple[int, ...]) -> Any:
    """Any values of a dtype in physical form."""
    return numbers(name, shape).astype(TensorSpec((), name).physical.numpy_dtype)


@pytest.mark.parametrize("impl", KEYS)
def test_random_keys_come_back_with_their_dtype_and_in_regions(impl: str, tmp_path: Path) -> None:
    sent = keys(impl, (3, 2))
    data = np.asarray(to_physical(sent))
    save(tmp_path / "m", [Item("k", data, sent.dtype.name)])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        info = checkpoint.info("k")
        assert (info.dtype, info.shape) == (sent.dtype.name, (3, 2))
        assert_same(checkpoint.read("k"), data)
        assert_same(checkpoint.read("k", [slice(1, 3), slice(0, 1)]), data[1:3, :1])


def test_strings_come_back_whole_and_in_regions(tmp_path: Path) -> None:
    strings = as_strings([[b"", "é".encode(), b"\0" * 70], [b"a", b"bc", b"\xff"]])
    items = [
        Item("s", strings),
        Item("none", as_strings([]).reshape(0, 2)),
        Item("one", as_strings("x")),
    ]
    save(tmp_path / "m", items)
    for item in items:
        assert_same(read(tmp_path / "m", item.key), item.array)
    assert_same(read(tmp_path / "m", "s", [slice(0, 2), slice(1, 3)]), strings[:, 1:])


def test_jax_arrays_and_arrays_in_any_order_of_bytes_are_saved(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    items = [
        Item("jax", jax.numpy.asarray(base)),
        Item("transposed", base.T),
        Item("every second", base[::2, ::2]),
        Item("big-endian", base.astype(">f4")),
    ]
    save(tmp_path / "m", items)
    for item in items:
        assert_same(read(tmp_path / "m", item.key), np.asarray(item.array).astype(np.float32))


def test_a_tensor_of_many_blocks_is_read_in_regions_of_any_alignment(tmp_path: Path) -> None:
    rows = 3 * BLOCK_BYTES // (4 * 1000) + 7
    whole = np.arange(rows * 1000, dtype=np.int32).reshape(rows, 1000)
    save(tmp_path / "m", [Item("w", whole)])
    for region in [
        (slice(None), slice(None)),
        (slice(1, rows - 1), slice(0, 1000)),
        (slice(5, rows), slice(3, 7)),
        (slice(rows - 1, rows), slice(0, 0)),
    ]:
        assert (read(tmp_path / "m", "w", region) == whole[region]).all()
    wide = whole.reshape(1, 1, -1)
    save(tmp_path / "wide", [Item("w", wide)])
    region = (slice(0, 1), slice(0, 1), slice(17, wide.size - 5))
    assert (read(tmp_path / "wide", "w", region) == wide[region]).all()


@st.composite
def _cuts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]], tuple[slice, ...]]:
    """A shape, where each dimension is cut, and a region."""
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    cuts = [
        [0, *sorted(draw(st.sets(st.integers(1, max(1, size - 1)), max_size=2))), size]
        if size > 1
        else [0, size]
        for size in shape
    ]
    bounds = [sorted(draw(st.tuples(*[st.integers(0, size)] * 2))) for size in shape]
    return shape, cuts, tuple(slice(low, high) for low, high in bounds)


@given(_cuts(), st.integers(1, 3))
def test_a_tensor_saved_in_one_partitioning_is_read_in_any_other(
    cut: tuple[tuple[int, ...], list[list[int]], tuple[slice, ...]], n_tasks: int
) -> None:
    shape, cuts, region = cut
    whole = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    tasks: list[list[Item]] = [[] for _ in range(n_tasks)]
    grid = np.array(np.meshgrid(*[range(len(one) - 1) for one in cuts], indexing="ij"))
    for i, where in enumerate(grid.reshape(len(shape), -1).T):
        begin = tuple(one[j] for one, j in zip(cuts, where, strict=True))
        end = tuple(one[j + 1] for one, j in zip(cuts, where, strict=True))
        array = whole[tuple(map(slice, begin, end))]
        info = SaveSliceInfo("w", shape, begin, array.shape)
        tasks[i % n_tasks].append(Item("w", array, slice=info))
    with tempfile.TemporaryDirectory() as directory:
        save(f"{directory}/m", *tasks)
        with open_checkpoint(f"{directory}/m") as checkpoint:
            assert checkpoint.info("w").shape == shape
            assert_same(checkpoint.read("w"), whole)
            assert_same(checkpoint.read("w", region), whole[region])


def test_slices_of_strings_make_a_whole(tmp_path: Path) -> None:
    whole = as_strings([b"a", b"bb", b"", b"dddd"])
    tasks = [
        [Item("s", whole[i : i + 2], slice=SaveSliceInfo("s", (4,), (i,), (2,)))] for i in (0, 2)
    ]
    save(tmp_path / "m", *tasks)
    assert_same(read(tmp_path / "m", "s"), whole)
    assert_same(read(tmp_path / "m", "s", [slice(1, 3)]), whole[1:3])


def test_a_tensor_is_read_into_an_array_of_the_caller(tmp_path: Path) -> None:
    save(tmp_path / "m", [Item("w", np.arange(6, dtype=np.float32).reshape(2, 3))])
    out = np.zeros((2, 6), np.float32)
    with open_checkpoint(tmp_path / "m") as checkpoint:
        got = checkpoint.read("w", out=out[:, ::2])
        assert got.base is out
        assert (out[:, ::2] == [[0, 1, 2], [3, 4, 5]]).all()
        for bad in (np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float64)):
            with pytest.raises(InvalidArgumentError, match=r"'w'.*expected float32\(2, 3\)"):
                checkpoint.read("w", out=bad)


STATES = {
    "fifo": QueueSnapshot(
        QueueSpec(
            "FIFOQueue", 3, components=(TensorSpec((2,), "float32"), TensorSpec((), "string"))
        ),
        (np.ones((2, 2), np.float32), as_strings([b"a", b"b"])),
        True,
    ),
    "shuffle": QueueSnapshot(
        QueueSpec("RandomShuffleQueue", 9, components=(TensorSpec((), "int64"),)),
        (np.arange(4),),
        False,
        RngState("PCG64", (2**64 - 1, 1, 2, 3, 1, 2**32 - 1)),
    ),
    "padded": QueueSnapshot(
        QueueSpec("PaddingFIFOQueue", 9, components=(TensorSpec((None,), "bfloat16"),)),
        (tuple(numbers("bfloat16", (n,)) for n in (0, 3, 1)),),
        False,
    ),
    "dense": AccumulatorSnapshot(
        AccumulatorSpec("float32", (2,)), 3, 1, SumSnapshot(2, np.ones(2, np.float32))
    ),
    "sparse": AccumulatorSnapshot(
        AccumulatorSpec("float32", (None, 2), is_sparse=True),
        0,
        0,
        SumSnapshot(1, np.ones((1, 2), np.float32), np.array([4]), np.array([1]), (None, 2)),
    ),
    "no gradients": AccumulatorSnapshot(AccumulatorSpec("int32", ()), 0, 0, SumSnapshot(0, None)),
    "reader": ReaderSnapshot(ReaderSpec("IdentityReader"), b"\xff.txt", (3, 4), 7, 2),
    "new reader": ReaderSnapshot(ReaderSpec("IdentityReader"), None, None, 0, 0),
    "iterator": IteratorStateSnapshot(IteratorStateSpec(), b"x" * 100_000),
}


def test_states_of_every_kind_come_back_beside_tensors(tmp_path: Path) -> None:
    items = [Item(key, state=state) for key, state in STATES.items()]
    save(tmp_path / "m", items[::2], [*items[1::2], Item("w", np.ones(3))])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert checkpoint.keys() == ["w"]
        assert checkpoint.state_keys() == sorted(STATES)
        for key, state in STATES.items():
            _assert_same_record(checkpoint.state(key), state)
        checkpoint.verify()


def _assert_same_record(got: Any, sent: Any) -> None:
    assert type(got) is type(sent)
    if isinstance(sent, np.ndarray):
        assert_same(got, sent)
    elif isinstance(sent, tuple):
        assert len(got) == len(sent)
        for one, other in zip(got, sent, strict=True):
            _assert_same_record(one, other)
    elif dataclasses.is_dataclass(sent):
        for field in dataclasses.fields(sent):
            _assert_same_record(getattr(got, field.name), getattr(sent, field.name))
    else:
        assert got == sent


def test_what_the_saver_says_of_a_checkpoint_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "m", [], about={"global_step": "7"})
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert checkpoint.about == {"global_step": "7"}
        assert checkpoint.keys() == checkpoint.state_keys() == []


def test_a_checkpoint_that_is_replaced_while_it_is_read_stays_as_it_was(tmp_path: Path) -> None:
    save(tmp_path / "m", [Item("w", np.zeros(3))])
    with open_checkpoint(tmp_path / "m") as former:
        save(tmp_path / "m", [Item("w", np.ones(3))], number=NEXT_SAVE)
        assert not former.read("w").any()
    assert read(tmp_path / "m", "w").all()


def test_a_checkpoint_can_be_moved_and_renamed(tmp_path: Path) -> None:
    save(tmp_path / "m", [Item("w", np.ones(3))])
    (tmp_path / "there").mkdir()
    for path in [*tmp_path.glob("m.*")]:
        path.rename(tmp_path / "there" / f"other-5{path.name[1:]}")
    assert read(tmp_path / "there" / "other-5", "w").all()


def test_memory_of_a_tensor_is_released_as_soon_as_it_is_written(tmp_path: Path) -> None:
    items = [Item("a", np.ones(3)), Item("b", np.ones(3)), Item("s", state=STATES["dense"])]
    written: list[str] = []
    with locate(tmp_path / "m") as prefix:
        write_shard(prefix, SAVE, "ps-0", items, lambda item: written.append(item.key))
    assert written == ["a", "b"]


# Bad input ----------------------------------------------------------------------------------------


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"m\.index' cannot be opened: No such file"):
        open_checkpoint(tmp_path / "m")
    with pytest.raises(NotFoundError, match="none"):
        open_checkpoint(tmp_path / "none" / "m")
    save(tmp_path / "m", [Item("w", np.ones(3)), Item("q", state=STATES["dense"])])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        with pytest.raises(NotFoundError, match=r"key 'v' not found in checkpoint .*'w'"):
            checkpoint.read("v")
        with pytest.raises(NotFoundError, match=r"key 'w' not found.*states are 'q'"):
            checkpoint.state("w")


@pytest.mark.parametrize(
    "region",
    [[], [slice(0, 4)], [slice(-1, 2)], [slice(2, 1)], [slice(0, 2, 2)], [slice(0, 1)] * 2],
)
def test_regions_outside_of_a_tensor_are_refused(region: list[slice], tmp_path: Path) -> None:
    save(tmp_path / "m", [Item("w", np.ones(3))])
    with pytest.raises(InvalidArgumentError, match=r"not a region of 'w', whose shape is \(3,\)"):
        read(tmp_path / "m", "w", region)


@pytest.mark.parametrize("prefix", ["", "a/", "a/..", ".", "a\0"])
def test_invalid_prefixes_are_refused(prefix: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a prefix of a checkpoint"):
        locate(prefix)


def test_items_that_cannot_be_saved_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'x' must be saved as either .* got neither"):
        Item("x")
    with pytest.raises(InvalidArgumentError, match=r"'x' cannot be saved as .*shape is \(3,\)"):
        Item("x", np.ones(3), slice=SaveSliceInfo("x", (4,), (2,), (3,)))
    w = Item("w", np.ones(3))
    half = Item("w", np.ones(1), slice=SaveSliceInfo("w", (2,), (0,), (1,)))
    for items, problem in [
        ([w, w], "'w' cannot be saved twice"),
        ([w, half], "'w' cannot be saved twice"),
        ([half, half], "'w' cannot be saved twice"),
        ([Item("t", np.ones(2, "datetime64[s]"))], "'t' cannot be saved: datetime64"),
        ([Item("k", keys("rbg", (2,)))], "'k' cannot be saved: key<rbg> has no physical form"),
    ]:
        with pytest.raises(InvalidArgumentError, match=problem):
            save(tmp_path / "m", items)
    with pytest.raises(InvalidArgumentError, match="16 hexadecimal digits"):
        save(tmp_path / "m", [w], number="../../x")
    assert not [*tmp_path.iterdir()]
