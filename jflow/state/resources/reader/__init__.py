"""Readers: the position in a sequence of work items, kept between steps and sessions."""

from jflow.state.records import open_records
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.kind import Kind
from jflow.state.resources.reader.kernels import KERNELS
from jflow.state.resources.reader.state import AcquireReader as AcquireReader
from jflow.state.resources.reader.state import ReaderSnapshot as ReaderSnapshot
from jflow.state.resources.reader.state import ReaderSpec as ReaderSpec
from jflow.state.resources.reader.state import ReaderState as ReaderState
from jflow.state.resources.reader.state import ReleaseReader as ReleaseReader
from jflow.state.resources.snapshot import Snapshottable


def _make(spec: ReaderSpec, name: str, roots: AllowedDirectories) -> Snapshottable:
    return ReaderState(
        spec,
        name,
        lambda work, position: open_records(spec.kind, work, spec.options, roots, position),
    )


READER = Kind(
    "reader",
    ReaderSpec,
    _make,
    ReaderSnapshot,
    KERNELS,
    slow_kernels=frozenset(KERNELS),
    transient_kernels=frozenset({"reader.read_file"}),
)
