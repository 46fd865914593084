"""Configuration of a process in a cluster, under TensorFlow's name tf.contrib.learn."""

from jflow.base import tracebacks as _tracebacks
from jflow.base.cluster.learn import RunConfig as RunConfig

_tracebacks.end_here(globals())
