"""The state of lookup tables: immutable entries, once the table is initialized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.base.values import Array, TensorSpec, string, type_name
from jflow.errors import FailedPreconditionError, InvalidArgumentError
from jflow.state.records import Records
from jflow.state.resources.snapshot import PlainSnapshot
from jflow.state.resources.spec import Spec
from jflow.state.resources.tensors import check_fits, checked_spec
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource

INTEGERS = "int64"
"""The dtype of keys that are integers; it stands for all integer dtypes."""

Open = Callable[[bytes], Records]
"""A function that opens a file of text, whose records are its lines."""


class LookupTableSpec(Spec, frozen=True):
    """The definition of a lookup table: the dtypes of its keys and values.

    Attributes:
      key_dtype: "string", or `INTEGERS`.
      value_dtype: the name of the values' dtype.

    Raises:
      InvalidArgumentError: if the definition is not valid.
    """

    what = "lookup table"

    key_dtype: str
    value_dtype: str

    def __post_init__(self) -> None:
        if self.key_dtype not in (string.name, INTEGERS):
            raise InvalidArgumentError(
                f"keys of lookup tables are string or {INTEGERS}, got {self.key_dtype!r}"
            )
        checked_spec((None,), self.value_dtype)

    def check_keys(self, keys: Array, resource: object) -> None:
        """Raises InvalidArgumentError if keys have another dtype."""
        name = type_name(keys)
        if (INTEGERS if keys.dtype.kind in "iu" else name) != self.key_dtype:
            raise InvalidArgumentError(
                f"Type mismatch in keys. Expected {self.key_dtype}, got {name} ({resource})"
            )

    def facts(self) -> Iterator[tuple[str, Any]]:
        yield "key dtype", self.key_dtype
        yield "value dtype", self.value_dtype


class LookupTableSnapshot(PlainSnapshot, frozen=True):
    """The snapshot of a lookup table, without its entries, which its initializer has.

    Attributes:
      spec: the definition of the table.
    """

    what = "snapshot of a lookup table"

    spec: LookupTableSpec


@dataclass(frozen=True, eq=False)
class TableEntries:
    """The keys and values of a table.

    Attributes:
      positions: the position of each key among the values.
      values: the values, [n].
    """

    positions: Mapping[Any, int]
    values: Array

    @classmethod
    def of(cls, table: LookupTable, keys: Array, values: Array) -> TableEntries:
        """Makes the entries of a table; a key may occur again with an equal value.

        Args:
          table: the table, with the dtypes that are expected.
          keys: its keys, [n].
          values: the value of each key, [n].

        Raises:
          InvalidArgumentError: if the dtypes or shapes differ, or there are no keys.
          FailedPreconditionError: if a key has two values.
        """
        table.spec.check_keys(keys, table)
        if keys.ndim != 1 or not len(keys):
            raise InvalidArgumentError(
                f"expected at least one key as a vector, got keys of shape {keys.shape} ({table})"
            )
        check_fits(TensorSpec(keys.shape, table.spec.value_dtype), values, "values", table)
        positions: dict[Any, int] = {}
        for position, key in enumerate(keys.tolist()):
            first = positions.setdefault(key, position)
            if first != position and values[first] != values[position]:
                raise FailedPreconditionError(
                    f"{table} has different value for same key. Key {key!r} has {values[first]} "
                    f"and trying to add value {values[position]}"
                )
        return cls(positions, values)

    def __len__(self) -> int:
        return len(self.positions)

    def find(self, keys: Array) -> tuple[Array, Array]:
        """Looks keys up.

        Args:
          keys: [...], of the dtype of the table.

        Returns:
          Which keys there are, bool[...], and their values, [...]; others have any value.
        """
        flat = keys.reshape(-1).tolist()
        get = self.positions.get
        positions = np.fromiter((get(key, -1) for key in flat), np.intp, len(flat))
        found, values = positions >= 0, self.values[positions]
        return found.reshape(keys.shape), values.reshape(keys.shape)


class LookupTable(QueuedResource[LookupTableSnapshot]):
    """The resource that maps keys to values, which are set once.

    No attempt waits. Entries are not saved: a table is initialized in each run, and restoring it
    leaves those that it has.

    Args:
      spec: its definition.
      name: its name in messages.
      open_: opens the files that it may be initialized from.

    Attributes:
      entries: the keys and values; None until the table is initialized. Nothing changes them.
      open: as given.
    """

    spec: LookupTableSpec
    saved_as = LookupTableSnapshot

    def __init__(self, spec: LookupTableSpec, name: str, open_: Open) -> None:
        super().__init__(spec, name, InitializeTable)
        self.open = open_
        self.entries: TableEntries | None = None

    def initialized(self) -> TableEntries:
        """Returns the entries. Raises FailedPreconditionError if there are none yet."""
        if self.entries is None:
            raise FailedPreconditionError(
                f"Table not initialized: {self} has no entries yet; run its initializer or "
                "jflow.tables_initializer() in this session first"
            )
        return self.entries

    def clear(self) -> None:
        self.entries = None

    def save(self) -> LookupTableSnapshot:
        return LookupTableSnapshot(self.spec)

    def load(self, snapshot: LookupTableSnapshot) -> None:
        """Keeps the present entries, because a snapshot has none."""


class InitializeTable(QueuedAttempt[LookupTable]):
    """Sets the entries of a table, unless it has as many already.

    Args:
      entries: the entries.
    """

    __slots__ = ("_entries",)
    can_roll_back = False  # other steps may have found the table initialized

    def __init__(self, entries: TableEntries) -> None:
        super().__init__()
        self._entries = entries

    def advance(self, state: LookupTable) -> bool:
        if state.entries is None:
            state.entries = self._entries
        elif len(state.entries) != len(self._entries):
            raise FailedPreconditionError(
                f"Table was already initialized with different data: {state} has "
                f"{len(state.entries)} entries, and was to get {len(self._entries)}; use another "
                "name or container, or reset the container"
            )
        self.succeed()
        return True
