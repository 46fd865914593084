"""The definition of iterator states."""

from __future__ import annotations

from jflow.state.resources.spec import Spec


class IteratorStateSpec(Spec, frozen=True):
    """The spec of every iterator state; it has no parameters."""

    what = "iterator state"
