"""State that outlives a step: containers, and the variables, queues and other resources in them.

Each kind of resource is a package of this room (spec, state, kernels, snapshot) and an entry in
`kinds.py`. Names that belong to one kind are imported from its package; the names exported here are
shared by all kinds or belong to variables.
"""

from jflow.resources.attempt import Attempt as Attempt
from jflow.resources.attempt import Resource as Resource
from jflow.resources.cell import Cell as Cell
from jflow.resources.containers import Containers as Containers
from jflow.resources.kernel import Kernel as Kernel
from jflow.resources.kernel import Wanted as Wanted
from jflow.resources.kernel import wait_for as wait_for
from jflow.resources.kinds import KERNELS as KERNELS
from jflow.resources.manager import ResourceId as ResourceId
from jflow.resources.manager import ResourceManager as ResourceManager
from jflow.resources.snapshot import Snapshot as Snapshot
from jflow.resources.transaction import EnterTransaction as EnterTransaction
from jflow.resources.transaction import SingleWrite as SingleWrite
from jflow.resources.transaction import Transaction as Transaction
from jflow.resources.variable import Access as Access
from jflow.resources.variable import AccessQueue as AccessQueue
from jflow.resources.variable import Buffer as Buffer
from jflow.resources.variable import Lease as Lease
from jflow.resources.variable import LeasedVariable as LeasedVariable
from jflow.resources.variable import VariableCut as VariableCut
from jflow.resources.variable import VariableId as VariableId
from jflow.resources.variable import VariableSnapshot as VariableSnapshot
from jflow.resources.variable import VariableState as VariableState
from jflow.resources.variable import Write as Write
from jflow.resources.variable import is_computed as is_computed
from jflow.resources.writing import CloseWriting as CloseWriting
from jflow.resources.writing import EnterWriting as EnterWriting
from jflow.resources.writing import Writing as Writing
