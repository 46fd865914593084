"""Drivers: run the coroutines of the core, on an event loop or in the threads of their callers.

A coroutine of `jflow.state.core` waits for events, timers, work in threads and other coroutines,
all by the methods of a `CoreDriver`. A server gives it a `LoopDriver`, a local session a
`ThreadDriver`; a test may give it one whose time is not real. So what a task does with its state is
written once.
"""

from jflow.base.drivers.coroutines import Started as Started
from jflow.base.drivers.driver import CoreDriver as CoreDriver
from jflow.base.drivers.driver import Event as Event
from jflow.base.drivers.driver import Job as Job
from jflow.base.drivers.driver import TimerHandle as TimerHandle
from jflow.base.drivers.fibers import Fibers as Fibers
from jflow.base.drivers.loop import LoopDriver as LoopDriver
from jflow.base.drivers.threads import ThreadDriver as ThreadDriver
