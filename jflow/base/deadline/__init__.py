"""Deadlines of calls, pauses between attempts, and notices of long waits."""

from jflow.base.deadline.backoff import backoff as backoff
from jflow.base.deadline.deadline import FOREVER as FOREVER
from jflow.base.deadline.deadline import Deadline as Deadline
