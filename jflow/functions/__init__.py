"""JAX functions on a cluster: traced once per signature, run where `jflow.connect` says."""

from jflow.functions.concrete import Concrete as Concrete
from jflow.functions.concrete import PreparedCall as PreparedCall
from jflow.functions.connection import Connection as Connection
from jflow.functions.current import connect as connect
from jflow.functions.derivatives import grad as grad
from jflow.functions.derivatives import value_and_grad as value_and_grad
from jflow.functions.function import Function as Function
from jflow.functions.function import function as function
