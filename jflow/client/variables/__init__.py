"""Variables by name: scopes, initializers, partitioners, partitioned and sharded variables."""

from jflow.client.variables.embedding import Embedding as Embedding
from jflow.client.variables.hash_ids import hash_ids as hash_ids
from jflow.client.variables.initializers import Constant as Constant
from jflow.client.variables.initializers import GlorotNormal as GlorotNormal
from jflow.client.variables.initializers import GlorotUniform as GlorotUniform
from jflow.client.variables.initializers import Identity as Identity
from jflow.client.variables.initializers import Ones as Ones
from jflow.client.variables.initializers import Orthogonal as Orthogonal
from jflow.client.variables.initializers import RandomNormal as RandomNormal
from jflow.client.variables.initializers import RandomUniform as RandomUniform
from jflow.client.variables.initializers import TruncatedNormal as TruncatedNormal
from jflow.client.variables.initializers import VarianceScaling as VarianceScaling
from jflow.client.variables.initializers import Zeros as Zeros
from jflow.client.variables.initializers import he_normal as he_normal
from jflow.client.variables.initializers import he_uniform as he_uniform
from jflow.client.variables.initializers import lecun_normal as lecun_normal
from jflow.client.variables.initializers import lecun_uniform as lecun_uniform
from jflow.client.variables.lookup import embedding_lookup as embedding_lookup
from jflow.client.variables.lookup import embedding_lookup_sparse as embedding_lookup_sparse
from jflow.client.variables.partitioned import PartitionedVariable as PartitionedVariable
from jflow.client.variables.partitioners import fixed_size_partitioner as fixed_size_partitioner
from jflow.client.variables.partitioners import (
    min_max_variable_partitioner as min_max_variable_partitioner,
)
from jflow.client.variables.partitioners import (
    variable_axis_size_partitioner as variable_axis_size_partitioner,
)
from jflow.client.variables.scope import AUTO_REUSE as AUTO_REUSE
from jflow.client.variables.scope import VariableScope as VariableScope
from jflow.client.variables.scope import get_variable_scope as get_variable_scope
from jflow.client.variables.scope import variable_scope as variable_scope
from jflow.client.variables.sharded import ShardedVariable as ShardedVariable
from jflow.client.variables.store import get_local_variable as get_local_variable
from jflow.client.variables.store import get_variable as get_variable
from jflow.client.variables.store import no_regularizer as no_regularizer
from jflow.client.variables.template import make_template as make_template
