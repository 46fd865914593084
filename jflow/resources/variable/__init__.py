"""Variables: values on devices, and the order in which steps use them."""

from jflow.resources.variable.access import Access as Access
from jflow.resources.variable.access import AccessQueue as AccessQueue
from jflow.resources.variable.state import Buffer as Buffer
from jflow.resources.variable.state import Lease as Lease
from jflow.resources.variable.state import VariableState as VariableState
from jflow.resources.variable.state import Write as Write
from jflow.resources.variable.state import is_computed as is_computed
