"""The worker of a task: its registered plans, their programs, and transfers between tasks."""

from jflow.task.worker.context import TensorTransport as TensorTransport
from jflow.task.worker.worker import Worker as Worker
