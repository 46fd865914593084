"""Lookup tables, which map keys, such as words, to values on the host of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jflow.base.values import host_abstract, host_dtype, is_compatible, string
from jflow.client.ops.arrays import group, no_op
from jflow.client.ops.host_calls import is_symbolic
from jflow.client.ops.slices import SparseTensor
from jflow.client.ops.sparse import small
from jflow.client.ops.strings import string_to_hash_bucket_fast
from jflow.client.ops.table_initializers import TableInitializer, key_kind
from jflow.client.stateful import Handle
from jflow.client.stateful.queue import as_integer
from jflow.compiler.graph import Graph, GraphKeys, Operation, Tensor
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.members import visible
from jflow.state.resources.lookup_table import INTEGERS, LookupTableSpec

_INT64 = np.dtype(np.int64)


class StaticHashTable(Handle):
    """A table of keys and values, which a step sets once, by its `initializer`.

    Without a shared name each session has its own table. In a container a table stays for all
    sessions; a step that initializes it again changes nothing, but fails if it has another number
    of entries. A checkpoint does not contain tables.

    Args:
      initializer: the entries: a `KeyValueTensorInitializer` or a `TextFileInitializer`.
      default_value: scalar of the dtype of the values, for keys that the table does not have.
      name: name of its handle op.
      shared_name: name in the container, by which sessions share it; None for that of the
        initializer.

    Raises:
      InvalidArgumentError: if the values have no dtype that a table can have.
      TypeError, ValueError: if the default value is not such a scalar.
    """

    _instead_of_value = "look keys up: table.lookup(keys)"

    def __init__(
        self,
        initializer: TableInitializer,
        default_value: Any,
        name: str | None = None,
        *,
        shared_name: str | None = None,
    ) -> None:
        self._key_dtype, self._value_dtype = initializer.key_dtype, initializer.value_dtype
        spec = LookupTableSpec(key_kind(self._key_dtype), self._value_dtype.name)
        shared_name = shared_name or initializer.shared_name
        super().__init__("lookup_table", spec, shared_name, name or "hash_table")
        if default_value is None:
            raise ValueError("None values not supported. A table needs a default_value")
        self._default = self._calls.operand(default_value, self._value_dtype)
        if not is_compatible((), self._default.aval.shape):
            raise ValueError(f"expected a scalar as default_value, got {self._default!r}")
        self._initializer = initializer.initialize(self)
        self._graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, self._initializer)

    @property
    def key_dtype(self) -> Any:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> Any:
        """The dtype of the values."""
        return self._value_dtype

    @property
    def default_value(self) -> Tensor:
        """The value of keys that the table does not have."""
        return self._default

    @property
    def initializer(self) -> Operation:
        """The operation that initializes the table."""
        return self._initializer

    init = initializer

    def _details(self) -> dict[str, Any]:
        return {"key_dtype": self._key_dtype.name, "value_dtype": self._value_dtype.name}

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Returns the value of each key, or the default value.

        Args:
          keys: strings or integers, as the table has them: a tensor of any shape, or a
            `SparseTensor`. Integers may have another size than the table's.
          name: name of the operation.

        Returns:
          T[*keys.shape], or a `SparseTensor`. int64 becomes int32 while `jax_enable_x64` is off.

        Raises:
          TypeError: if the keys are not such values.
          FailedPreconditionError: in the step, if the table is not initialized.
          InvalidArgumentError: in the step, if a value needs 64 bits while `jax_enable_x64` is off.
        """
        return _of_values(
            keys, lambda dense: self._found("lookup_table.find", dense, [self._default], name)
        )

    def lookup_or_hash(self, keys: Any, num_buckets: int, name: str | None) -> Any:
        """Returns the value of each key, or the size of the table plus the bucket of the key.

        Args:
          keys, name: as for `lookup`.
          num_buckets: how many buckets there are.

        Raises:
          TypeError, FailedPreconditionError, InvalidArgumentError: as `lookup`.
          UnimplementedError: in the step, if the package with the hash is not installed.
        """
        given = {"num_buckets": num_buckets}
        return _of_values(
            keys, lambda dense: self._found("lookup_table.find_or_hash", dense, [], name, given)
        )

    def size(self, name: str | None = None) -> Tensor:
        """Returns the number of entries, i64[] on the host; 0 before the table is initialized."""
        return self.size_with(0, name)

    def size_with(self, num_buckets: int, name: str | None) -> Tensor:
        """Returns the number of entries plus the number of buckets, i64[] on the host."""
        avals, given = [host_abstract((), _INT64)], {"num_buckets": num_buckets}
        name = name or f"{self._title}_Size"
        call = self._calls.call
        return call("lookup_table.size", [], avals, name, given, is_blocking=False).outputs[0]

    def _found(
        self,
        function: str,
        keys: Any,
        others: list[Tensor],
        name: str | None,
        attributes: dict[str, Any] | None = None,
    ) -> Tensor:
        """Adds a lookup of dense keys."""
        tensor = _keys(self._graph, keys, self._key_dtype)
        avals = [host_abstract(tensor.aval.shape, self._value_dtype)]
        name = name or f"{self._title}_Lookup"
        call = self._calls.call
        op = call(function, [tensor, *others], avals, name, attributes, is_blocking=False)
        return small(self._graph, op.outputs[0])

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "lookup_or_hash", "size_with")


class HashTable(StaticHashTable):
    """A `StaticHashTable` under its older name, whose shared name is its third argument."""

    def __init__(
        self,
        initializer: TableInitializer,
        default_value: Any,
        shared_name: str | None = None,
        name: str = "hash_table",
    ) -> None:
        super().__init__(initializer, default_value, name, shared_name=shared_name)


class HasherSpec(NamedTuple):
    """What hashes keys into buckets: `FastHashSpec` is the only one.

    Attributes:
      hasher: its name.
      key: its key, which a fast hash has not.
    """

    hasher: str
    key: None = None


FastHashSpec = HasherSpec("fasthash")
"""FarmHash Fingerprint64, modulo the number of buckets."""


class IdTableWithHashBuckets:
    """Numbers of keys: those of a table, and buckets for the keys that it does not have.

    Keys that are not in the table are hashed by FarmHash Fingerprint64, integers as decimal text.
    Their numbers follow those of the table: its size plus the hash modulo the number of buckets.
    The task of the table needs `jflow[hash]`.

    Args:
      table: a table with values from 0 to its size - 1, int64; None for buckets only.
      num_oov_buckets: the number of buckets, at least 1.
      hasher_spec: the hash, `FastHashSpec`.
      name: the beginning of the names of operations.
      key_dtype: dtype of the keys to look up; None for that of the table.

    Raises:
      TypeError: if the values of the table are not int64, or its keys are of another kind.
      ValueError: if there is no bucket, or the hash is another one.
    """

    def __init__(
        self,
        table: StaticHashTable | None,
        num_oov_buckets: int,
        hasher_spec: HasherSpec = FastHashSpec,
        name: str | None = None,
        key_dtype: Any = None,
    ) -> None:
        self._n_buckets = as_integer(num_oov_buckets, "num_oov_buckets")
        if self._n_buckets < 1:
            raise ValueError("`num_oov_buckets` must be > 0; use StaticHashTable.")
        if hasher_spec != FastHashSpec:
            raise ValueError(f"expected FastHashSpec as hasher_spec, got {hasher_spec!r}")
        own = string if table is None else table.key_dtype
        self._key_dtype = own if key_dtype is None else host_dtype(key_dtype)
        if key_kind(self._key_dtype) != key_kind(own):
            raise TypeError(
                f"Invalid `key_dtype`, expected {self._key_dtype.name} but got {own.name}"
            )
        if table is not None and table.value_dtype != _INT64:
            raise TypeError(
                f"Invalid `value_dtype`, expected int64 but got {table.value_dtype.name}; pass "
                "value_dtype=jflow.int64 to the initializer"
            )
        self._table = table
        self._name = name or ("hash_bucket" if table is None else table.op.name)

    @property
    def name(self) -> str:
        """The beginning of the names of operations."""
        return self._name

    @property
    def key_dtype(self) -> Any:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> Any:
        """The dtype of the numbers, int64."""
        return _INT64

    @property
    def initializer(self) -> Operation:
        """The operation that initializes the table."""
        return no_op("init") if self._table is None else self._table.initializer

    init = initializer

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Returns the number of each key.

        Args:
          keys, name: as for `StaticHashTable.lookup`.

        Returns:
          i64[*keys.shape], or a `SparseTensor`; int32 while `jax_enable_x64` is off.

        Raises:
          TypeError, FailedPreconditionError, InvalidArgumentError: as `StaticHashTable.lookup`.
          UnimplementedError: in the step, if the package with the hash is not installed.
        """
        name = name or f"{self._name.rpartition('/')[2]}_Lookup"
        if self._table is not None:
            return self._table.lookup_or_hash(keys, self._n_buckets, name)
        return _of_values(keys, lambda dense: self._hashed(dense, name))

    def size(self, name: str | None = None) -> Tensor:
        """Returns the number of entries and buckets, i64[] on the host."""
        name = name or f"{self._name.rpartition('/')[2]}_Size"
        if self._table is not None:
            return self._table.size_with(self._n_buckets, name)
        return _default_graph().constant(self._n_buckets, _INT64, on_host=True, name=name)

    def _hashed(self, keys: Any, name: str) -> Tensor:
        graph = _default_graph()
        strings = _keys(graph, keys, string)
        return small(graph, string_to_hash_bucket_fast(strings, self._n_buckets, name))

    def __repr__(self) -> str:
        n = f"num_oov_buckets={self._n_buckets}"
        return f"<jflow.{type(self).__name__} {self._name!r} {n} {self._table!r}>"


class StaticVocabularyTable(IdTableWithHashBuckets):
    """Numbers of the keys of a vocabulary, and buckets for others; see `IdTableWithHashBuckets`.

    Args:
      initializer: the vocabulary: keys, and values from 0 to their number - 1, int64; None for
        buckets only, of strings.
      num_oov_buckets: the number of buckets, at least 1.
      lookup_key_dtype: dtype of the keys to look up; None for that of the initializer.
      name: the beginning of the names of operations.

    Raises:
      TypeError: if the values are not int64, or the keys are of another kind.
      ValueError: if there is no bucket.
    """

    def __init__(
        self,
        initializer: TableInitializer | None,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        table = None if initializer is None else StaticHashTable(initializer, -1)
        super().__init__(table, num_oov_buckets, name=name, key_dtype=lookup_key_dtype)


def tables_initializer(name: str = "init_all_tables") -> Operation:
    """Returns an operation that initializes all tables made so far in the default graph."""
    tables = _default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    return group(*tables, name=name)


def _keys(graph: Graph, value: Any, dtype: Any) -> Tensor:
    """Returns keys as a tensor. Raises TypeError if they are not of the kind of a dtype."""
    kind = key_kind(dtype)
    if not is_symbolic(value):
        return graph.constant(value, string if kind == string.name else _INT64, on_host=True)
    tensor = graph.as_tensor(value, dtype)
    own = tensor.dtype
    is_integer = isinstance(own, np.dtype) and own.kind in "iu"
    if (INTEGERS if is_integer else own.name) != kind:
        raise TypeError(f"Dtype of argument `keys` must be {dtype.name}, received: {tensor!r}")
    return tensor


def _of_values(keys: Any, find: Callable[[Any], Tensor]) -> Any:
    """Looks keys up; those of a sparse tensor become a sparse tensor."""
    if isinstance(keys, SparseTensor):
        return SparseTensor(keys.indices, find(keys.values), keys.dense_shape)
    return find(keys)
