"""Failpoints: named points in the code at which a test can raise, wait, or kill the process.

All are off unless `jflow.launch.testing.failpoints` switches some on, in its own process or, by an
environment variable, in processes that the test starts.
"""

import os

from jflow.base.failpoints.points import NAMES as NAMES
from jflow.base.failpoints.points import VARIABLE as VARIABLE
from jflow.base.failpoints.points import async_failpoint as async_failpoint
from jflow.base.failpoints.points import failpoint as failpoint

if VARIABLE in os.environ:
    from jflow.base.failpoints.actions import switch_on

    switch_on(os.environ[VARIABLE])
