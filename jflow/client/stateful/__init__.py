"""Stateful operations on variables, queues and readers, in graph code and traced functions."""

from jflow.client.stateful.calls import GraphCalls as GraphCalls
from jflow.client.stateful.elements import Structure as Structure
from jflow.client.stateful.handle import Handle as Handle
from jflow.client.stateful.queue import QueueOperations as QueueOperations
from jflow.client.stateful.variable import GraphVariable as GraphVariable
from jflow.client.stateful.variable import VariableOperations as VariableOperations
