"""Iterator states: the saved position of an input pipeline."""

from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.iterator_state.kernels import KERNELS
from jflow.state.resources.iterator_state.snapshot import (
    IteratorStateSnapshot as IteratorStateSnapshot,
)
from jflow.state.resources.iterator_state.spec import IteratorStateSpec as IteratorStateSpec
from jflow.state.resources.iterator_state.state import SavedIteratorState as SavedIteratorState
from jflow.state.resources.iterator_state.state import SaveIteratorState as SaveIteratorState
from jflow.state.resources.kind import Kind
from jflow.state.resources.snapshot import Snapshottable


def _make(spec: IteratorStateSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return SavedIteratorState(spec, name)


ITERATOR_STATE = Kind("iterator_state", IteratorStateSpec, _make, IteratorStateSnapshot, KERNELS)
