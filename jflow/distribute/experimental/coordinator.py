"""The coordinator, under the names of tf.distribute.experimental.coordinator."""

from jflow.base import tracebacks as _tracebacks
from jflow.training.coordinator import ClusterCoordinator as ClusterCoordinator
from jflow.training.coordinator import PerWorkerValues as PerWorkerValues
from jflow.training.coordinator import RemoteValue as RemoteValue

_tracebacks.end_here(globals())
