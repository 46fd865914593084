"""JAX functions on a cluster: traced once per signature, run on the current connection."""

from jflow.client.functions.concrete import Concrete as Concrete
from jflow.client.functions.concrete import PreparedCall as PreparedCall
from jflow.client.functions.connection import Connection as Connection
from jflow.client.functions.current import connect as connect
from jflow.client.functions.derivatives import grad as grad
from jflow.client.functions.derivatives import value_and_grad as value_and_grad
from jflow.client.functions.function import Function as Function
from jflow.client.functions.function import function as function
