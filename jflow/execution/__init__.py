"""Running plans on the devices of this process: the interpreter, variables, host functions."""

from jflow.execution.devices import local_devices as local_devices
from jflow.execution.devices import put as put
from jflow.execution.inline import LocalExecutable as LocalExecutable
from jflow.execution.link import LinkedCall as LinkedCall
from jflow.execution.link import LinkedKernel as LinkedKernel
from jflow.execution.link import LinkedPlan as LinkedPlan
from jflow.execution.link import LinkedRun as LinkedRun
from jflow.execution.link import link as link
from jflow.execution.memory import memory_limits as memory_limits
from jflow.execution.step_state import StepState as StepState
