"""Eager state: variables and queues of a connection, used without a session."""

from jflow.eager.calls import TracedCalls as TracedCalls
from jflow.eager.iterator_state import IteratorState as IteratorState
from jflow.eager.operations import EagerOperations as EagerOperations
from jflow.eager.queue import EagerQueue as EagerQueue
from jflow.eager.streams import QueueReader as QueueReader
from jflow.eager.streams import QueueWriter as QueueWriter
from jflow.eager.variable import EagerVariable as EagerVariable
