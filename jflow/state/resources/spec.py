"""`Spec`: the definition of a resource, encoded as a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from jflow.base.packing import Record
from jflow.errors import InvalidArgumentError


class Spec(Record, frozen=True):
    """Base of the definitions of resources, one frozen record class for each kind.

    Attributes:
      restored_facts: names of facts in which a snapshot may differ from the resource that is
        restored from it, because the state that it contains makes up for the difference.
    """

    restored_facts: ClassVar[frozenset[str]] = frozenset()

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yields the name and value of each property in which resources of this kind can differ."""
        yield from ()

    def accepts(self, fact: str, wanted: Any, found: Any) -> bool:
        """Whether a graph that expects one value of a fact can use a resource with another one."""
        return bool(wanted == found)

    def check_same(self, found: Self, name: str) -> None:
        """Checks that an existing resource matches the one that a graph expects.

        Args:
          found: the spec of the existing resource.
          name: its name, for the message.

        Raises:
          InvalidArgumentError: with the first fact in which the two specs differ.
        """
        for (fact, wanted), (_, present) in zip(self.facts(), found.facts(), strict=True):
            if not self.accepts(fact, wanted, present):
                raise InvalidArgumentError(
                    f"Shared {self.what} {name!r} has another {fact}. Expected {wanted}, found "
                    f"{present}; use another name or container, or reset the container"
                )
