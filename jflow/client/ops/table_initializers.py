"""What lookup tables get their entries from: vectors, or files of text."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from jflow.base.values import declared, host_dtype, is_compatible, string
from jflow.client.ops.host_calls import is_symbolic, text_of
from jflow.client.stateful import Handle
from jflow.client.stateful.queue import as_integer
from jflow.compiler.graph import Graph, GraphKeys, Operation, Tensor
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.state.resources.lookup_table import INTEGERS, LINE_NUMBER, WHOLE_LINE

_INT64 = np.dtype(np.int64)


class TableInitializer(Protocol):
    """What a table gets its entries from."""

    @property
    def key_dtype(self) -> Any:
        """The dtype of the keys."""

    @property
    def value_dtype(self) -> Any:
        """The dtype of the values."""

    @property
    def shared_name(self) -> str | None:
        """The name by which sessions share tables of the same entries; None if they do not."""

    def initialize(self, table: Handle) -> Operation:
        """Returns an operation that sets the entries of a table."""


class KeyValueTensorInitializer:
    """Entries of a table as two vectors, of keys and of values.

    Args:
      keys: string[n] or i[n], at least one.
      values: T[n], the value of each key.
      key_dtype, value_dtype: their dtypes; None for those that they have. Numbers of Python have 32
        bits by themselves.
      name: name of the operation.

    Raises:
      TypeError: if keys are neither strings nor integers, or a dtype does not fit.
      ValueError: if they are not vectors of one length.
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        key_dtype: Any = None,
        value_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        graph = _default_graph()
        self._keys = as_vector(graph, keys, key_dtype, "keys")
        self._values = as_vector(graph, values, value_dtype, "values")
        self._name = name or "key_value_init"
        key_kind(self.key_dtype)
        if not is_compatible(declared(self._keys.aval.shape), self._values.aval.shape):
            raise ValueError(f"expected a value for each of {self._keys!r}, got {self._values!r}")

    @property
    def key_dtype(self) -> Any:
        """The dtype of the keys."""
        return self._keys.dtype

    @property
    def value_dtype(self) -> Any:
        """The dtype of the values."""
        return self._values.dtype

    @property
    def shared_name(self) -> None:
        """None: each session has its own table."""

    def initialize(self, table: Handle) -> Operation:
        """Returns an operation that sets the entries of a table."""
        entries = [self._keys, self._values]
        return table._calls.call("lookup_table.initialize", entries, [], self._name)

    def __repr__(self) -> str:
        return f"<jflow.lookup.KeyValueTensorInitializer {self._keys!r} {self._values!r}>"


class TextFileIndex:
    """The columns of a file of text that are not separated by delimiters.

    Attributes:
      WHOLE_LINE: the line itself.
      LINE_NUMBER: the number of the line, int64, from 0.
    """

    WHOLE_LINE = WHOLE_LINE
    LINE_NUMBER = LINE_NUMBER


class TextFileInitializer:
    """Entries of a table in a file of text, one in each line, which is not empty.

    The task of the table reads the file: a local session may read all files of the process, a
    server only those below its data roots. Tables of the same file, columns and dtypes are one
    table, which sessions share. If it is initialized already, the file is not read again.

    Args:
      filename: name of the file: text, or string[].
      key_dtype: dtype of the keys, string or an integer; int64 for a line number.
      key_index: the column of the keys, from 0, or one of `TextFileIndex`.
      value_dtype: dtype of the values, a string or number; int64 for a line number.
      value_index: the column of the values, as `key_index`.
      vocab_size: how many lines to read, which there must be; None for all.
      delimiter: the one byte between two columns.
      name: name of the operation.
      value_index_offset: the number of the first line.

    Raises:
      TypeError: if a dtype or number is not one.
      ValueError: if there is no file name, or an index, its dtype or a number is not valid.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        self.key_dtype = _column_dtype("key", key_index, key_dtype)
        self.value_dtype = _column_dtype("value", value_index, value_dtype)
        key_kind(self.key_dtype)
        if not is_symbolic(filename) and not filename:
            raise ValueError("`filename` argument required for tf.lookup.TextFileInitializer")
        self._attributes: dict[str, Any] = {
            "key_index": int(key_index),
            "value_index": int(value_index),
            "delimiter": text_of(delimiter, "delimiter"),
            "value_index_offset": as_integer(value_index_offset, "value_index_offset"),
        }
        if vocab_size is not None:
            if as_integer(vocab_size, "vocab_size") < 1:
                raise ValueError(f"`vocab_size` should be > 0, received: {vocab_size}")
            self._attributes["vocab_size"] = int(vocab_size)
        self._name = name or "text_file_init"
        graph = _default_graph()
        self._shared_name: str | None = None
        if is_symbolic(filename):
            self._filename = graph.as_tensor(filename)
        else:
            path = os.fsdecode(filename)
            columns = [self.key_dtype.name, self.value_dtype.name, *self._attributes.values()]
            self._shared_name = f"hash_table_{path}_{'_'.join(map(repr, columns))}"
            self._filename = graph.constant(path, string, on_host=True, name="asset_path")
        if self._filename.dtype != string or not is_compatible((), self._filename.aval.shape):
            raise TypeError(f"expected the name of a file as text, got {filename!r}")
        graph.add_to_collection(GraphKeys.ASSET_FILEPATHS, self._filename)

    @property
    def shared_name(self) -> str | None:
        """The name by which sessions share the table; None if the file is a tensor's value."""
        return self._shared_name

    def initialize(self, table: Handle) -> Operation:
        """Returns an operation that sets the entries of a table."""
        function = "lookup_table.initialize_from_file"
        return table._calls.call(function, [self._filename], [], self._name, self._attributes)

    def __repr__(self) -> str:
        return f"<jflow.lookup.TextFileInitializer {self._filename!r}>"


def key_kind(dtype: Any, message: str | None = None) -> str:
    """Returns the dtype of keys as a spec has it. Raises TypeError if there are no such keys.

    Args:
      dtype: the dtype that they have.
      message: that of the error; None for one that names the dtype.
    """
    if dtype == string:
        return string.name
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        return INTEGERS
    raise TypeError(message or f"keys of a table are strings or integers, got {dtype.name}")


def as_vector(graph: Graph, value: Any, dtype: Any, what: str) -> Tensor:
    """Returns keys or values as a vector that stays on the host, if it is not a tensor already."""
    wanted = None if dtype is None else host_dtype(dtype)
    if is_symbolic(value):
        tensor = graph.as_tensor(value, wanted)
        if wanted is not None and tensor.dtype != wanted:
            raise TypeError(f"expected {what} of dtype {wanted.name}, got {tensor!r}")
    else:
        own = getattr(value, "dtype", None)
        if wanted is None and isinstance(own, np.dtype) and own.kind not in "OSU":
            wanted = host_dtype(own)
        tensor = graph.constant(value, wanted, on_host=True, name=what)
    if not is_compatible((None,), tensor.aval.shape):
        raise ValueError(f"expected {what} as a vector, got {tensor!r}")
    return tensor


def _column_dtype(what: str, index: int, dtype: Any) -> Any:
    """Returns the dtype of a column. Raises ValueError if it is not one of that column."""
    column, wanted = as_integer(index, f"{what}_index"), host_dtype(dtype)
    if column < WHOLE_LINE:
        raise ValueError(f"`{what}_index` should be >= {WHOLE_LINE}, received: {column}.")
    if column == LINE_NUMBER and wanted != _INT64:
        raise ValueError(
            f"`{what}_dtype` must be int64 for `{what}_index` {LINE_NUMBER}, "
            f"received: {wanted.name}"
        )
    return wanted
