"""Configuration of a process in a cluster, under TensorFlow's name tf.estimator."""

from jflow.base import tracebacks as _tracebacks
from jflow.base.cluster.estimator import RunConfig as RunConfig

_tracebacks.end_here(globals())
