"""Records in which a task describes itself to its watchers, made only on request."""

from jflow.state.watch.records import KINDS as KINDS
from jflow.state.watch.records import MAX_ITEMS as MAX_ITEMS
from jflow.state.watch.records import MAX_NAME as MAX_NAME
from jflow.state.watch.records import ContainerStatus as ContainerStatus
from jflow.state.watch.records import CoordinatorList as CoordinatorList
from jflow.state.watch.records import CoordinatorStatus as CoordinatorStatus
from jflow.state.watch.records import DeviceStatus as DeviceStatus
from jflow.state.watch.records import QueueStatus as QueueStatus
from jflow.state.watch.records import SessionStatus as SessionStatus
from jflow.state.watch.records import SessionWait as SessionWait
from jflow.state.watch.records import SessionWaits as SessionWaits
from jflow.state.watch.records import StatusRequest as StatusRequest
from jflow.state.watch.records import StepStatus as StepStatus
from jflow.state.watch.records import TaskReport as TaskReport
from jflow.state.watch.records import TaskState as TaskState
from jflow.state.watch.records import TaskStatus as TaskStatus
from jflow.state.watch.records import ThreadStatus as ThreadStatus
from jflow.state.watch.records import UsageStatus as UsageStatus
from jflow.state.watch.records import VariableStatus as VariableStatus
from jflow.state.watch.records import WaitStatus as WaitStatus
from jflow.state.watch.records import WatchedTask as WatchedTask
from jflow.state.watch.records import WorkerClosures as WorkerClosures
from jflow.state.watch.records import bounded_name as bounded_name
from jflow.state.watch.texts import abandoned_text as abandoned_text
from jflow.state.watch.texts import busy_text as busy_text
from jflow.state.watch.texts import client_text as client_text
