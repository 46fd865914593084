"""Distribution strategies, under the names of TensorFlow's tf.distribute."""

from jflow.base import tracebacks as _tracebacks
from jflow.client.variables import ShardedVariable as ShardedVariable
from jflow.distribute import cluster_resolver as cluster_resolver
from jflow.distribute import coordinator as coordinator
from jflow.distribute import experimental as experimental
from jflow.training.keras_fit import DistributedFit as DistributedFit
from jflow.training.keras_fit import distribute_fit as distribute_fit
from jflow.training.parameter_servers import DistributedDataset as DistributedDataset
from jflow.training.parameter_servers import InputContext as InputContext
from jflow.training.parameter_servers import ParameterServerStrategy as ParameterServerStrategy
from jflow.training.parameter_servers import PerReplica as PerReplica
from jflow.training.parameter_servers import PerWorkerVariable as PerWorkerVariable
from jflow.training.parameter_servers import ReduceOp as ReduceOp

_tracebacks.end_here(globals())
