"""Value tables: arrays that a step leaves on a task for later steps."""

from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.kind import Kind
from jflow.state.resources.snapshot import Snapshottable
from jflow.state.resources.value_table.kernels import KERNELS
from jflow.state.resources.value_table.snapshot import ValueTableSnapshot as ValueTableSnapshot
from jflow.state.resources.value_table.spec import ValueTableSpec as ValueTableSpec
from jflow.state.resources.value_table.state import FreeValues as FreeValues
from jflow.state.resources.value_table.state import GetValues as GetValues
from jflow.state.resources.value_table.state import PutValues as PutValues
from jflow.state.resources.value_table.state import ValueTable as ValueTable


def _make(spec: ValueTableSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return ValueTable(spec, name)


VALUE_TABLE = Kind("value_table", ValueTableSpec, _make, ValueTableSnapshot, KERNELS)
