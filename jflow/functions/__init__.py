"""JAX-shaped code on a cluster: functions that are traced once and run where `connect` says."""

from jflow.functions.connection import Connection as Connection
from jflow.functions.connection import connect as connect
from jflow.functions.derivatives import grad as grad
from jflow.functions.derivatives import value_and_grad as value_and_grad
from jflow.functions.function import Function as Function
from jflow.functions.function import function as function
