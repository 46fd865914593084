"""Value tables: arrays that a step leaves on a task for later steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jflow.base.values import Array, memory_bytes
from jflow.errors import NotFoundError
from jflow.state.quotas import Allowance
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.charged import Charged
from jflow.state.resources.kernel import Kernel, single_attempt
from jflow.state.resources.kind import Kind
from jflow.state.resources.snapshot import PlainSnapshot, Snapshottable
from jflow.state.resources.spec import Spec
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource


class ValueTableSpec(Spec, frozen=True):
    """The spec of every value table; it has no parameters."""

    what = "value table"


class ValueTableSnapshot(PlainSnapshot, frozen=True):
    """The snapshot of a value table, without its values, which are not saved.

    Attributes:
      spec: the definition of the table.
    """

    what = "snapshot of a value table"

    spec: ValueTableSpec


class ValueTable(QueuedResource[ValueTableSnapshot], Charged):
    """The resource that keeps tuples of arrays by number.

    No attempt waits: a value that is not there is an error. Values are not saved: what a step has
    left for another one can be computed again, and restoring the table leaves those that it has.

    Args:
      spec: its definition.
      name: its name in messages.

    Attributes:
      values: the arrays by number; nothing changes them, and `put` and `free` which are there.
    """

    saved_as = ValueTableSnapshot

    def __init__(self, spec: ValueTableSpec, name: str) -> None:
        super().__init__(spec, name, PutValues, GetValues, FreeValues)
        self.values: dict[int, tuple[Array, ...]] = {}
        self.size_bytes = 0
        self.allowance = Allowance()

    def put(self, number: int, values: tuple[Array, ...]) -> None:
        """Stores arrays, in place of any former ones. Raises ResourceExhaustedError by a quota."""
        former = sum(map(memory_bytes, self.values.get(number, ())))
        size_bytes = self.size_bytes + sum(map(memory_bytes, values)) - former
        if size_bytes > self.allowance.most:
            self.allowance.cover(size_bytes)
        self.values[number], self.size_bytes = values, size_bytes

    def free(self, number: int) -> None:
        """Removes the arrays of a number, if there are any."""
        self.size_bytes -= sum(map(memory_bytes, self.values.pop(number, ())))
        if self.size_bytes < self.allowance.least:
            self.allowance.trim(self.size_bytes)

    def clear(self) -> None:
        self.values.clear()
        self.size_bytes = 0
        self.allowance.trim(0)

    def save(self) -> ValueTableSnapshot:
        return ValueTableSnapshot(ValueTableSpec())

    def load(self, snapshot: ValueTableSnapshot) -> None:
        """Keeps the present values, because a snapshot has none."""


class PutValues(QueuedAttempt[ValueTable]):
    """Stores arrays under a number, replacing any previous ones.

    Args:
      number: the number.
      values: the arrays.
    """

    __slots__ = ("_number", "_values")

    def __init__(self, number: int, values: tuple[Array, ...]) -> None:
        super().__init__()
        self._number, self._values = number, values

    def advance(self, state: ValueTable) -> bool:
        state.put(self._number, self._values)
        self.succeed()
        return True

    def rollback(self, state: ValueTable) -> None:
        if state.values.get(self._number) is self._values:
            state.free(self._number)


class GetValues(QueuedAttempt[ValueTable]):
    """Returns the arrays of a number without removing them.

    Args:
      number: the number.
    """

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def advance(self, state: ValueTable) -> bool:
        values = state.values.get(self._number)
        if values is None:
            raise NotFoundError(f"{state} has no value {self._number}; it was freed, or never put")
        self.succeed(values)
        return True


class FreeValues(QueuedAttempt[ValueTable]):
    """Removes the arrays of several numbers; unknown numbers are ignored.

    Args:
      numbers: the numbers.
    """

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__()
        self._numbers = numbers

    def advance(self, state: ValueTable) -> bool:
        for number in self._numbers:
            state.free(number)
        self.succeed()
        return True


def _put(number: Array, *values: Array) -> Attempt:
    return PutValues(number.item(), values)


def _get(number: Array) -> Attempt:
    return GetValues(number.item())


def _free(numbers: Array) -> Attempt:
    return FreeValues(numbers.tolist())


KERNELS: Mapping[str, Kernel] = {
    "value_table.put": single_attempt(_put),
    "value_table.get": single_attempt(_get),
    "value_table.free": single_attempt(_free),
}


def _make(spec: ValueTableSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return ValueTable(spec, name)


VALUE_TABLE = Kind("value_table", ValueTableSpec, _make, ValueTableSnapshot, KERNELS)
