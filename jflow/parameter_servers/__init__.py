"""Training with parameter servers: a strategy, per-worker variables, datasets for workers."""

from jflow.parameter_servers.datasets import DistributedDataset as DistributedDataset
from jflow.parameter_servers.datasets import InputContext as InputContext
from jflow.parameter_servers.partitioners import (
    FixedShardsPartitioner as FixedShardsPartitioner,
)
from jflow.parameter_servers.partitioners import MaxSizePartitioner as MaxSizePartitioner
from jflow.parameter_servers.partitioners import MinSizePartitioner as MinSizePartitioner
from jflow.parameter_servers.partitioners import VariablePartitioner as VariablePartitioner
from jflow.parameter_servers.per_worker import PerWorkerVariable as PerWorkerVariable
from jflow.parameter_servers.per_worker import bound_to as bound_to
from jflow.parameter_servers.replicas import PerReplica as PerReplica
from jflow.parameter_servers.replicas import ReduceOp as ReduceOp
from jflow.parameter_servers.strategy import ParameterServerStrategy as ParameterServerStrategy
from jflow.parameter_servers.worker_index import (
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)
from jflow.parameter_servers.worker_index import worker_index_p as worker_index_p
