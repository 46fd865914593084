"""Running plans on the devices of this process: the interpreter, variables, host functions."""

from jflow.task.execution.devices import local_devices as local_devices
from jflow.task.execution.devices import put as put
from jflow.task.execution.inline import LocalExecutable as LocalExecutable
from jflow.task.execution.link import link as link
from jflow.task.execution.linked import LinkedCall as LinkedCall
from jflow.task.execution.linked import LinkedPlan as LinkedPlan
from jflow.task.execution.linked import LinkedRun as LinkedRun
from jflow.task.execution.memory import memory_limits as memory_limits
from jflow.task.execution.step_state import StepState as StepState
