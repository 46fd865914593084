"""Configuration of a process in a cluster, under TensorFlow's name tf.estimator."""

from jflow.cluster.estimator import RunConfig as RunConfig
from jflow.graph import tracebacks as _tracebacks

_tracebacks.end_here(globals())
