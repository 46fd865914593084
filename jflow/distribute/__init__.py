"""Distribution strategies, under the names of TensorFlow's tf.distribute."""

from jflow import tracebacks as _tracebacks
from jflow.distribute import cluster_resolver as cluster_resolver
from jflow.distribute import coordinator as coordinator
from jflow.distribute import experimental as experimental
from jflow.parameter_servers import DistributedDataset as DistributedDataset
from jflow.parameter_servers import InputContext as InputContext
from jflow.parameter_servers import ParameterServerStrategy as ParameterServerStrategy
from jflow.parameter_servers import PerReplica as PerReplica
from jflow.parameter_servers import PerWorkerVariable as PerWorkerVariable
from jflow.parameter_servers import ReduceOp as ReduceOp
from jflow.variables import ShardedVariable as ShardedVariable

_tracebacks.end_here(globals())
