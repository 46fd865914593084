"""Variables: values on devices, and the order in which steps access them."""

from jflow.state.resources.variable.access import Access as Access
from jflow.state.resources.variable.access import AccessQueue as AccessQueue
from jflow.state.resources.variable.access import Cut as Cut
from jflow.state.resources.variable.snapshot import LeasedVariable as LeasedVariable
from jflow.state.resources.variable.snapshot import RestoreVariables as RestoreVariables
from jflow.state.resources.variable.snapshot import VariableCut as VariableCut
from jflow.state.resources.variable.snapshot import VariableId as VariableId
from jflow.state.resources.variable.snapshot import VariableSnapshot as VariableSnapshot
from jflow.state.resources.variable.snapshot import declared_shape as declared_shape
from jflow.state.resources.variable.snapshot import renamed as renamed
from jflow.state.resources.variable.state import Buffer as Buffer
from jflow.state.resources.variable.state import Lease as Lease
from jflow.state.resources.variable.state import VariableState as VariableState
from jflow.state.resources.variable.state import Write as Write
from jflow.state.resources.variable.state import is_computed as is_computed
