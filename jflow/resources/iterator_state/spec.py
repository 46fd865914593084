"""What an iterator state is made as."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.resources.spec import Spec


@dataclass(frozen=True)
class IteratorStateSpec(Spec):
    """The spec of every iterator state: they do not differ."""

    what = "iterator state"
