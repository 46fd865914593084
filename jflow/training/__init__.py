"""Input pipelines of queues and threads, as in TF 1, and synchronous replicated training."""

from jflow.training.batches import batch as batch
from jflow.training.batches import batch_join as batch_join
from jflow.training.batches import maybe_batch as maybe_batch
from jflow.training.batches import maybe_batch_join as maybe_batch_join
from jflow.training.batches import maybe_shuffle_batch as maybe_shuffle_batch
from jflow.training.batches import maybe_shuffle_batch_join as maybe_shuffle_batch_join
from jflow.training.batches import shuffle_batch as shuffle_batch
from jflow.training.batches import shuffle_batch_join as shuffle_batch_join
from jflow.training.coordinator import Coordinator as Coordinator
from jflow.training.looper import LooperThread as LooperThread
from jflow.training.producers import input_producer as input_producer
from jflow.training.producers import limit_epochs as limit_epochs
from jflow.training.producers import range_input_producer as range_input_producer
from jflow.training.producers import slice_input_producer as slice_input_producer
from jflow.training.producers import string_input_producer as string_input_producer
from jflow.training.queue_runner import QUEUE_RUNNERS as QUEUE_RUNNERS
from jflow.training.queue_runner import QueueRunner as QueueRunner
from jflow.training.queue_runner import add_queue_runner as add_queue_runner
from jflow.training.queue_runner import start_queue_runners as start_queue_runners
from jflow.training.sync_replicas import SyncReplicasOptimizer as SyncReplicasOptimizer
