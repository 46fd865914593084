"""Variables: values on devices, and the order in which steps access them."""

from jflow.resources.variable.access import Access as Access
from jflow.resources.variable.access import AccessQueue as AccessQueue
from jflow.resources.variable.access import Cut as Cut
from jflow.resources.variable.snapshot import LeasedVariable as LeasedVariable
from jflow.resources.variable.snapshot import RestoreVariables as RestoreVariables
from jflow.resources.variable.snapshot import VariableCut as VariableCut
from jflow.resources.variable.snapshot import VariableSnapshot as VariableSnapshot
from jflow.resources.variable.snapshot import declared_shape as declared_shape
from jflow.resources.variable.snapshot import renamed as renamed
from jflow.resources.variable.state import Buffer as Buffer
from jflow.resources.variable.state import Lease as Lease
from jflow.resources.variable.state import VariableState as VariableState
from jflow.resources.variable.state import Write as Write
from jflow.resources.variable.state import is_computed as is_computed
from jflow.resources.variable.variable_id import VariableId as VariableId
