"""The coordinator, under the names of tf.distribute.coordinator."""

from jflow.base import tracebacks as _tracebacks
from jflow.training.coordinator import ClusterCoordinator as ClusterCoordinator
from jflow.training.coordinator import PerWorkerValues as PerWorkerValues
from jflow.training.coordinator import RemoteValue as RemoteValue
from jflow.training.parameter_servers import (
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)

_tracebacks.end_here(globals())
