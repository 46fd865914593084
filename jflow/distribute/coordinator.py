"""The coordinator, under the names of tf.distribute.coordinator."""

from jflow import tracebacks as _tracebacks
from jflow.coordinator import ClusterCoordinator as ClusterCoordinator
from jflow.coordinator import PerWorkerValues as PerWorkerValues
from jflow.coordinator import RemoteValue as RemoteValue
from jflow.parameter_servers import (
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)

_tracebacks.end_here(globals())
