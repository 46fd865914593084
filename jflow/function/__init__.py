"""JAX-shaped code on a cluster: functions that are traced once and run where `connect` says."""

from jflow.function.connection import Connection as Connection
from jflow.function.connection import connect as connect
from jflow.function.derivatives import grad as grad
from jflow.function.derivatives import value_and_grad as value_and_grad
from jflow.function.function import Function as Function
from jflow.function.function import function as function
