"""Traces of steps, measured or simulated: spans and transfers on one clock, and their formats."""

from jflow.plan.trace.spans import Span as Span
from jflow.plan.trace.spans import Transfer as Transfer
from jflow.plan.trace.trace import Trace as Trace
from jflow.plan.trace.trace import merged as merged
