"""Queues: elements that steps pass to each other."""

import numpy as np

from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.kind import Kind
from jflow.state.resources.queue.attempts import Close as Close
from jflow.state.resources.queue.attempts import Dequeue as Dequeue
from jflow.state.resources.queue.attempts import DequeueMany as DequeueMany
from jflow.state.resources.queue.attempts import Enqueue as Enqueue
from jflow.state.resources.queue.attempts import EnqueueMany as EnqueueMany
from jflow.state.resources.queue.kernels import KERNELS
from jflow.state.resources.queue.snapshot import QueueSnapshot as QueueSnapshot
from jflow.state.resources.queue.snapshot import RngState as RngState
from jflow.state.resources.queue.spec import QueueSpec as QueueSpec
from jflow.state.resources.queue.state import Queue as Queue
from jflow.state.resources.snapshot import Snapshottable


def _make(spec: QueueSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    # A seed may be any integer, but NumPy accepts no negative ones.
    seed = None if spec.seed is None else [abs(spec.seed), int(spec.seed < 0)]
    return Queue(spec, name, np.random.default_rng(seed))


QUEUE = Kind("queue", QueueSpec, _make, QueueSnapshot, KERNELS)
