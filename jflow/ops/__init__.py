"""What users build graphs with: constants, placeholders, variables and JAX's own functions."""

from jflow.ops.arrays import constant as constant
from jflow.ops.arrays import group as group
from jflow.ops.arrays import identity as identity
from jflow.ops.arrays import no_op as no_op
from jflow.ops.arrays import placeholder as placeholder
from jflow.ops.lifted import Lifted as Lifted
from jflow.ops.scatter import scatter_add as scatter_add
from jflow.ops.scatter import scatter_div as scatter_div
from jflow.ops.scatter import scatter_max as scatter_max
from jflow.ops.scatter import scatter_min as scatter_min
from jflow.ops.scatter import scatter_mul as scatter_mul
from jflow.ops.scatter import scatter_nd_add as scatter_nd_add
from jflow.ops.scatter import scatter_nd_sub as scatter_nd_sub
from jflow.ops.scatter import scatter_nd_update as scatter_nd_update
from jflow.ops.scatter import scatter_sub as scatter_sub
from jflow.ops.scatter import scatter_update as scatter_update
from jflow.ops.state import assign as assign
from jflow.ops.state import assign_add as assign_add
from jflow.ops.state import assign_sub as assign_sub
from jflow.ops.state import global_variables as global_variables
from jflow.ops.state import global_variables_initializer as global_variables_initializer
from jflow.ops.state import trainable_variables as trainable_variables
from jflow.ops.state import variables_initializer as variables_initializer
from jflow.ops.variable import GLOBAL_VARIABLES as GLOBAL_VARIABLES
from jflow.ops.variable import TRAINABLE_VARIABLES as TRAINABLE_VARIABLES
from jflow.ops.variable import Variable as Variable
