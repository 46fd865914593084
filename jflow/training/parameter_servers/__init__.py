"""Training with parameter servers: a strategy, per-worker variables, datasets for workers."""

from jflow.training.parameter_servers.datasets import DistributedDataset as DistributedDataset
from jflow.training.parameter_servers.datasets import InputContext as InputContext
from jflow.training.parameter_servers.per_worker import PerWorkerVariable as PerWorkerVariable
from jflow.training.parameter_servers.per_worker import bound_to as bound_to
from jflow.training.parameter_servers.per_worker import (
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)
from jflow.training.parameter_servers.per_worker import worker_index_p as worker_index_p
from jflow.training.parameter_servers.replicas import PerReplica as PerReplica
from jflow.training.parameter_servers.replicas import ReduceOp as ReduceOp
from jflow.training.parameter_servers.strategy import (
    ParameterServerStrategy as ParameterServerStrategy,
)
