"""The definition of iterator states."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.state.resources.spec import Spec


@dataclass(frozen=True)
class IteratorStateSpec(Spec):
    """The spec of every iterator state; it has no parameters."""

    what = "iterator state"
