"""Configuration of a process in a cluster, under TensorFlow's name tf.estimator."""

from jflow import tracebacks as _tracebacks
from jflow.cluster.estimator import RunConfig as RunConfig

_tracebacks.end_here(globals())
