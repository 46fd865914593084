"""Iterator states: the saved position of an input pipeline."""

from jflow.records.allowed_directories import AllowedDirectories
from jflow.resources.iterator_state.kernels import KERNELS
from jflow.resources.iterator_state.snapshot import (
    IteratorStateSnapshot as IteratorStateSnapshot,
)
from jflow.resources.iterator_state.spec import IteratorStateSpec as IteratorStateSpec
from jflow.resources.iterator_state.state import SavedIteratorState as SavedIteratorState
from jflow.resources.iterator_state.state import SaveIteratorState as SaveIteratorState
from jflow.resources.kind import Kind
from jflow.resources.snapshot import Snapshottable


def _make(spec: IteratorStateSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return SavedIteratorState(spec, name)


ITERATOR_STATE = Kind("iterator_state", IteratorStateSpec, _make, IteratorStateSnapshot, KERNELS)
