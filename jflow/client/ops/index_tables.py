"""Tables between words and their numbers in a vocabulary, as `tf.contrib.lookup` makes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from jflow.base.values import declared, host_dtype, string
from jflow.client.ops.table_initializers import (
    KeyValueTensorInitializer,
    TextFileIndex,
    TextFileInitializer,
    as_vector,
    key_kind,
)
from jflow.client.ops.tables import (
    FastHashSpec,
    HasherSpec,
    IdTableWithHashBuckets,
    StaticHashTable,
)
from jflow.client.stateful.queue import as_integer
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph import name_scope

_INT64 = np.dtype(np.int64)


def index_table_from_tensor(
    vocabulary_list: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = string,
    name: str | None = None,
) -> StaticHashTable | IdTableWithHashBuckets:
    """Returns a table of the positions of words in a list.

    Args:
      vocabulary_list: string[n] or i[n], each once; n is known when the graph is built.
      num_oov_buckets: the number of buckets for other words, which are hashed; 0 for none.
      default_value: the number of other words, without buckets.
      hasher_spec: the hash, `FastHashSpec`.
      dtype: dtype of the words, string or an integer.
      name: scope of the operations.

    Raises:
      TypeError: if `dtype` is another one.
      ValueError: if the list is missing, or not of that dtype or a known size, the number of
        buckets negative, or the hash another one.
    """
    wanted = host_dtype(dtype)
    kind = key_kind(wanted, "`dtype` must either be integer or string.")
    _check_buckets(num_oov_buckets)
    with name_scope(name, "string_to_index"):
        words, numbers = _vocabulary(vocabulary_list)
        if key_kind(words.dtype) != kind:
            raise ValueError(f"Invalid `dtype`: Expected {wanted.name}, got {words!r}.")
        initializer = KeyValueTensorInitializer(words, numbers, name="table_init")
        table = StaticHashTable(initializer, default_value)
        return _with_buckets(table, num_oov_buckets, hasher_spec)


def index_table_from_file(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    vocabulary_file: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = string,
    name: str | None = None,
    key_column_index: int = TextFileIndex.WHOLE_LINE,
    value_column_index: int = TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> StaticHashTable | IdTableWithHashBuckets:
    """Returns a table of the numbers of words in a file, by default those of their lines.

    Args:
      vocabulary_file: name of the file, for which see `TextFileInitializer`.
      num_oov_buckets, default_value, hasher_spec, name: as for `index_table_from_tensor`.
      vocab_size, delimiter: as for `TextFileInitializer`.
      key_dtype: dtype of the words, string or an integer.
      key_column_index, value_column_index: columns of the words and of their numbers.

    Raises:
      TypeError: if `key_dtype` is another one.
      ValueError: if there is no file, or an argument is not valid.
    """
    kind = key_kind(host_dtype(key_dtype), "Dtype for `keys` should be either integer or string.")
    _check_buckets(num_oov_buckets)
    with name_scope(name, "string_to_index"):
        initializer = TextFileInitializer(
            _named(vocabulary_file),
            string if kind == string.name else _INT64,
            key_column_index,
            _INT64,
            value_column_index,
            vocab_size,
            delimiter,
            "table_init",
        )
        table = StaticHashTable(initializer, default_value)
        return _with_buckets(table, num_oov_buckets, hasher_spec)


def index_to_string_table_from_tensor(
    vocabulary_list: Any, default_value: Any = "UNK", name: str | None = None
) -> StaticHashTable:
    """Returns a table of the words at positions in a list.

    Args:
      vocabulary_list: string[n]; n is known when the graph is built.
      default_value: the word at other positions.
      name: scope of the operations.

    Raises:
      ValueError: if the list is missing, or its size unknown.
    """
    with name_scope(name, "index_to_string"):
        words, numbers = _vocabulary(vocabulary_list)
        initializer = KeyValueTensorInitializer(numbers, words, value_dtype=string)
        return StaticHashTable(initializer, default_value)


def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: int | None = None,
    default_value: Any = "UNK",
    name: str | None = None,
    key_column_index: int = TextFileIndex.LINE_NUMBER,
    value_column_index: int = TextFileIndex.WHOLE_LINE,
    delimiter: str = "\t",
) -> StaticHashTable:
    """Returns a table of the words of numbers in a file, by default those of its lines.

    Args:
      vocabulary_file, vocab_size, delimiter: as for `index_table_from_file`.
      default_value: the word of other numbers.
      name: scope of the operations.
      key_column_index, value_column_index: columns of the numbers and of the words.

    Raises:
      ValueError: if there is no file, or an argument is not valid.
    """
    with name_scope(name, "index_to_string"):
        initializer = TextFileInitializer(
            _named(vocabulary_file),
            _INT64,
            key_column_index,
            string,
            value_column_index,
            vocab_size,
            delimiter,
            "table_init",
        )
        return StaticHashTable(initializer, default_value)


def _with_buckets(
    table: StaticHashTable, n_buckets: int, hasher_spec: HasherSpec
) -> StaticHashTable | IdTableWithHashBuckets:
    return IdTableWithHashBuckets(table, n_buckets, hasher_spec) if n_buckets else table


def _check_buckets(num_oov_buckets: int) -> None:
    """Raises ValueError if a number of buckets is negative."""
    if as_integer(num_oov_buckets, "num_oov_buckets") < 0:
        raise ValueError(
            f"`num_oov_buckets` must be greater or equal than 0, got {num_oov_buckets}."
        )


def _named(vocabulary_file: Any) -> Any:
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("`vocabulary_file` must be specified and must not be empty.")
    return vocabulary_file


def _vocabulary(words: Any) -> tuple[Any, Any]:
    """Returns words as a tensor, and their positions. Raises ValueError if there are none."""
    if words is None:
        raise ValueError("`vocabulary_list` must be specified.")
    tensor = as_vector(_default_graph(), words, None, "vocabulary_list")
    shape = declared(tensor.aval.shape)
    if not shape or shape[0] is None:
        raise ValueError(f"expected a vocabulary_list of known size, got {tensor!r}")
    return tensor, np.arange(shape[0], dtype=np.int64)
