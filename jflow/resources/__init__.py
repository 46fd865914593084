"""State that outlives a step: containers, and the variables, queues and accumulators in them."""

from jflow.resources.attempt import Attempt as Attempt
from jflow.resources.attempt import Resource as Resource
from jflow.resources.component import Component as Component
from jflow.resources.holder import Holder as Holder
from jflow.resources.holder import Holders as Holders
from jflow.resources.queue import Close as Close
from jflow.resources.queue import Dequeue as Dequeue
from jflow.resources.queue import DequeueMany as DequeueMany
from jflow.resources.queue import Enqueue as Enqueue
from jflow.resources.queue import EnqueueMany as EnqueueMany
from jflow.resources.queue import Queue as Queue
from jflow.resources.queue_spec import QueueSpec as QueueSpec
from jflow.resources.store import Store as Store
from jflow.resources.variable import Buffer as Buffer
from jflow.resources.variable import Lease as Lease
from jflow.resources.variable import Variable as Variable
