"""The definition of readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from jflow.errors import InvalidArgumentError
from jflow.state.resources.spec import Spec


class ReaderSpec(Spec, frozen=True):
    """The kind of a reader, and the options of that kind.

    Attributes:
      kind: the kind of records, such as "TextLineReader".
      options: keyword arguments for opening each work item.
    """

    what = "reader"

    kind: str
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def facts(self) -> Iterator[tuple[str, Any]]:
        yield "kind", self.kind
        yield "options", self.options

    def check_same(self, found: ReaderSpec, name: str) -> None:
        if self != found:
            raise InvalidArgumentError(
                f"Shared reader {name!r} has a different definition. Expected {self.kind} with "
                f"{self.options}, found {found.kind} with {found.options}; use another name or "
                "container, or reset the container"
            )
