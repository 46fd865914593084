"""State that outlives a step: containers, and the variables, queues and other resources in them.

Each kind of resource is a package of this room (spec, state, kernels, snapshot) and an entry in
`kinds.py`. Names that belong to one kind are imported from its package; the names exported here are
shared by all kinds or belong to variables.
"""

from jflow.state.resources.attempt import Attempt as Attempt
from jflow.state.resources.attempt import Resource as Resource
from jflow.state.resources.cell import Cell as Cell
from jflow.state.resources.containers import Containers as Containers
from jflow.state.resources.kernel import Kernel as Kernel
from jflow.state.resources.kernel import Wanted as Wanted
from jflow.state.resources.kernel import wait_for as wait_for
from jflow.state.resources.kinds import KERNELS as KERNELS
from jflow.state.resources.kinds import TRANSIENT as TRANSIENT
from jflow.state.resources.manager import ResourceId as ResourceId
from jflow.state.resources.manager import ResourceManager as ResourceManager
from jflow.state.resources.snapshot import Snapshot as Snapshot
from jflow.state.resources.transaction import EnterTransaction as EnterTransaction
from jflow.state.resources.transaction import SingleWrite as SingleWrite
from jflow.state.resources.transaction import Transaction as Transaction
from jflow.state.resources.variable import Access as Access
from jflow.state.resources.variable import AccessQueue as AccessQueue
from jflow.state.resources.variable import Buffer as Buffer
from jflow.state.resources.variable import Lease as Lease
from jflow.state.resources.variable import LeasedVariable as LeasedVariable
from jflow.state.resources.variable import VariableCut as VariableCut
from jflow.state.resources.variable import VariableId as VariableId
from jflow.state.resources.variable import VariableSnapshot as VariableSnapshot
from jflow.state.resources.variable import VariableState as VariableState
from jflow.state.resources.variable import Write as Write
from jflow.state.resources.variable import is_computed as is_computed
from jflow.state.resources.writing import CloseWriting as CloseWriting
from jflow.state.resources.writing import EnterWriting as EnterWriting
from jflow.state.resources.writing import Writing as Writing
