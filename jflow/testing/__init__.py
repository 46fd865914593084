"""What tests of code on a cluster need: backends, processes, failpoints, a fault proxy, a clock.

`pip install 'jflow[testing]'`; docs/testing.md shows how to use it. Only `jflow.testing.fixtures`
needs pytest. Nothing in jflow imports this room.
"""

from jflow.failpoints.actions import CallFunction as CallFunction
from jflow.failpoints.actions import Delay as Delay
from jflow.failpoints.actions import FailpointAction as FailpointAction
from jflow.failpoints.actions import Kill as Kill
from jflow.failpoints.actions import Pass as Pass
from jflow.failpoints.actions import Pause as Pause
from jflow.failpoints.actions import Raise as Raise
from jflow.launch.zygote import Zygote as Zygote
from jflow.testing.backends import BACKENDS as BACKENDS
from jflow.testing.backends import BackendPool as BackendPool
from jflow.testing.backends import BackendUnderTest as BackendUnderTest
from jflow.testing.backends import in_process as in_process
from jflow.testing.backends import local as local
from jflow.testing.backends import processes as processes
from jflow.testing.backends import start_servers as start_servers
from jflow.testing.clock import VirtualClock as VirtualClock
from jflow.testing.failpoints import FAILPOINTS as FAILPOINTS
from jflow.testing.failpoints import failpoints as failpoints
from jflow.testing.fault_proxy import FaultProxy as FaultProxy
from jflow.testing.leaks import no_leaks as no_leaks
from jflow.testing.ports import free_hosts as free_hosts
from jflow.testing.ports import free_ports as free_ports
from jflow.testing.processes import ProcessCluster as ProcessCluster
from jflow.testing.programs import ProgramProcess as ProgramProcess
from jflow.testing.programs import run_program as run_program
from jflow.testing.waiting import PATIENCE_S as PATIENCE_S
from jflow.testing.waiting import cpu_time as cpu_time
from jflow.testing.waiting import wait_until as wait_until
from jflow.testing.waiting import wait_until_async as wait_until_async
