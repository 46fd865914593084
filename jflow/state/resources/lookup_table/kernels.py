"""Kernels of lookup tables. They look keys up outside of the lock, because entries never change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jflow.base.values import Array, TensorSpec, is_string_tensor
from jflow.errors import InvalidArgumentError
from jflow.state.records.hashing import buckets_of
from jflow.state.resources.cell import Cell
from jflow.state.resources.kernel import Kernel, KernelRun, wait_for
from jflow.state.resources.lookup_table.state import InitializeTable, LookupTable, TableEntries
from jflow.state.resources.lookup_table.text_file import column_of, read_lines
from jflow.state.resources.tensors import check_fits


def _initialize(cells: Sequence[Cell], values: Sequence[Array]) -> KernelRun:
    keys, own = values
    entries = TableEntries.of(_table(cells), keys, own)
    return (yield from wait_for(cells[0], InitializeTable(entries)))


def _initialize_from_file(
    cells: Sequence[Cell],
    values: Sequence[Array],
    *,
    key_index: int,
    value_index: int,
    delimiter: str,
    vocab_size: int | None = None,
    value_index_offset: int = 0,
) -> KernelRun:
    """Reads the entries from a file, unless the table has some."""
    table = _table(cells)
    if table.entries is not None:
        return ()
    check_fits(TensorSpec((), "string"), values[0], "file name", table)
    name = values[0].item()
    separator = delimiter.encode()
    if len(separator) != 1:
        raise InvalidArgumentError(f"delimiter should be only 1 char, got {delimiter!r}")
    lines = read_lines(name, table.open(name), vocab_size)
    keys, own = (
        column_of(lines, index, dtype, separator, value_index_offset)
        for index, dtype in (
            (key_index, table.spec.key_dtype),
            (value_index, table.spec.value_dtype),
        )
    )
    entries = TableEntries.of(table, keys, own)
    return (yield from wait_for(cells[0], InitializeTable(entries)))


def _find(cells: Sequence[Cell], values: Sequence[Array]) -> KernelRun:
    """Returns the value of each key, or else the default."""
    yield from ()
    keys, default = values
    entries = _entries(cells, keys)
    table = _table(cells)
    check_fits(TensorSpec((), table.spec.value_dtype), default, "default value", table)
    found, own = entries.find(keys)
    return (np.where(found, own, default),)


def _find_or_hash(cells: Sequence[Cell], values: Sequence[Array], *, num_buckets: int) -> KernelRun:
    """Returns the value of each key, or else the number of entries plus the bucket of the key."""
    yield from ()
    (keys,) = values
    entries = _entries(cells, keys)
    check_fits(TensorSpec((None,), "int64"), entries.values, "values", _table(cells))
    found, ids = entries.find(keys)
    others = keys[~found].tolist()
    texts = others if is_string_tensor(keys) else [b"%d" % key for key in others]
    ids[~found] = [len(entries) + bucket for bucket in buckets_of(texts, num_buckets)]
    return (ids,)


def _size(cells: Sequence[Cell], values: Sequence[Array], *, num_buckets: int = 0) -> KernelRun:
    """Returns the number of entries and buckets; a table without entries has none."""
    yield from ()
    n_entries = cells[0].query(lambda table: len(table.entries or ()))
    return (np.asarray(n_entries + num_buckets, np.int64),)


def _table(cells: Sequence[Cell]) -> LookupTable:
    table: LookupTable = cells[0].query(lambda table: table)
    return table


def _entries(cells: Sequence[Cell], keys: Array) -> TableEntries:
    table = _table(cells)
    table.spec.check_keys(keys, table)
    return cells[0].query(LookupTable.initialized)


SLOW_KERNELS: Mapping[str, Kernel] = {
    "lookup_table.initialize": _initialize,
    "lookup_table.initialize_from_file": _initialize_from_file,
}

KERNELS: Mapping[str, Kernel] = {
    "lookup_table.find": _find,
    "lookup_table.find_or_hash": _find_or_hash,
    "lookup_table.size": _size,
    **SLOW_KERNELS,
}
