"""The time that a call has, for everything that the call waits for."""

from jflow.deadline.deadline import FOREVER as FOREVER
from jflow.deadline.deadline import Deadline as Deadline
from jflow.deadline.seconds import seconds_text as seconds_text
