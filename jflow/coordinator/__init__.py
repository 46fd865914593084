"""Functions scheduled onto workers that may fail: a coordinator, its results and its datasets."""

from jflow.coordinator.coordinator import ClusterCoordinator as ClusterCoordinator
from jflow.coordinator.errors import ClosureInputError as ClosureInputError
from jflow.coordinator.metrics import CoordinatorMetrics as CoordinatorMetrics
from jflow.coordinator.metrics import Sampled as Sampled
from jflow.coordinator.per_worker import PerWorkerDataset as PerWorkerDataset
from jflow.coordinator.per_worker import PerWorkerValues as PerWorkerValues
from jflow.coordinator.remote_value import RemoteValue as RemoteValue
from jflow.coordinator.remote_value import RemoteValueStatus as RemoteValueStatus
