"""Running plans on the devices of this process: frames, turns on variables, host functions."""

from jflow.execution.bound import BoundCall as BoundCall
from jflow.execution.bound import BoundOperation as BoundOperation
from jflow.execution.bound import BoundPlan as BoundPlan
from jflow.execution.bound import BoundRun as BoundRun
from jflow.execution.bound import bind as bind
from jflow.execution.devices import local_devices as local_devices
from jflow.execution.devices import put as put
from jflow.execution.frame import Frame as Frame
from jflow.execution.inline import InlineStep as InlineStep
