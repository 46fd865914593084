"""Pipelines compared with plain lists, and the guarantees of each transform."""

from __future__ import annotations

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow import errors
from jflow.data import Dataset, TensorSpec
from tests.data.chains import as_lists, chains, modelled_transforms


@given(chains(modelled_transforms()))
def test_a_chain_gives_what_the_same_chain_gives_on_a_list(chain) -> None:
    with chain.build().iterator() as iterator:
        assert as_lists(iterator) == chain.model()


@given(chains(modelled_transforms()), st.integers(1, 4), st.booleans())
def test_batches_are_the_elements_in_groups(chain, size, drop) -> None:
    numbers = chain.model()
    groups = [numbers[i : i + size] for i in range(0, len(numbers), size)]
    if drop and groups and len(groups[-1]) < size:
        groups.pop()
    with chain.build().batch(size, drop_remainder=drop).iterator() as iterator:
        assert as_lists(iterator) == groups


@given(chains(modelled_transforms()), st.integers(1, 5))
def test_shards_are_disjoint_and_cover_all(chain, shards) -> None:
    numbered = chain.build().enumerate()
    parts = [list(numbered.shard(shards, index)) for index in range(shards)]
    found = sorted((int(n), int(x)) for part in parts for n, x in part)
    assert found == list(enumerate(chain.model()))


@given(chains(modelled_transforms()), st.integers(1, 6), st.integers(0, 5))
def test_a_shuffle_is_a_permutation_that_the_seed_decides(chain, buffer, seed) -> None:
    shuffled = chain.build().shuffle(buffer, seed=seed)
    once = as_lists(shuffled)
    assert sorted(once) == sorted(chain.model())
    assert as_lists(chain.build().shuffle(buffer, seed=seed)) == once


@pytest.mark.parametrize("stream", [False, True], ids=["by number", "as a stream"])
class TestShuffle:
    def orders(self, stream: bool, seed: int = 1, each: bool = True) -> list[list[int]]:
        source = Dataset.range(40)
        if stream:
            source = source.filter(lambda x: True)
        shuffled = source.shuffle(40, seed=seed, reshuffle_each_iteration=each)
        three = as_lists(shuffled.repeat(3))
        return [three[:40], three[40:80], three[80:]]

    def test_each_epoch_has_its_own_order(self, stream) -> None:
        orders = self.orders(stream)
        assert all(sorted(order) == list(range(40)) for order in orders)
        assert len({tuple(order) for order in [*orders, range(40)]}) == 4

    def test_each_epoch_has_the_same_order_if_asked_for(self, stream) -> None:
        first, second, third = self.orders(stream, each=False)
        assert first == second == third != list(range(40))

    def test_seeds_give_different_orders(self, stream) -> None:
        epochs = [*self.orders(stream, seed=1), *self.orders(stream, seed=2)]
        assert len({tuple(order) for order in epochs}) == 6


def test_many_rows_are_shuffled_in_full() -> None:
    many = 2**16 + 1
    shuffled = as_lists(Dataset.range(many).shuffle(seed=3))
    assert sorted(shuffled) == list(range(many))
    late = [number for number, x in enumerate(shuffled) if x < many // 2]
    assert abs(np.mean(late) / many - 0.5) < 0.01


def test_a_stream_is_not_shuffled_in_full() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="buffer_size"):
        Dataset.range(4).filter(bool).shuffle()


def test_an_endless_epoch_without_elements_ends() -> None:
    assert list(Dataset.range(9).filter(lambda x: x > 9).repeat()) == []


@pytest.mark.parametrize("size", [1, 3])
def test_the_end_of_an_endless_dataset_is_out_of_reach(size) -> None:
    endless = Dataset.range(2).repeat().batch(size).unbatch()
    once = Dataset.range(2).repeat().repeat(5).concatenate(Dataset.range(9).repeat())
    both = Dataset.zip(endless, once.take(3).concatenate(once))
    assert as_lists(both.take(5)) == [[0, 0], [1, 1], [0, 0], [1, 0], [0, 1]]
    assert as_lists(endless.concatenate(endless).take(2)) == [0, 1]
    twos = Dataset.range(2).repeat()
    assert as_lists(twos.concatenate(twos).take(3)) == [0, 1, 0]
    assert as_lists(once.shard(4, 1).take(3).repeat(2)) == [1, 1, 1, 1, 1, 1]


def test_tuples_are_spread_over_arguments_and_other_trees_are_not() -> None:
    pairs = Dataset.from_tensor_slices((np.arange(3), np.arange(3) * 10))
    assert as_lists(pairs.map(lambda x, y: x + y)) == [0, 11, 22]
    named = Dataset.from_tensor_slices({"a": np.arange(3)}).map(lambda tree: tree["a"] + 1)
    assert as_lists(named) == [1, 2, 3]


def test_interleave_takes_blocks_in_turn() -> None:
    repeated = Dataset.range(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    expected = [1] * 4 + [2] * 4 + [1] * 2 + [2] * 2 + [3] * 4 + [4] * 4 + [3] * 2 + [4] * 2
    assert as_lists(repeated) == [*expected, *[5] * 6]


def test_rows_cannot_be_written_through_a_function() -> None:
    data = np.zeros((2, 3))

    def spoil(row):
        row += 1
        return row

    with pytest.raises(ValueError, match="read-only"):
        list(Dataset.from_tensor_slices(data).map(spoil))
    assert not data.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.batch(0), "batch_size must be an integer of 1 or more, got 0"),
        (lambda d: d.batch(True), "batch_size"),
        (lambda d: d.take(-1), "count must be an integer of 0 or more, got -1"),
        (lambda d: d.skip(1.5), "count"),
        (lambda d: d.repeat(-1), "count"),
        (lambda d: d.prefetch(0), "count"),
        (lambda d: d.shard(2, 2), "index below num_shards=2, got 2"),
        (lambda d: d.shuffle(seed=-1), "seed"),
        (lambda d: d.map(abs, num_parallel_calls=0), "num_parallel_calls"),
        (lambda d: d.interleave(abs, cycle_length=0), "cycle_length"),
        (lambda d: d.iterator(save_every=0), "save_every"),
        (lambda d: Dataset.zip(), "at least one dataset"),
        (lambda d: Dataset.from_tensor_slices((np.zeros(2), np.zeros(3))), "one length"),
        (lambda d: Dataset.from_tensor_slices(3), "first axes"),
        (lambda d: Dataset.from_iterable(iter([1])), "from_generator"),
        (lambda d: Dataset.from_generator(range, [object()]), "must be JSON types"),
        (lambda d: Dataset.from_files("x", kind="csv"), r"'csv'; for rows .* Dataset\.from_csv"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(make, message) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        make(Dataset.range(4))


class TestElementSpec:
    def test_a_batch_has_no_fixed_length_unless_the_remainder_is_dropped(self) -> None:
        rows = Dataset.from_tensor_slices(
            {"image": np.zeros((7, 2, 3), np.float32), "name": ["a"] * 7}
        )
        assert rows.element_spec == {
            "image": TensorSpec((2, 3), "float32"),
            "name": TensorSpec((), "string"),
        }
        assert rows.batch(2).element_spec == {
            "image": TensorSpec((None, 2, 3), "float32"),
            "name": TensorSpec((None,), "string"),
        }
        dropped = rows.batch(2, drop_remainder=True)
        assert dropped.element_spec == {
            "image": TensorSpec((2, 2, 3), "float32"),
            "name": TensorSpec((2,), "string"),
        }
        assert dropped.unbatch().element_spec == rows.shuffle().repeat().take(3).element_spec

    def test_a_function_is_asked_what_it_makes(self) -> None:
        rows = Dataset.from_tensor_slices(np.zeros((7, 2, 3), np.float32))
        assert rows.map(lambda x: (x.sum(0), 1)).element_spec == (
            TensorSpec((3,), "float32"),
            TensorSpec((), "int64"),
        )
        assert rows.batch(4).map(lambda x: x.sum(1)).element_spec == TensorSpec(
            (None, 3), "float32"
        )
        with pytest.raises(errors.OutOfRangeError, match="no element"):
            _ = rows.take(0).map(abs).element_spec

    def test_several_datasets(self) -> None:
        numbers = Dataset.range(3)
        vectors = Dataset.from_tensor_slices(np.zeros((3, 2)))
        assert Dataset.zip(numbers, vectors.enumerate()).element_spec == (
            (TensorSpec((), "int64"), (TensorSpec((), "int64"), TensorSpec((2,), "float64")))
        )
        longer = Dataset.from_tensor_slices(np.zeros((3, 5)))
        both = vectors.concatenate(longer)
        assert both.element_spec == TensorSpec((None,), np.dtype(np.float64))
        assert numbers.interleave(lambda _: vectors).element_spec == TensorSpec((2,), "float64")
        assert both.padded_batch(2).element_spec == TensorSpec((None, None), "float64")


def test_a_pipeline_of_grain_keeps_its_random_access_and_its_position() -> None:
    rows = grain.MapDataset.range(20).shuffle(seed=1).map(lambda x: (x, 2.0 * x))
    assert list(Dataset.from_iterable(rows)) == [*rows]
    assert list(Dataset.from_iterable(rows.repeat(2)).skip(15).take(10)) == [
        rows.repeat(2)[number] for number in range(15, 25)
    ]
    assert sorted(x for x, _ in Dataset.from_iterable(rows).shuffle(seed=3)) == list(range(20))
    read: list[int] = []

    def noted(x: int) -> int:
        read.append(x)
        return x

    stream = Dataset.from_iterable(grain.MapDataset.range(20).map(noted).to_iter_dataset())
    assert list(stream.shard(2, 1)) == list(range(1, 20, 2))
    with stream.iterator() as iterator:
        assert [next(iterator) for _ in range(12)] == list(range(12))
        position = iterator.get_state()
    read.clear()
    with stream.iterator() as iterator:
        iterator.set_state(position)
        assert next(iterator) == 12
    assert 0 not in read
    removed = grain.MapDataset.range(4).filter(lambda x: x > 1)
    assert list(Dataset.from_iterable(removed.to_iter_dataset())) == [2, 3]
    with pytest.raises(errors.InvalidArgumentError, match="got None"):
        list(Dataset.from_iterable(removed))
