"""The names of `jflow.train` that train, build graphs or feed queues."""

from jflow import tracebacks as _tracebacks
from jflow.training import AdadeltaOptimizer as AdadeltaOptimizer
from jflow.training import AdagradOptimizer as AdagradOptimizer
from jflow.training import AdamOptimizer as AdamOptimizer
from jflow.training import Coordinator as Coordinator
from jflow.training import GradientDescentOptimizer as GradientDescentOptimizer
from jflow.training import LooperThread as LooperThread
from jflow.training import MomentumOptimizer as MomentumOptimizer
from jflow.training import Optimizer as Optimizer
from jflow.training import QueueRunner as QueueRunner
from jflow.training import RMSPropOptimizer as RMSPropOptimizer
from jflow.training import SyncReplicasOptimizer as SyncReplicasOptimizer
from jflow.training import add_queue_runner as add_queue_runner
from jflow.training import batch as batch
from jflow.training import batch_join as batch_join
from jflow.training import cosine_decay as cosine_decay
from jflow.training import create_global_step as create_global_step
from jflow.training import exponential_decay as exponential_decay
from jflow.training import export_meta_graph as export_meta_graph
from jflow.training import get_global_step as get_global_step
from jflow.training import get_or_create_global_step as get_or_create_global_step
from jflow.training import global_step as global_step
from jflow.training import import_meta_graph as import_meta_graph
from jflow.training import input_producer as input_producer
from jflow.training import inverse_time_decay as inverse_time_decay
from jflow.training import limit_epochs as limit_epochs
from jflow.training import maybe_batch as maybe_batch
from jflow.training import maybe_batch_join as maybe_batch_join
from jflow.training import maybe_shuffle_batch as maybe_shuffle_batch
from jflow.training import maybe_shuffle_batch_join as maybe_shuffle_batch_join
from jflow.training import natural_exp_decay as natural_exp_decay
from jflow.training import piecewise_constant as piecewise_constant
from jflow.training import polynomial_decay as polynomial_decay
from jflow.training import range_input_producer as range_input_producer
from jflow.training import shuffle_batch as shuffle_batch
from jflow.training import shuffle_batch_join as shuffle_batch_join
from jflow.training import slice_input_producer as slice_input_producer
from jflow.training import start_queue_runners as start_queue_runners
from jflow.training import string_input_producer as string_input_producer

_tracebacks.end_here(globals())
