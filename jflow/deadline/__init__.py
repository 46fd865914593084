"""Deadlines of calls."""

from jflow.deadline.deadline import FOREVER as FOREVER
from jflow.deadline.deadline import Deadline as Deadline
from jflow.deadline.seconds import seconds_text as seconds_text
