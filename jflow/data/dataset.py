"""`Dataset`, the public class of input pipelines."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from jflow.base.cards import Card, Carded, CardTable
from jflow.base.values import TensorSpec
from jflow.data import element as elements
from jflow.data import sources
from jflow.data import stage as stages
from jflow.data.element import UserCall, as_element, name_of
from jflow.data.engine import grain
from jflow.data.files import Path
from jflow.data.iterator import DatasetIterator, PositionStore
from jflow.data.rows import Numbers
from jflow.data.stage import Build, Epochs, Stage
from jflow.data.stream import Cursor, Interleaved, Stream
from jflow.errors import InvalidArgumentError


class Dataset(Carded):
    """A lazy sequence of elements, defined by a source and transforms.

    An element is a pytree of NumPy arrays and scalars, str and bytes. Datasets are immutable: each
    method returns a new one. Sources are the class methods `from_…` and `range`.

    Attributes:
      transforms: a description of each transform; a position saved by a dataset can be restored
        by those with equal transforms.
    """

    def __init__(self, transforms: Sequence[str], build: Build, spec: Callable[[], Any]) -> None:
        self.transforms = tuple(transforms)
        self._build = build
        self._spec = spec

    # Sources.

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset:
        """Makes a dataset of the rows of arrays.

        Args:
          tensors: a pytree of arrays, or lists of numbers, str or bytes, with first axes of one
            length. A tuple of two arrays gives pairs of rows.

        Raises:
          InvalidArgumentError: if an array has no first axis, or the lengths differ.
        """
        return cls(*sources.tensor_slices(tensors))

    @classmethod
    def from_tensors(cls, tensors: Any) -> Dataset:
        """Makes a dataset of one element, the pytree `tensors`."""
        only = as_element(tensors)
        spec = elements.spec_of(only)
        transform = f"from_tensors({spec})"
        return cls([transform], lambda _: grain.MapDataset.source([only]), lambda: spec)

    @classmethod
    def range(cls, *bounds: int) -> Dataset:
        """Makes a dataset of the numbers of Python's `range(*bounds)`, as int64 scalars."""
        numbers = range(*bounds)
        rows = Numbers(numbers)
        spec = TensorSpec((), "int64")
        return cls([repr(numbers)], lambda _: grain.MapDataset.source(rows), lambda: spec)

    @classmethod
    def from_generator(
        cls, generator: str | Callable[..., Iterable[Any]], args: Sequence[Any] = ()
    ) -> Dataset:
        """Makes a dataset of the values that a generator function yields.

        Its position is a count: to restore it, the generator is started again and values are
        skipped, so it must yield the same values each time.

        Args:
          generator: the function, or a name under which `register_generator` registered it.
          args: its arguments, of JSON types, because they are part of the dataset's transforms.

        Raises:
          NotFoundError: if no generator has the name.
          InvalidArgumentError: if the arguments are not JSON types.
        """
        return cls(*sources.generator(generator, args))

    @classmethod
    def from_iterable(cls, iterable: Iterable[Any]) -> Dataset:
        """Makes a dataset of the values of an iterable, such as the loader of another library.

        Its position is a count: to restore it, the iterable is iterated again and values are
        skipped. A pipeline of Grain keeps the position that it has itself, and a `MapDataset`
        its random access; if its `filter` removes elements, pass its `to_iter_dataset()`.

        Raises:
          InvalidArgumentError: if it is an iterator, which can be iterated only once.
        """
        return cls(*sources.iterable(iterable))

    @classmethod
    def from_files(
        cls,
        files: Path | Sequence[Path],
        kind: str = "text",
        **options: Any,
    ) -> Dataset:
        """Makes a dataset of the records of files, as bytes, one file after another.

        Args:
          files: a list of paths, or a pattern such as "logs/*.txt", whose matches are sorted.
          kind: "text" for lines without line ends, "tfrecord", "fixed", "parquet" for rows as
            serialized Examples, or "array_record", which has random access and can so be shuffled
            in full.
          **options: options of the reader of that kind, such as `record_bytes`.

        Raises:
          NotFoundError: if no file matches the pattern.
          InvalidArgumentError: if there is no such kind.
        """
        return cls(*sources.files(files, kind, options))

    @classmethod
    def from_csv(
        cls,
        files: Path | Sequence[Path],
        *,
        column_names: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        record_defaults: Mapping[str, Any] | Sequence[Any] | None = None,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        skip_header_lines: int = 0,
    ) -> Dataset:
        """Makes a dataset of the rows of CSV files, as dictionaries of scalars by column name.

        Args:
          files: as for `from_files`.
          column_names: names of all columns in order; None to read them from the first line of
            each file.
          columns: names of the columns to read; None for all.
          record_defaults: by column name, or for all columns in order: a dtype, or the value of an
            empty field, which also sets the dtype. Other columns are `bytes`.
          field_delim, use_quote_delim, na_value: as for `jflow.decode_csv`; fields in quotes may
            contain line ends, which are read as "\\n". Empty lines are skipped.
          skip_header_lines: number of lines to skip at the start of each file.

        Raises:
          NotFoundError: if no file matches the pattern.
          InvalidArgumentError: while reading, if there is no such column, or a row cannot be
            parsed; the message names the file, the line and the column.
        """
        options = {
            "column_names": column_names,
            "columns": columns,
            "field_delim": field_delim,
            "use_quote_delim": use_quote_delim,
            "na_value": na_value,
            "skip_header_lines": skip_header_lines,
        }
        return cls(*sources.csv(files, record_defaults or {}, options))

    @classmethod
    def from_parquet(
        cls,
        files: Path | Sequence[Path],
        *,
        columns: Sequence[str] | None = None,
        record_defaults: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Makes a dataset of the rows of Parquet files, as dictionaries by column name.

        Numbers, booleans and dates keep their dtypes, text and binary values are `bytes`, and lists
        of these are arrays. Requires `jflow[data]`.

        Args:
          files: as for `from_files`.
          columns: names of the columns to read; None for all.
          record_defaults: by column name, the value to use for null; without one, null is an error.

        Raises:
          NotFoundError: if no file matches the pattern.
          UnimplementedError: if pyarrow is not installed.
          InvalidArgumentError: while reading, if there is no such column, or a value is null; the
            message names the file, the row and the column.
        """
        options = {"columns": columns, "record_defaults": record_defaults or {}}
        return cls(*sources.parquet(files, options))

    # Transformations of each element.

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> Dataset:
        """Applies a function to each element.

        Args:
          function: takes the element; the items of a tuple as separate arguments.
          num_parallel_calls: number of threads that call it; the order is kept. None calls it in
            the thread that iterates.

        Raises:
          InvalidArgumentError: if `num_parallel_calls` is not positive.
        """
        threads = (
            0 if num_parallel_calls is None else _count("num_parallel_calls", num_parallel_calls, 1)
        )
        call = UserCall(f"map({name_of(function)})", function, as_element)

        def build(epochs: Epochs) -> Stage:
            return stages.mapped(self._build(epochs), call, threads)

        def spec() -> Any:
            # The function may do anything with an axis of unknown length.
            one = elements.spec_of(stages.first_element(build, call.transform))
            return elements.loosened(one, elements.unknown_axes(self.element_spec))

        return Dataset([*self.transforms, call.transform], build, spec)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keeps the elements for which `predicate`, called as by `map`, returns True."""
        call = UserCall(f"filter({name_of(predicate)})", predicate, bool)
        return self._then(call.transform, lambda stage: stages.filtered(stage, call))

    def enumerate(self) -> Dataset:
        """Pairs each element with its number: (int64 from 0, element)."""
        return self._then(
            "enumerate()",
            lambda stage: stages.mapped(stage, lambda n, element: (np.int64(n), element)),
            lambda spec: (TensorSpec((), "int64"), spec),
        )

    # Which elements, and in which order.

    def take(self, count: int) -> Dataset:
        """Keeps the first `count` elements, or all if there are fewer."""
        numbers = slice(_count("count", count, 0))
        return self._then(f"take({count})", lambda stage: stages.sliced(stage, numbers))

    def skip(self, count: int) -> Dataset:
        """Drops the first `count` elements."""
        numbers = slice(_count("count", count, 0), None)
        return self._then(f"skip({count})", lambda stage: stages.sliced(stage, numbers))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keeps every `num_shards`-th element from number `index` on.

        Shards with different indices are disjoint and together the whole dataset.

        Raises:
          InvalidArgumentError: if the index is not below the number of shards.
        """
        _count("num_shards", num_shards, 1)
        if _count("index", index, 0) >= num_shards:
            raise InvalidArgumentError(
                f"shard expects an index below num_shards={num_shards}, got {index}"
            )
        numbers = slice(index, None, num_shards)
        return self._then(
            f"shard({num_shards}, {index})", lambda stage: stages.sliced(stage, numbers)
        )

    def shuffle(
        self,
        buffer_size: int | None = None,
        *,
        seed: int = 0,
        reshuffle_each_iteration: bool = True,
    ) -> Dataset:
        """Shuffles the elements.

        Args:
          buffer_size: for a stream, the number of elements in each window that is shuffled. A
            finite dataset with random access is shuffled in full and needs none.
          seed: seed of the order, which is the same each time the dataset is iterated.
          reshuffle_each_iteration: whether each epoch of a `repeat` has an order of its own.

        Raises:
          InvalidArgumentError: if the dataset is a stream and there is no `buffer_size`.
        """
        if buffer_size is not None:
            _count("buffer_size", buffer_size, 1)
        _count("seed", seed, 0)

        def build(epochs: Epochs) -> Stage:
            stage = self._build(epochs)
            return stages.shuffled(stage, epochs, buffer_size, seed, not reshuffle_each_iteration)

        build(())
        transform = f"shuffle({buffer_size}, seed={seed}, reshuffle={reshuffle_each_iteration})"
        return Dataset([*self.transforms, transform], build, lambda: self.element_spec)

    def repeat(self, count: int | None = None) -> Dataset:
        """Repeats the dataset `count` times, or endlessly if it is None."""
        if count is not None:
            _count("count", count, 0)
        if count == 0:
            return self.take(0)

        def build(epochs: Epochs) -> Stage:
            return stages.repeated(self._build, epochs, count)

        return Dataset([*self.transforms, f"repeat({count})"], build, lambda: self.element_spec)

    # Groups of elements.

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stacks elements along a new first axis; strings become object arrays.

        Args:
          batch_size: number of elements in a batch.
          drop_remainder: whether to drop a last batch that is smaller.
        """
        size = _count("batch_size", batch_size, 1)
        return self._then(
            f"batch({size}, drop_remainder={drop_remainder})",
            lambda stage: stages.batched(stage, size, drop_remainder, elements.stack),
            lambda spec: elements.batched_spec(spec, size if drop_remainder else None),
        )

    def padded_batch(
        self, batch_size: int, *, padding_value: Any = 0, drop_remainder: bool = False
    ) -> Dataset:
        """Pads the arrays of a batch at the end to the longest, then stacks them like `batch`.

        Args:
          batch_size, drop_remainder: as for `batch`.
          padding_value: the value to pad with.
        """
        size = _count("batch_size", batch_size, 1)
        collate = partial(elements.pad_and_stack, value=padding_value)
        return self._then(
            f"padded_batch({size}, {padding_value!r}, drop_remainder={drop_remainder})",
            lambda stage: stages.batched(stage, size, drop_remainder, collate),
            lambda spec: elements.batched_spec(spec, size if drop_remainder else None, padded=True),
        )

    def unbatch(self) -> Dataset:
        """Splits batches into elements along the first axis."""
        return self._then("unbatch()", stages.unbatched, elements.unbatched_spec)

    # Several datasets.

    @classmethod
    def zip(cls, *datasets: Dataset) -> Dataset:
        """Combines the elements of datasets into tuples, until the shortest dataset ends.

        Raises:
          InvalidArgumentError: if there is no dataset.
        """
        if not datasets:
            raise InvalidArgumentError("zip expects at least one dataset, got none")
        return cls(
            _joined_transforms("zip", datasets),
            lambda epochs: stages.zipped([dataset._build(epochs) for dataset in datasets]),
            lambda: tuple(dataset.element_spec for dataset in datasets),
        )

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Appends the elements of another dataset."""
        both = (self, dataset)
        return Dataset(
            _joined_transforms("concatenate", both),
            lambda epochs: stages.concatenated([one._build(epochs) for one in both]),
            lambda: elements.common_spec([one.element_spec for one in both]),
        )

    def interleave(
        self, function: Callable[..., Dataset], cycle_length: int = 8, block_length: int = 1
    ) -> Dataset:
        """Makes a dataset from each element and interleaves the elements of these datasets.

        Args:
          function: returns a dataset for an element, such as a file name; called as by `map`.
          cycle_length: number of datasets that are read round-robin; the next one replaces one
            that ends.
          block_length: number of elements to read from a dataset before the next one is read.
        """
        lanes = _count("cycle_length", cycle_length, 1)
        block = _count("block_length", block_length, 1)
        call = UserCall(f"interleave({name_of(function)})", function, _as_dataset)

        def build(epochs: Epochs) -> Stage:
            def open_lane(number: int, element: Any) -> Cursor:
                inner: Dataset = call(number, element)
                return iter(stages.streamed(inner._build(epochs)))

            start = partial(Interleaved, open_lane=open_lane, lanes=lanes, block=block)
            return Stream(start, stages.streamed(self._build(epochs)))

        def spec() -> Any:
            inner: Dataset = call(0, stages.first_element(self._build, call.transform))
            return inner.element_spec

        transform = f"interleave({name_of(function)}, {lanes}, {block})"
        return Dataset([*self.transforms, transform], build, spec)

    # Reading.

    def prefetch(self, count: int) -> Dataset:
        """Prefetches up to `count` elements in a thread; saved positions do not depend on it."""
        size = _count("count", count, 1)
        return Dataset(
            self.transforms,
            lambda epochs: stages.prefetched(self._build(epochs), size),
            lambda: self.element_spec,
        )

    @cached_property
    def element_spec(self) -> Any:
        """The shapes and dtypes of the elements, as a pytree of `TensorSpec`.

        A length that may differ between elements is None. If user code makes the elements, the
        first element is made and inspected.

        Raises:
          OutOfRangeError: if that is required and the dataset is empty.
        """
        return self._spec()

    def iterator(
        self, position: PositionStore | None = None, *, save_every: int = 1000
    ) -> DatasetIterator:
        """Starts a pass over the elements, or resumes one.

        Args:
          position: storage from which the position is loaded and to which it is saved: after every
            `save_every` elements, when the next one is requested, and when the iterator is closed;
            at the end of a `with` block only if there was no error. A request for an element
            confirms that those before it were processed, so only one thread should make it.
          save_every: maximum number of elements that are repeated if the process dies.

        Raises:
          FailedPreconditionError: if the saved position belongs to another pipeline.
        """
        every = _count("save_every", save_every, 1)
        return DatasetIterator(self.transforms, self._start, position, every)

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def __repr__(self) -> str:
        return f"<jflow.data.Dataset {' | '.join(self.transforms)}>"

    def _card(self) -> Card:
        rows = [(str(number), text) for number, text in enumerate(self.transforms, 1)]
        spec = self.__dict__.get("element_spec")  # known once it was asked for; that may read
        table = CardTable("steps", ("number", "transformation"), rows, is_open=True)
        return Card("data.Dataset", "", (("elements", spec),), (table,))

    def _start(self) -> Cursor:
        return iter(stages.streamed(self._build(())))

    def _then(
        self,
        words: str,
        transform: Callable[[Stage], Stage],
        spec: Callable[[Any], Any] = lambda spec: spec,
    ) -> Dataset:
        """Returns the dataset with another transform appended."""
        return Dataset(
            [*self.transforms, words],
            lambda epochs: transform(self._build(epochs)),
            lambda: spec(self.element_spec),
        )


def _joined_transforms(transform: str, datasets: Sequence[Dataset]) -> list[str]:
    transforms = [
        f"{transform}[{number}]: {line}"
        for number, dataset in enumerate(datasets)
        for line in dataset.transforms
    ]
    return [*transforms, f"{transform}({len(datasets)})"]


def _as_dataset(value: Any) -> Dataset:
    if not isinstance(value, Dataset):
        raise InvalidArgumentError(
            f"the function of interleave must return a Dataset, got {type(value).__name__}"
        )
    return value


def _count(name: str, value: Any, least: int) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < least:
        raise InvalidArgumentError(f"{name} must be an integer of {least} or more, got {value!r}")
    return number
