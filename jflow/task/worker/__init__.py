"""The worker of a task: its registered plans, their programs, and transfers between tasks."""

from jflow.task.worker.worker import Worker as Worker
