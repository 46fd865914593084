"""Snapshots of resources: their state as frozen records, independent of later changes.

Each kind has one snapshot class. A snapshot carries the spec of its resource, plain values and host
arrays that nothing else refers to, and restores any resource with an equal spec, in any process.

What a snapshot contains follows from one rule: it is the state that the resource would have if all
its waiting attempts were cancelled now. Attempts belong to steps, which keep waiting, so nothing
of an attempt is saved, and what a waiting attempt has taken counts as not taken.

Restoring replaces the state and keeps the waiting attempts. What they had taken came from the
replaced state, so they drop it and start to take again; what they had added was part of that state,
so they go on with what is left to add. They are then tried again, because the new state may let
them complete. A completed attempt whose values nothing has read does not return them to the new
state. Restoring the latest snapshot therefore changes nothing, whatever waits: no element is lost
or duplicated.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from jflow.base.packing import Record
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, OpError
from jflow.state.resources.attempt import Attempt, Resource
from jflow.state.resources.spec import Spec


@dataclass(frozen=True, eq=False)
class PackedSnapshot:
    """A snapshot in its stored form: bytes and arrays.

    Attributes:
      record: all but the arrays.
      arrays: the arrays, in an order that the record determines.
    """

    record: bytes
    arrays: tuple[Array, ...] = ()


class Snapshot(Protocol):
    """The interface of the snapshots of all kinds."""

    @property
    def spec(self) -> Spec:
        """The spec of the resource that was saved."""

    def packed(self) -> PackedSnapshot:
        """Converts the snapshot to its stored form.

        Raises:
          InvalidArgumentError: if a text or list in it is longer than a record may hold.
        """

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """Converts the stored form back to a snapshot; consistency is checked only by a restore.

        Raises:
          InvalidArgumentError: if the record is malformed, or there are not as many arrays.
        """


Saved = TypeVar("Saved", bound=Snapshot)


class Snapshottable(Resource):
    """Base of resources that can be saved, restored and closed."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Returns a copy of the state.

        Raises:
          OpError: if the resource was closed; the error it was closed with.
          ResourceExhaustedError: if there is not enough memory for the copy.
        """

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> list[Attempt]:
        """Replaces the state with a copy of a snapshot; after an error it is unchanged.

        Returns:
          All attempts that this completed, in order.

        Raises:
          InvalidArgumentError: if the snapshot is of another kind or spec, or inconsistent.
          OpError: as `snapshot`.
          ResourceExhaustedError: as `snapshot`.
        """

    @abstractmethod
    def close(self, error: OpError) -> list[Attempt]:
        """Discards the state for good: waiting and later attempts fail with `error`.

        Returns:
          All attempts that this completed, in order.
        """


def checked(snapshot: Snapshot, expected: type[Saved], spec: Spec, resource: object) -> Saved:
    """Returns a snapshot unchanged after checking that its class and spec fit a resource.

    Args:
      snapshot: the snapshot.
      expected: the snapshot class of the resource's kind.
      spec: the definition of the resource.
      resource: the resource, for messages.

    Raises:
      InvalidArgumentError: if it is of another class, or its spec differs in a fact.
    """
    if not isinstance(snapshot, expected):
        raise InvalidArgumentError(
            f"cannot restore {resource}: expected a {expected.__name__}, got a "
            f"{type(snapshot).__name__}"
        )
    for (fact, wanted), (_, saved) in zip(spec.facts(), snapshot.spec.facts(), strict=True):
        if wanted != saved and fact not in spec.restored_facts:
            raise InvalidArgumentError(
                f"cannot restore {resource}: it has {fact} {wanted}, but the snapshot is of a "
                f"{spec.what} with {fact} {saved}"
            )
    return snapshot


def check_count(arrays: Sequence[Array], expected: int, what: str) -> None:
    """Raises InvalidArgumentError if a packed snapshot has another number of arrays."""
    if len(arrays) != expected:
        raise InvalidArgumentError(
            f"malformed {what}: expected {expected} arrays, got {len(arrays)}"
        )


class PlainSnapshot(Record, frozen=True):
    """Base of snapshots without arrays."""

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        return PackedSnapshot(self.to_bytes())

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        check_count(packed.arrays, 0, cls.what)
        return cls.from_bytes(packed.record)


def inconsistent(resource: object, problem: str) -> InvalidArgumentError:
    """Returns the error for a snapshot whose fields contradict each other or its spec."""
    return InvalidArgumentError(f"cannot restore {resource}: the snapshot is invalid: {problem}")
