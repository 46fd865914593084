"""Threads that feed queues, and training in step."""

from jflow.training.coordinator import Coordinator as Coordinator
from jflow.training.looper import LooperThread as LooperThread
from jflow.training.queue_runner import QUEUE_RUNNERS as QUEUE_RUNNERS
from jflow.training.queue_runner import QueueRunner as QueueRunner
from jflow.training.queue_runner import add_queue_runner as add_queue_runner
from jflow.training.queue_runner import start_queue_runners as start_queue_runners
