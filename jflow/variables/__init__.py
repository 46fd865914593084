"""Variables by name: scopes with reuse, initializers, partitioners and variables in parts."""

from jflow.variables.initializers import Constant as Constant
from jflow.variables.initializers import GlorotNormal as GlorotNormal
from jflow.variables.initializers import GlorotUniform as GlorotUniform
from jflow.variables.initializers import Identity as Identity
from jflow.variables.initializers import Initializer as Initializer
from jflow.variables.initializers import Ones as Ones
from jflow.variables.initializers import Orthogonal as Orthogonal
from jflow.variables.initializers import RandomNormal as RandomNormal
from jflow.variables.initializers import RandomUniform as RandomUniform
from jflow.variables.initializers import TruncatedNormal as TruncatedNormal
from jflow.variables.initializers import VarianceScaling as VarianceScaling
from jflow.variables.initializers import Zeros as Zeros
from jflow.variables.initializers import he_normal as he_normal
from jflow.variables.initializers import he_uniform as he_uniform
from jflow.variables.initializers import lecun_normal as lecun_normal
from jflow.variables.initializers import lecun_uniform as lecun_uniform
from jflow.variables.initializers import set_random_seed as set_random_seed
from jflow.variables.lookup import embedding_lookup as embedding_lookup
from jflow.variables.partitioned import PartitionedVariable as PartitionedVariable
from jflow.variables.partitioners import fixed_size_partitioner as fixed_size_partitioner
from jflow.variables.partitioners import (
    min_max_variable_partitioner as min_max_variable_partitioner,
)
from jflow.variables.partitioners import (
    variable_axis_size_partitioner as variable_axis_size_partitioner,
)
from jflow.variables.scope import AUTO_REUSE as AUTO_REUSE
from jflow.variables.scope import VariableScope as VariableScope
from jflow.variables.scope import get_variable_scope as get_variable_scope
from jflow.variables.scope import variable_scope as variable_scope
from jflow.variables.sharded import ShardedVariable as ShardedVariable
from jflow.variables.store import get_local_variable as get_local_variable
from jflow.variables.store import get_variable as get_variable
from jflow.variables.store import no_regularizer as no_regularizer
