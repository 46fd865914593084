"""Who runs plans: frames, turns on variables, transfers between parts."""

from jflow.worker.bound import BoundPlan as BoundPlan
from jflow.worker.bound import BoundRun as BoundRun
from jflow.worker.bound import bind as bind
from jflow.worker.devices import local_devices as local_devices
from jflow.worker.devices import put as put
from jflow.worker.frame import Frame as Frame
from jflow.worker.inline import InlineStep as InlineStep
from jflow.worker.part import Transport as Transport
from jflow.worker.part import all_of as all_of
from jflow.worker.worker import Worker as Worker
