"""`Dataset`: what users build pipelines of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from jflow.data import element as elements
from jflow.data import sources
from jflow.data import stage as stages
from jflow.data.element import as_element
from jflow.data.engine import grain
from jflow.data.files import Path
from jflow.data.function import UserCall, name_of
from jflow.data.interleave import Interleaved
from jflow.data.iterator import DatasetIterator
from jflow.data.position import PositionStore
from jflow.data.rows import Numbers
from jflow.data.stage import Build, Epochs, Stage
from jflow.data.stream import Cursor, Stream
from jflow.errors import InvalidArgumentError
from jflow.values import TensorSpec


class Dataset:
    """A sequence of elements, described by its transforms; nothing is read until it is iterated.

    An element is a pytree of NumPy arrays and scalars, str and bytes. Datasets do not change: each
    method returns a new one. Made by the class methods whose names begin with `from_`, and `range`.

    Attributes:
      transforms: the pipeline in words, a line for each transform; two datasets with equal
        transforms can restore each other's positions.
    """

    def __init__(self, transforms: Sequence[str], build: Build, spec: Callable[[], Any]) -> None:
        self.transforms = tuple(transforms)
        self._build = build
        self._spec = spec

    # Sources.

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset:
        """The rows of arrays.

        Args:
          tensors: a pytree of arrays, or lists of numbers, str or bytes, with first axes of one
            length. A tuple of two arrays gives pairs of rows.

        Raises:
          InvalidArgumentError: an array has no first axis, or their lengths differ.
        """
        return cls(*sources.tensor_slices(tensors))

    @classmethod
    def from_tensors(cls, tensors: Any) -> Dataset:
        """One element, the pytree itself."""
        only = as_element(tensors)
        spec = elements.spec_of(only)
        transform = f"from_tensors({spec})"
        return cls([transform], lambda _: grain.MapDataset.source([only]), lambda: spec)

    @classmethod
    def range(cls, *bounds: int) -> Dataset:
        """The numbers of Python's `range` with the same arguments, as int64."""
        numbers = range(*bounds)
        rows = Numbers(numbers)
        spec = TensorSpec((), "int64")
        return cls([repr(numbers)], lambda _: grain.MapDataset.source(rows), lambda: spec)

    @classmethod
    def from_generator(
        cls, generator: str | Callable[..., Iterable[Any]], args: Sequence[Any] = ()
    ) -> Dataset:
        """The values that a generator function yields.

        A position in it is a count: to continue, the generator is started again and its first
        values are skipped, so it must yield the same ones each time.

        Args:
          generator: the function, or the name it was registered under with `register_generator`.
          args: its arguments, fit for JSON, as they tell one dataset from another.

        Raises:
          NotFoundError: no generator has the name.
          InvalidArgumentError: the arguments are not fit for JSON.
        """
        return cls(*sources.generator(generator, args))

    @classmethod
    def from_iterable(cls, iterable: Iterable[Any]) -> Dataset:
        """The values of any Python iterable that can be iterated again, such as another library's
        loader.

        A position in it is a count: to continue, the iterable is read again from its start, and
        what was given before is skipped.

        Raises:
          InvalidArgumentError: it is an iterator, which can be read only once.
        """
        return cls(*sources.iterable(iterable))

    @classmethod
    def from_files(
        cls,
        files: Path | Sequence[Path],
        kind: str = "text",
        **options: Any,
    ) -> Dataset:
        """The records of files, one file after the other, as bytes.

        Args:
          files: a list, kept in its order, or a pattern such as "logs/*.txt", whose matches are
            sorted.
          kind: "text" for lines without their ends, "tfrecord", "fixed", "parquet" for rows as
            serialized Examples, or "array_record", whose records can be had by number and so
            shuffled in full.
          **options: those of the kind's reader in `jflow.records`, such as `record_bytes`.

        Raises:
          NotFoundError: the pattern matches nothing.
          InvalidArgumentError: there is no such kind.
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
        """The rows of CSV files, each a dictionary of scalars by the names of the columns.

        Args:
          files: as for `from_files`.
          column_names: of all columns in their order; None takes them from each file's first line.
          columns: names of those to read, where it is not all.
          record_defaults: as for `jflow.decode_csv`, by the names of columns or in their order: a
            dtype, or a value that stands for a missing one and says the dtype. Columns that are not
            named are `bytes`.
          field_delim, use_quote_delim, na_value: as for `jflow.decode_csv`; fields in quotes may
            hold ends of lines, which are read as "\\n". Empty lines are skipped.
          skip_header_lines: lines at the start of each file that are not read.

        Raises:
          NotFoundError: the pattern matches nothing.
          InvalidArgumentError: while reading, there is no such column, or a row cannot be read; the
            message names the file, the line and the column.
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
        """The rows of Parquet files, each a dictionary of scalars by the names of the columns.

        Numbers, booleans and dates keep their dtypes, text and binary values are `bytes`, and lists
        of these are arrays. Needs `jflow[data]`.

        Args:
          files: as for `from_files`.
          columns: names of those to read, where it is not all.
          record_defaults: by the names of columns, what stands for null; elsewhere it is an error.

        Raises:
          NotFoundError: the pattern matches nothing.
          UnimplementedError: pyarrow is not installed.
          InvalidArgumentError: while reading, there is no such column, or a value is null; the
            message names the file, the row and the column.
        """
        options = {"columns": columns, "record_defaults": record_defaults or {}}
        return cls(*sources.parquet(files, options))

    # Transformations of each element.

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> Dataset:
        """A function of each element.

        Args:
          function: gets the element; of a tuple, its parts as arguments of their own.
          num_parallel_calls: how many threads call it at once; the order stays. None calls it in
            the thread that iterates.

        Raises:
          InvalidArgumentError: `num_parallel_calls` is not positive.
        """
        threads = (
            0 if num_parallel_calls is None else _count("num_parallel_calls", num_parallel_calls, 1)
        )
        call = UserCall(f"map({name_of(function)})", function, as_element)

        def build(epochs: Epochs) -> Stage:
            return stages.mapped(self._build(epochs), call, threads)

        def spec() -> Any:
            # What the function makes of an axis without a fixed length is not known.
            one = elements.spec_of(stages.first_element(build, call.transform))
            return elements.loosened(one, elements.unknown_axes(self.element_spec))

        return Dataset([*self.transforms, call.transform], build, spec)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which a function, called as by `map`, is true."""
        call = UserCall(f"filter({name_of(predicate)})", predicate, bool)
        return self._then(call.transform, lambda stage: stages.filtered(stage, call))

    def enumerate(self) -> Dataset:
        """Pairs of an element's number, int64 from 0, and the element."""
        return self._then(
            "enumerate()",
            lambda stage: stages.mapped(stage, lambda n, element: (np.int64(n), element)),
            lambda spec: (TensorSpec((), "int64"), spec),
        )

    # Which elements, and in which order.

    def take(self, count: int) -> Dataset:
        """The first `count` elements, or all where there are fewer."""
        wanted = slice(_count("count", count, 0))
        return self._then(f"take({count})", lambda stage: stages.sliced(stage, wanted))

    def skip(self, count: int) -> Dataset:
        """All but the first `count` elements."""
        wanted = slice(_count("count", count, 0), None)
        return self._then(f"skip({count})", lambda stage: stages.sliced(stage, wanted))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every `num_shards`-th element from number `index` on: disjoint for different indices.

        Raises:
          InvalidArgumentError: the index is not below the number of shards.
        """
        _count("num_shards", num_shards, 1)
        if _count("index", index, 0) >= num_shards:
            raise InvalidArgumentError(
                f"shard expects an index below num_shards={num_shards}, got {index}"
            )
        wanted = slice(index, None, num_shards)
        return self._then(
            f"shard({num_shards}, {index})", lambda stage: stages.sliced(stage, wanted)
        )

    def shuffle(
        self,
        buffer_size: int | None = None,
        *,
        seed: int = 0,
        reshuffle_each_iteration: bool = True,
    ) -> Dataset:
        """Another order, which the seed decides.

        Args:
          buffer_size: how many elements of a stream are read and given in another order before the
            next ones are. Where elements can be had by number all are shuffled, without a buffer,
            and this may be left out.
          seed: the same seed gives the same order each time a dataset is iterated.
          reshuffle_each_iteration: whether each epoch of a `repeat` has an order of its own.

        Raises:
          InvalidArgumentError: the elements come as a stream and there is no `buffer_size`.
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
        """The elements `count` times over, or for ever."""
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
          batch_size: how many.
          drop_remainder: whether to leave out a last batch that is smaller.
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
        """As `batch`, of arrays that are first padded at the end to the longest of the batch."""
        size = _count("batch_size", batch_size, 1)
        collate = partial(elements.pad_and_stack, value=padding_value)
        return self._then(
            f"padded_batch({size}, {padding_value!r}, drop_remainder={drop_remainder})",
            lambda stage: stages.batched(stage, size, drop_remainder, collate),
            lambda spec: elements.batched_spec(spec, size if drop_remainder else None, padded=True),
        )

    def unbatch(self) -> Dataset:
        """The elements of batches, one for each index of the first axis."""
        return self._then("unbatch()", stages.unbatched, elements.unbatched_spec)

    # Several datasets.

    @classmethod
    def zip(cls, *datasets: Dataset) -> Dataset:
        """Tuples of an element of each dataset, until the shortest ends.

        Raises:
          InvalidArgumentError: no dataset is given.
        """
        if not datasets:
            raise InvalidArgumentError("zip expects one dataset or more, got none")
        return cls(
            _joined("zip", datasets),
            lambda epochs: stages.zipped([dataset._build(epochs) for dataset in datasets]),
            lambda: tuple(dataset.element_spec for dataset in datasets),
        )

    def concatenate(self, dataset: Dataset) -> Dataset:
        """The elements of another dataset after those of this one."""
        both = (self, dataset)
        return Dataset(
            _joined("concatenate", both),
            lambda epochs: stages.concatenated([one._build(epochs) for one in both]),
            lambda: elements.common_spec([one.element_spec for one in both]),
        )

    def interleave(
        self, function: Callable[..., Dataset], cycle_length: int = 8, block_length: int = 1
    ) -> Dataset:
        """Makes a dataset of each element, and reads several of them in turn.

        Args:
          function: makes a dataset of an element, called as by `map`, such as one of a file's name.
          cycle_length: how many datasets are read in turn; one that ends gives way to the next.
          block_length: how many elements of a dataset are taken before the next has its turn.
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
        """Has a thread prepare up to `count` elements ahead; no part of a position."""
        size = _count("count", count, 1)
        return Dataset(
            self.transforms,
            lambda epochs: stages.prefetched(self._build(epochs), size),
            lambda: self.element_spec,
        )

    @cached_property
    def element_spec(self) -> Any:
        """Shapes and dtypes of the elements, as a pytree of `TensorSpec`.

        A length is None where it may differ from element to element. Where user's code makes the
        elements, the first one is made to look at it.

        Raises:
          OutOfRangeError: that would be needed, and there is no element.
        """
        return self._spec()

    def iterator(
        self, position: PositionStore | None = None, *, save_every: int = 1000
    ) -> DatasetIterator:
        """Begins a pass over the elements, or continues one.

        Args:
          position: where the iterator finds its position and keeps it: after every `save_every`
            elements, once the next one is asked for, and when it is closed; at the end of a `with`
            block only if there was no error. Asking for an element means to be done with those
            before it, so one thread should do so.
          save_every: how many elements are given again at most if the process dies.

        Raises:
          FailedPreconditionError: the kept position is of another pipeline.
        """
        every = _count("save_every", save_every, 1)
        return DatasetIterator(self.transforms, self._start, position, every)

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def __repr__(self) -> str:
        return f"<Dataset {' | '.join(self.transforms)}>"

    def _start(self) -> Cursor:
        return iter(stages.streamed(self._build(())))

    def _then(
        self,
        words: str,
        transform: Callable[[Stage], Stage],
        spec: Callable[[Any], Any] = lambda spec: spec,
    ) -> Dataset:
        """This dataset with one more transform."""
        return Dataset(
            [*self.transforms, words],
            lambda epochs: transform(self._build(epochs)),
            lambda: spec(self.element_spec),
        )


def _joined(transform: str, datasets: Sequence[Dataset]) -> list[str]:
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
