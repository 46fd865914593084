"""`Spec`: the definition of a resource, which travels as a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from jflow.errors import InvalidArgumentError
from jflow.packing import Record


class Spec(Record):
    """The definition of a resource; a frozen dataclass for each kind of resource."""

    def facts(self) -> Iterator[tuple[str, Any]]:
        """What two resources of this kind may differ in, as messages say it; nothing by default."""
        yield from ()

    def accepts(self, fact: str, wanted: Any, found: Any) -> bool:
        """Whether a resource with another value of a fact is one that a graph can use."""
        return bool(wanted == found)

    def check_same(self, found: Self, name: str) -> None:
        """Refuses an existing resource that is not what a graph expects.

        Args:
          found: what the resource was made as.
          name: its name, for the message.

        Raises:
          InvalidArgumentError: saying the first fact in which they differ.
        """
        for (fact, wanted), (_, present) in zip(self.facts(), found.facts(), strict=True):
            if not self.accepts(fact, wanted, present):
                raise InvalidArgumentError(
                    f"Shared {self.what} {name!r} has another {fact}. Expected {wanted}, found "
                    f"{present}; use another name or container, or reset the container"
                )
