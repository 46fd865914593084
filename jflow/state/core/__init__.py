"""The core: the operations of tasks on their state, and of masters on the state of all tasks.

Written once, as coroutines without I/O: they wait by a `CoreDriver` (`jflow.base.drivers`), reach
tasks by `TaskCalls`, and know no clock, thread, lock or socket. A server runs them on its event
loop, a local session in the threads of its callers.

A task has services, whose methods that are marked `remote` other tasks may call: `StateMoves`,
`StateSaves`, `TaskEffects`, `ClaimedRuns` and `TaskMembers`. A master acts on many tasks at once by
them: `StateMover`, `CheckpointSaver`, `EffectRunner` and `SessionClaim`; the remote methods of a
session's `ClusterState` and `ClusterMembers` are what its client may ask for.
"""

from jflow.state.core.claiming import SessionClaim as SessionClaim
from jflow.state.core.claims import ClaimedRuns as ClaimedRuns
from jflow.state.core.cluster_state import ClusterState as ClusterState
from jflow.state.core.commits import EffectRunner as EffectRunner
from jflow.state.core.effects import StepEffect as StepEffect
from jflow.state.core.effects import TaskEffects as TaskEffects
from jflow.state.core.effects import WritesOfTask as WritesOfTask
from jflow.state.core.membership import ClusterMembers as ClusterMembers
from jflow.state.core.membership import TaskMembers as TaskMembers
from jflow.state.core.mover import StateMover as StateMover
from jflow.state.core.moves import SavedState as SavedState
from jflow.state.core.moves import StateMoves as StateMoves
from jflow.state.core.remote import remote as remote
from jflow.state.core.saver import CheckpointSaver as CheckpointSaver
from jflow.state.core.saves import StateSaves as StateSaves
from jflow.state.core.task import RECONNECT_TIMEOUT_S as RECONNECT_TIMEOUT_S
from jflow.state.core.task import ClusterView as ClusterView
from jflow.state.core.task import TaskCore as TaskCore
from jflow.state.core.task import every as every
from jflow.state.core.task import is_of as is_of
from jflow.state.effects.effect import Staging as Staging
