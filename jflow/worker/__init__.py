"""A task's share of steps: its registered parts, transfers between them, what it has compiled."""

from jflow.worker.context import TensorTransport as TensorTransport
from jflow.worker.gather import all_of as all_of
from jflow.worker.worker import Worker as Worker
