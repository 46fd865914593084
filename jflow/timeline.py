"""Traces of steps for a browser, under TensorFlow's name tf.timeline."""

from jflow.base import tracebacks as _tracebacks
from jflow.plan.trace.step_stats import ChromeTimeline as Timeline

__all__ = ["Timeline"]

_tracebacks.end_here(globals())
