"""The worker of a task: the plans registered there, transfers between them, and programs."""

from jflow.worker.context import TensorTransport as TensorTransport
from jflow.worker.gather import all_of as all_of
from jflow.worker.worker import Worker as Worker
