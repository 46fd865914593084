"""Eager variables and queues, which a connection owns and plain Python uses without a session."""

from jflow.client.eager.iterator_state import IteratorState as IteratorState
from jflow.client.eager.queue import EagerQueue as EagerQueue
from jflow.client.eager.queue import TracedCalls as TracedCalls
from jflow.client.eager.streams import QueueReader as QueueReader
from jflow.client.eager.streams import QueueWriter as QueueWriter
from jflow.client.eager.variable import EagerVariable as EagerVariable
