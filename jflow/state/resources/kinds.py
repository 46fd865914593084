"""The registry of resource kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from jflow.errors import InvalidArgumentError
from jflow.plan import ResourceSpec
from jflow.state.effects import SavedLedger, SavedWindows
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.accumulator import ACCUMULATOR
from jflow.state.resources.iterator_state import ITERATOR_STATE
from jflow.state.resources.kernel import Kernel
from jflow.state.resources.kind import Kind
from jflow.state.resources.lookup_table import LOOKUP_TABLE
from jflow.state.resources.queue import QUEUE
from jflow.state.resources.random_state import RANDOM_STATE
from jflow.state.resources.reader import READER
from jflow.state.resources.snapshot import PackedSnapshot, Snapshot, Snapshottable, check_count
from jflow.state.resources.spec import Spec
from jflow.state.resources.value_table import VALUE_TABLE


class LedgerSpec(Spec, frozen=True):
    """The spec of every ledger; it has no parameters."""

    what = "ledger of effects"


@dataclass(frozen=True, eq=False)
class LedgerSnapshot:
    """The saved ledger of a task, as checkpoints store it."""

    ledger: SavedLedger

    @property
    def spec(self) -> LedgerSpec:
        """See `Snapshot`."""
        return LedgerSpec()

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        return PackedSnapshot(self.ledger.saved.to_bytes(), self.ledger.arrays)

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        windows = SavedWindows.from_bytes(packed.record)
        check_count(packed.arrays, windows.n_arrays, LedgerSpec.what)
        return cls(SavedLedger(windows, packed.arrays))


KINDS: tuple[Kind[Any], ...] = (
    ACCUMULATOR,
    ITERATOR_STATE,
    LOOKUP_TABLE,
    QUEUE,
    RANDOM_STATE,
    READER,
    VALUE_TABLE,
)
"""All kinds of resources; a new kind is a module or package, and an entry here."""

_BY_NAME: Mapping[str, Kind[Any]] = {kind.name: kind for kind in KINDS}

_SNAPSHOTS: Mapping[str, type[Snapshot]] = {
    **{kind.name: kind.snapshot for kind in KINDS},
    "effects": LedgerSnapshot,
}
"""The snapshot classes, by kind, of what checkpoints keep beside variables."""

KERNELS: Mapping[str, Kernel] = {
    name: kernel for kind in KINDS for name, kernel in kind.kernels.items()
}
"""The kernels of all kinds, by name."""


TRANSIENT: frozenset[str] = frozenset().union(*(kind.transient_kernels for kind in KINDS))
"""The kernels that leave nothing behind which a checkpoint has."""


def make(spec: ResourceSpec, roots: AllowedDirectories) -> Snapshottable:
    """Creates the resource that a plan's spec describes.

    Args:
      spec: the description.
      roots: the directories that it may read.

    Raises:
      InvalidArgumentError: if the description is malformed.
    """
    return kind_of(spec).make(_definition(spec), spec.name, roots)


def restored(kind: str, name: str, snapshot: Snapshot, roots: AllowedDirectories) -> Snapshottable:
    """Creates a resource from a snapshot.

    Args:
      kind: the kind of resource.
      name: its name, for messages.
      snapshot: the state.
      roots: the directories that it may read.

    Raises:
      InvalidArgumentError: if the snapshot is of another kind, or inconsistent.
      ResourceExhaustedError: if there is not enough memory.
    """
    known_kind = _kind(kind, kind)
    if not isinstance(snapshot, known_kind.snapshot):
        raise InvalidArgumentError(
            f"cannot restore {kind} {name!r}: expected a {known_kind.snapshot.__name__}, got a "
            f"{type(snapshot).__name__}"
        )
    resource = known_kind.make(snapshot.spec, name, roots)
    resource.restore(snapshot)
    return resource


def packed(snapshot: Snapshot) -> tuple[str, PackedSnapshot]:
    """Returns the kind of a snapshot's resource, and the snapshot as bytes and arrays.

    Raises:
      InvalidArgumentError: if it is not the snapshot of a kind, or too long.
    """
    for name, kind in _SNAPSHOTS.items():
        if isinstance(snapshot, kind):
            return name, snapshot.packed()
    raise InvalidArgumentError(f"a {type(snapshot).__name__} is not the snapshot of a resource")


def unpacked(kind: str, saved: PackedSnapshot) -> Snapshot:
    """Returns the snapshot from which `packed` made these bytes and arrays.

    Raises:
      InvalidArgumentError: if the kind is unknown, or the record malformed.
    """
    snapshot_class = _SNAPSHOTS.get(kind) or _kind(kind, kind).snapshot
    return snapshot_class.unpacked(saved)


def check_same(resource: Any, spec: ResourceSpec) -> None:
    """Raises InvalidArgumentError if a resource does not match its spec in a plan."""
    _definition(spec).check_same(resource.spec, spec.name)


def kind_of(spec: ResourceSpec) -> Kind[Any]:
    """Returns the kind of a resource in a plan. Raises InvalidArgumentError if it is unknown."""
    return _kind(spec.kind, spec)


def _kind(name: str, described: object) -> Kind[Any]:
    kind = _BY_NAME.get(name)
    if kind is None:
        raise InvalidArgumentError(
            f"unknown kind of resource in {described}; expected one of {', '.join(_BY_NAME)}"
        )
    return kind


def _definition(spec: ResourceSpec) -> Any:
    return kind_of(spec).spec.from_bytes(spec.definition)
