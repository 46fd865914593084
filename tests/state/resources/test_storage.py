"""Storage in tables that grow and shrink, against lists."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.values import TensorSpec
from jflow.errors import ResourceExhaustedError
from jflow.state.resources.queue import Dequeue, DequeueMany, Enqueue, EnqueueMany, Queue, QueueSpec
from jflow.state.resources.queue.storage import (
    FifoStorage,
    PriorityStorage,
    ShuffleStorage,
    Storage,
)
from jflow.state.resources.queue.table import Table

COMPONENTS = (
    TensorSpec((), "int64"),
    TensorSpec((2,), "string"),
    TensorSpec((None,), "int32"),
    TensorSpec(None, "string"),
)
MB = 1_000_000


def batches_of(numbers: list[int]) -> tuple[np.ndarray[Any, Any], ...]:
    """Stacked elements that are told apart by a number."""
    texts = np.array([b"%d" % number for number in numbers], object)
    return (
        np.array(numbers, np.int64),
        np.stack([texts, texts], axis=1),
        np.array(numbers, np.int32)[:, None],
        texts,
    )


def numbers_of(batches: tuple[np.ndarray[Any, Any], ...]) -> list[int]:
    """Which elements these are; their components must belong together."""
    numbers: list[int] = batches[0].tolist()
    for batch, expected in zip(batches, batches_of(numbers), strict=True):
        np.testing.assert_array_equal(batch, expected)
    return numbers


def make(kind: type[Storage], capacity: int) -> tuple[Storage, Table]:
    table = Table(COMPONENTS, capacity, None, kept_bytes=1)
    if kind is ShuffleStorage:
        return ShuffleStorage(table, np.random.default_rng(0)), table
    return kind(table), table


@pytest.mark.parametrize("kind", [FifoStorage, ShuffleStorage, PriorityStorage])
@given(
    capacity=st.sampled_from([-1, 0, 1, 7, 20]),
    moves=st.lists(st.tuples(st.sampled_from("pPtTb"), st.integers(1, 40)), max_size=40),
)
def test_elements_keep_their_order_while_the_table_changes_its_size(
    kind: type[Storage], capacity: int, moves: list[tuple[str, int]]
) -> None:
    elements, table = make(kind, capacity)
    inside: list[int] = []
    n_made = 0
    for move, wanted in moves:
        if move in "pP":
            count = 1 if move == "p" else wanted
            new = [*range(n_made, n_made + count)]
            n_made += count
            if move == "p":
                elements.put(tuple(batch[0, ...] for batch in batches_of(new)))
            else:
                elements.put_many(table.rows(batches_of(new)))
            inside += new
        elif inside:
            count = 1 if move == "t" else min(wanted, len(inside))
            block = table.row(elements.take()) if move == "t" else elements.take_many(count)
            numbers = numbers_of(table.batches([block]))
            if kind is ShuffleStorage:
                assert len({*numbers}) == count
                assert {*numbers} <= {*inside}
            else:
                assert numbers == sorted(inside)[:count]
            if move == "b":
                elements.put_back(block)
            else:
                inside = [number for number in inside if number not in numbers]
        assert elements.size == len(inside)
        assert elements.size <= table.n_rows <= 4 * elements.size + 4
    if inside:
        assert sorted(numbers_of(table.batches([elements.take_many(len(inside))]))) == inside


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue"])
def test_a_queue_takes_the_memory_of_its_elements_and_gives_it_back(kind: str) -> None:
    spec = QueueSpec(kind, -1, 20 * MB, (TensorSpec((1000,), "float32"),))
    queue = Queue(spec, "q", np.random.default_rng(0))
    batch = np.zeros((100, 1000), np.float32)
    tracemalloc.start()
    try:
        completed = [queue.submit(EnqueueMany((batch,))) for _ in range(51)]
        assert completed[-1] == []
        assert queue.size_bytes == 20 * MB
        assert tracemalloc.get_traced_memory()[0] < 22 * MB
        for _ in range(50):
            queue.submit(DequeueMany(100))
        for _ in range(100):
            queue.submit(Dequeue())
        assert queue.size == 0
        assert tracemalloc.get_traced_memory()[0] < 5 * MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue"])
def test_an_element_for_which_there_is_no_memory_is_refused_and_loses_nothing(kind: str) -> None:
    huge = 1 << 50
    queue = Queue(
        QueueSpec(kind, 10, components=(TensorSpec((huge,), "int8"),)),
        "q",
        np.random.default_rng(0),
    )
    array = np.broadcast_to(np.int8(1), (huge,))
    for attempt in (Enqueue((array,)), EnqueueMany((array[None],))):
        assert queue.submit(attempt) == [attempt]
        with pytest.raises(ResourceExhaustedError, match=r"not enough memory for .* of .*'q'"):
            attempt.result()
        assert (queue.size, queue.size_bytes) == (0, 0)


@pytest.mark.parametrize("kind", [FifoStorage, ShuffleStorage, PriorityStorage])
@pytest.mark.parametrize("count", [1, 3])
def test_elements_that_cannot_be_copied_are_not_in_the_storage(
    kind: type[Storage], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError("no memory")

    elements, table = make(kind, -1)
    elements.put_many(table.rows(batches_of([*range(4)])))
    taken = elements.take_many(2)[0].tolist()
    new = batches_of([*range(4, 4 + count)])
    block = table.rows(new)
    with monkeypatch.context() as patch:
        patch.setattr(Table, "put", refuse)
        patch.setattr(Table, "put_many", refuse)
        with pytest.raises(MemoryError):
            elements.put_many(block) if count > 1 else elements.put([b[0, ...] for b in new])
    assert elements.size == 2
    elements.put_many(table.rows(new))
    rest = elements.take_many(2 + count)[0].tolist()
    assert sorted([*taken, *rest]) == [*range(4 + count)]
