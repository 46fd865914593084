"""Sources of datasets; each returns its transform, its builder and the spec of its elements."""

from __future__ import annotations

import collections.abc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np

from jflow.base.values import type_name
from jflow.client.ops import default_of_column
from jflow.compiler.graph.stack import EagerDecoding
from jflow.data import element as elements
from jflow.data import files as record_files
from jflow.data.element import ElementNote, as_element, name_of
from jflow.data.engine import grain
from jflow.data.files import Path
from jflow.data.rows import RowSlices
from jflow.data.stage import Build, Epochs, Stage, first_element, mapped, streamed
from jflow.data.stream import State, Stream, Unbatched
from jflow.errors import AlreadyExistsError, DataLossError, InvalidArgumentError, NotFoundError
from jflow.state.records import needed

Generator = TypeVar("Generator", bound=Callable[..., Iterable[Any]])

_generators: dict[str, Callable[..., Iterable[Any]]] = {}


def register_generator(name: str) -> Callable[[Generator], Generator]:
    """Registers a generator function under a name for `Dataset.from_generator`.

    A repeated definition of the same function, as in a notebook, replaces it.

    Args:
      name: the name, which each process that reads the dataset has to register.

    Returns:
      A decorator that returns the function unchanged.

    Raises:
      AlreadyExistsError: if another function has the name.
    """

    def register(function: Generator) -> Generator:
        before = _generators.get(name)
        if before is not None and _origin(before) != _origin(function):
            raise AlreadyExistsError(
                f"the generator name {name!r} is registered for {_origin(before)}, got "
                f"{_origin(function)}; choose another name"
            )
        _generators[name] = function
        return function

    return register


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def find_generator(name: str) -> Callable[..., Iterable[Any]]:
    """Returns the generator function registered under a name."""
    if name not in _generators:
        raise NotFoundError(
            f"no generator is registered as {name!r} in this process, only "
            f"{sorted(_generators)}; decorate its function with "
            f"@jflow.data.register_generator({name!r}) before the dataset is created"
        )
    return _generators[name]


_END = object()


class Counted(grain.DatasetIterator[Any]):
    """Iterates an iterable; restores a position by iterating again and skipping elements."""

    def __init__(self, transform: str, start: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._transform = transform
        self._start = start
        self._n_yielded = 0
        self._values: collections.abc.Iterator[Any] | None = None

    def __next__(self) -> Any:
        with ElementNote(self._transform, self._n_yielded), EagerDecoding():
            if self._values is None:
                self._values = self._opened()
            value = next(self._values, _END)
            if value is not _END:
                value = as_element(value)
        if value is _END:
            raise StopIteration
        self._n_yielded += 1
        return value

    def _opened(self) -> collections.abc.Iterator[Any]:
        values = iter(self._start())
        for skipped in range(self._n_yielded):
            if next(values, _END) is _END:
                raise DataLossError(
                    f"{self._transform} has {skipped} elements now, but the position to continue "
                    f"from is after element {self._n_yielded}; provide the data of the first pass, "
                    "or start without a position"
                )
        return values

    def get_state(self) -> State:
        return {"given": self._n_yielded}

    def set_state(self, state: State) -> None:
        self._close_values()
        self._n_yielded = state["given"]

    def _close_values(self) -> None:
        # A generator may hold resources, such as files, until it is closed.
        if isinstance(self._values, collections.abc.Generator):
            self._values.close()
        self._values = None

    def close(self) -> None:
        self._close_values()
        super().close()


Source = tuple[Sequence[str], Build, Callable[[], Any]]


def tensor_slices(tensors: Any) -> Source:
    """Returns the source of the rows of arrays; see `Dataset.from_tensor_slices`."""
    arrays = jax.tree.map(_as_rows, tensors, is_leaf=lambda leaf: isinstance(leaf, list))
    lengths = {array.shape[0] if array.ndim else None for array in jax.tree.leaves(arrays)}
    if len(lengths) != 1 or None in lengths:
        raise InvalidArgumentError(
            "from_tensor_slices expects arrays with first axes of one length, got "
            f"{elements.spec_of(arrays)}"
        )
    spec = elements.unbatched_spec(elements.spec_of(arrays))
    rows = RowSlices(arrays, lengths.pop() or 0)
    transform = f"from_tensor_slices({len(rows)} x {spec})"
    return [transform], lambda _: grain.MapDataset.source(rows), lambda: spec


def _as_rows(leaf: Any) -> np.ndarray[Any, Any]:
    strings = isinstance(leaf, list) and leaf and isinstance(leaf[0], str | bytes)
    rows = np.asarray(leaf, dtype=object if strings else None)
    rows = rows.astype(object) if rows.dtype.kind in "US" else rows.view()
    # A row is a view of the array: a function that wrote into it would change the data.
    rows.flags.writeable = False
    return rows


def generator(generator: str | Callable[..., Iterable[Any]], args: Sequence[Any]) -> Source:
    """Returns the source of a generator function's values; see `Dataset.from_generator`."""
    function = find_generator(generator) if isinstance(generator, str) else generator
    name = generator if isinstance(generator, str) else name_of(generator)
    try:
        args_text = json.dumps(list(args))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the arguments of the generator {name} must be JSON types, got {args!r:.200}"
        ) from error
    return _counted_source(f"from_generator({name}, {args_text})", lambda: function(*args))


def iterable(iterable: Iterable[Any]) -> Source:
    """Returns the source of the values of an iterable; see `Dataset.from_iterable`."""
    if isinstance(iterable, Iterator):
        raise InvalidArgumentError(
            f"from_iterable requires an iterable that can be iterated again, got the iterator "
            f"{type(iterable).__name__}; pass the function that makes it to from_generator"
        )
    transform = f"from_iterable({type(iterable).__name__})"
    if not isinstance(iterable, grain.MapDataset | grain.IterDataset):
        return _counted_source(transform, lambda: iterable)
    pipeline = mapped(iterable, lambda _, value: as_element(value))
    return (
        [transform],
        lambda _: pipeline,
        lambda: elements.spec_of(first_element(lambda _: pipeline, transform)),
    )


def _counted_source(transform: str, start: Callable[[], Iterable[Any]]) -> Source:
    def build(_: Epochs) -> Stage:
        return Stream(lambda: Counted(transform, start))

    return [transform], build, lambda: elements.spec_of(first_element(build, transform))


def files(files: Path | Sequence[Path], kind: str, options: Mapping[str, Any]) -> Source:
    """Returns the source of the records of files; see `Dataset.from_files`."""
    record_files.check_kind(kind)
    paths = record_files.expand_pattern(files)

    def build(_: Epochs) -> Stage:
        if kind == "array_record":
            records: Any = grain.sources.ArrayRecordDataSource(paths)
            return grain.MapDataset.source(records)
        return Stream(lambda: record_files.records_of(kind, paths, options))

    transform = record_files.describe_files(kind, paths, options)
    return [transform], build, lambda: elements.spec_of(first_element(build, transform))


def csv(
    files: Path | Sequence[Path],
    record_defaults: Mapping[str, Any] | Sequence[Any],
    options: Mapping[str, Any],
) -> Source:
    """Returns the source of the rows of CSV files; see `Dataset.from_csv`."""
    defaults: Any
    if isinstance(record_defaults, Mapping):
        defaults = {name: default_of_column(value) for name, value in record_defaults.items()}
        texts: Any = {name: _default_text(array) for name, array in defaults.items()}
    else:
        defaults = [default_of_column(value) for value in record_defaults]
        texts = [_default_text(array) for array in defaults]
    options_of_reader = {"record_defaults": defaults, **options}
    return _rows("csv", files, options_of_reader, {"record_defaults": texts, **options})


def parquet(files: Path | Sequence[Path], options: Mapping[str, Any]) -> Source:
    """Returns the source of the rows of Parquet files; see `Dataset.from_parquet`."""
    needed("pyarrow.parquet", "data", "Dataset.from_parquet")
    return _rows("parquet", files, options, options)


def _rows(
    kind: str,
    files: Path | Sequence[Path],
    options: Mapping[str, Any],
    saved_options: Mapping[str, Any],
) -> Source:
    """Returns the source of rows read in blocks; `saved_options` describe it in saved positions."""
    paths = record_files.expand_pattern(files)

    def blocks(_: Epochs) -> Stage:
        return Stream(lambda: record_files.blocks_of(kind, paths, options))

    def build(epochs: Epochs) -> Stage:
        return Stream(partial(Unbatched, unstack=record_files.rows_of), streamed(blocks(epochs)))

    def spec() -> Any:
        # Lists in a column may differ in length between rows.
        rows = record_files.rows_of(first_element(blocks, transform))
        return elements.common_spec([elements.spec_of(row) for row in rows])

    transform = record_files.describe_files(
        kind, paths, {name: x for name, x in saved_options.items() if x}
    )
    return [transform], build, spec


def _default_text(default: np.ndarray[Any, Any]) -> str:
    """Returns the text of a column's default value."""
    return f"{type_name(default)}={default.item()!r}" if default.size == 1 else type_name(default)
