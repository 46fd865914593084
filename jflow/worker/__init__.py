"""The worker of a task: its registered plans, their programs, and transfers between tasks."""

from jflow.worker.context import TensorTransport as TensorTransport
from jflow.worker.worker import Worker as Worker
