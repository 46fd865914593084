"""What tests of code on a cluster need: backends, processes, failpoints, a fault proxy, a clock.

`pip install 'jflow[testing]'`; docs/testing.md shows how to use it. Only `jflow.testing.fixtures`
needs pytest. Nothing in jflow imports this package.
"""

from jflow.base.failpoints.actions import CallFunction as CallFunction
from jflow.base.failpoints.actions import Delay as Delay
from jflow.base.failpoints.actions import FailpointAction as FailpointAction
from jflow.base.failpoints.actions import Kill as Kill
from jflow.base.failpoints.actions import Pass as Pass
from jflow.base.failpoints.actions import Pause as Pause
from jflow.base.failpoints.actions import Raise as Raise
from jflow.launch.testing.backends import BACKENDS as BACKENDS
from jflow.launch.testing.backends import BackendPool as BackendPool
from jflow.launch.testing.backends import BackendUnderTest as BackendUnderTest
from jflow.launch.testing.backends import in_process as in_process
from jflow.launch.testing.backends import local as local
from jflow.launch.testing.backends import processes as processes
from jflow.launch.testing.backends import start_servers as start_servers
from jflow.launch.testing.clock import VirtualClock as VirtualClock
from jflow.launch.testing.failpoints import FAILPOINTS as FAILPOINTS
from jflow.launch.testing.failpoints import failpoints as failpoints
from jflow.launch.testing.fault_proxy import FaultProxy as FaultProxy
from jflow.launch.testing.leaks import no_leaks as no_leaks
from jflow.launch.testing.processes import ProcessCluster as ProcessCluster
from jflow.launch.testing.programs import ProgramProcess as ProgramProcess
from jflow.launch.testing.programs import free_hosts as free_hosts
from jflow.launch.testing.programs import free_ports as free_ports
from jflow.launch.testing.programs import run_program as run_program
from jflow.launch.testing.waiting import PATIENCE_S as PATIENCE_S
from jflow.launch.testing.waiting import cpu_time as cpu_time
from jflow.launch.testing.waiting import wait_until as wait_until
from jflow.launch.testing.waiting import wait_until_async as wait_until_async
from jflow.launch.zygote import Zygote as Zygote
