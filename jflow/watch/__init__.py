"""What a task tells its watchers, as records; it is made when it is requested only."""

from jflow.watch.records import KINDS as KINDS
from jflow.watch.records import MAX_ITEMS as MAX_ITEMS
from jflow.watch.records import MAX_NAME as MAX_NAME
from jflow.watch.records import ContainerStatus as ContainerStatus
from jflow.watch.records import DeviceStatus as DeviceStatus
from jflow.watch.records import QueueStatus as QueueStatus
from jflow.watch.records import SessionStatus as SessionStatus
from jflow.watch.records import SessionWait as SessionWait
from jflow.watch.records import SessionWaits as SessionWaits
from jflow.watch.records import StatusRequest as StatusRequest
from jflow.watch.records import StepStatus as StepStatus
from jflow.watch.records import TaskReport as TaskReport
from jflow.watch.records import TaskState as TaskState
from jflow.watch.records import TaskStatus as TaskStatus
from jflow.watch.records import ThreadStatus as ThreadStatus
from jflow.watch.records import VariableStatus as VariableStatus
from jflow.watch.records import WaitStatus as WaitStatus
from jflow.watch.records import WatchedTask as WatchedTask
from jflow.watch.records import short_name as short_name
