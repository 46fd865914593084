"""Lookup tables: values by key, which are set once and kept between steps and sessions."""

from jflow.state.records import open_records
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.kind import Kind
from jflow.state.resources.lookup_table.kernels import KERNELS, SLOW_KERNELS
from jflow.state.resources.lookup_table.state import INTEGERS as INTEGERS
from jflow.state.resources.lookup_table.state import LookupTable as LookupTable
from jflow.state.resources.lookup_table.state import LookupTableSnapshot as LookupTableSnapshot
from jflow.state.resources.lookup_table.state import LookupTableSpec as LookupTableSpec
from jflow.state.resources.lookup_table.text_file import LINE_NUMBER as LINE_NUMBER
from jflow.state.resources.lookup_table.text_file import WHOLE_LINE as WHOLE_LINE
from jflow.state.resources.snapshot import Snapshottable


def _make(spec: LookupTableSpec, name: str, roots: AllowedDirectories) -> Snapshottable:
    return LookupTable(spec, name, lambda file: open_records("TextLineReader", file, {}, roots))


LOOKUP_TABLE = Kind(
    "lookup_table",
    LookupTableSpec,
    _make,
    LookupTableSnapshot,
    KERNELS,
    slow_kernels=frozenset(SLOW_KERNELS),
    transient_kernels=frozenset(KERNELS),
)
