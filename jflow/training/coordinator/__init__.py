"""Functions scheduled onto workers that may fail: a coordinator, its results and its datasets."""

from jflow.training.coordinator.coordinator import ClusterCoordinator as ClusterCoordinator
from jflow.training.coordinator.losses import ClosureInputError as ClosureInputError
from jflow.training.coordinator.metrics import CoordinatorMetrics as CoordinatorMetrics
from jflow.training.coordinator.metrics import Sampled as Sampled
from jflow.training.coordinator.per_worker import PerWorkerDataset as PerWorkerDataset
from jflow.training.coordinator.per_worker import PerWorkerValues as PerWorkerValues
from jflow.training.coordinator.remote_value import RemoteValue as RemoteValue
from jflow.training.coordinator.remote_value import RemoteValueStatus as RemoteValueStatus
