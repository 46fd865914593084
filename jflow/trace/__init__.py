"""Traces of steps, measured or simulated: spans and transfers on one clock, and their formats."""

from jflow.trace.spans import Span as Span
from jflow.trace.spans import Transfer as Transfer
from jflow.trace.trace import Trace as Trace
from jflow.trace.trace import merged as merged
