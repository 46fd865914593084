"""Stateful operations: variables, queues and readers in graph code and traced functions."""

from jflow.stateful.calls import GraphCalls as GraphCalls
from jflow.stateful.elements import Structure as Structure
from jflow.stateful.handle import Handle as Handle
from jflow.stateful.queue import QueueOperations as QueueOperations
from jflow.stateful.variable import GraphVariable as GraphVariable
from jflow.stateful.variable import VariableOperations as VariableOperations
