"""Deadlines of calls."""

from jflow.deadline.deadline import FOREVER as FOREVER
from jflow.deadline.deadline import Deadline as Deadline
