"""Drivers: what runs the coroutines of the core, on an event loop or in the threads of callers.

A coroutine of `jflow.core` waits for events, timers, work in threads and other coroutines, all by
the methods of a `CoreDriver`. A server gives it a `LoopDriver`, a local session a `ThreadDriver`; a
test may give it one whose time is not real. So what a task does with its state is written once.
"""

from jflow.drivers.coroutines import Started as Started
from jflow.drivers.coroutines import Waited as Waited
from jflow.drivers.coroutines import completing as completing
from jflow.drivers.driver import CoreDriver as CoreDriver
from jflow.drivers.driver import Event as Event
from jflow.drivers.driver import Job as Job
from jflow.drivers.driver import TimerHandle as TimerHandle
from jflow.drivers.fibers import Fibers as Fibers
from jflow.drivers.loop import LoopDriver as LoopDriver
from jflow.drivers.threads import ThreadDriver as ThreadDriver
