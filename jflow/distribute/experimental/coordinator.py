"""The coordinator, under the names of tf.distribute.experimental.coordinator."""

from jflow import tracebacks as _tracebacks
from jflow.coordinator import ClusterCoordinator as ClusterCoordinator
from jflow.coordinator import PerWorkerValues as PerWorkerValues
from jflow.coordinator import RemoteValue as RemoteValue

_tracebacks.end_here(globals())
