"""The worker of a task: its registered plans, their programs, and transfers between tasks."""

from jflow.worker.context import TensorTransport as TensorTransport
from jflow.worker.gather import all_of as all_of
from jflow.worker.worker import Worker as Worker
