"""The names of `jflow.train` that train, build graphs or feed queues."""

from jflow.base import tracebacks as _tracebacks
from jflow.state.records.messages import BytesList as BytesList
from jflow.state.records.messages import Example as Example
from jflow.state.records.messages import Feature as Feature
from jflow.state.records.messages import FeatureList as FeatureList
from jflow.state.records.messages import FeatureLists as FeatureLists
from jflow.state.records.messages import Features as Features
from jflow.state.records.messages import FloatList as FloatList
from jflow.state.records.messages import Int64List as Int64List
from jflow.state.records.messages import SequenceExample as SequenceExample
from jflow.training.checkpoints.checkpoint_reader import CheckpointReader as CheckpointReader
from jflow.training.checkpoints.checkpoint_reader import NewCheckpointReader as NewCheckpointReader
from jflow.training.checkpoints.checkpoint_reader import list_variables as list_variables
from jflow.training.checkpoints.checkpoint_reader import load_checkpoint as load_checkpoint
from jflow.training.checkpoints.checkpoint_reader import load_variable as load_variable
from jflow.training.checkpoints.checkpoint_state import CheckpointState as CheckpointState
from jflow.training.checkpoints.checkpoint_state import checkpoint_exists as checkpoint_exists
from jflow.training.checkpoints.checkpoint_state import (
    get_checkpoint_mtimes as get_checkpoint_mtimes,
)
from jflow.training.checkpoints.checkpoint_state import get_checkpoint_state as get_checkpoint_state
from jflow.training.checkpoints.checkpoint_state import latest_checkpoint as latest_checkpoint
from jflow.training.checkpoints.checkpoint_state import remove_checkpoint as remove_checkpoint
from jflow.training.checkpoints.checkpoint_state import (
    update_checkpoint_state as update_checkpoint_state,
)
from jflow.training.checkpoints.following import checkpoints_iterator as checkpoints_iterator
from jflow.training.checkpoints.initialization import init_from_checkpoint as init_from_checkpoint
from jflow.training.checkpoints.initialization import warm_start as warm_start
from jflow.training.checkpoints.meta_graph import export_meta_graph as export_meta_graph
from jflow.training.checkpoints.meta_graph import import_meta_graph as import_meta_graph
from jflow.training.checkpoints.meta_graph import write_graph as write_graph
from jflow.training.checkpoints.saver import Saver as Saver
from jflow.training.checkpoints.saver import SaverDef as SaverDef
from jflow.training.decoupled import Decoupled as Decoupled
from jflow.training.decoupled import Learner as Learner
from jflow.training.input_queues.batches import batch as batch
from jflow.training.input_queues.batches import batch_join as batch_join
from jflow.training.input_queues.batches import maybe_batch as maybe_batch
from jflow.training.input_queues.batches import maybe_batch_join as maybe_batch_join
from jflow.training.input_queues.batches import maybe_shuffle_batch as maybe_shuffle_batch
from jflow.training.input_queues.batches import maybe_shuffle_batch_join as maybe_shuffle_batch_join
from jflow.training.input_queues.batches import shuffle_batch as shuffle_batch
from jflow.training.input_queues.batches import shuffle_batch_join as shuffle_batch_join
from jflow.training.input_queues.producers import input_producer as input_producer
from jflow.training.input_queues.producers import limit_epochs as limit_epochs
from jflow.training.input_queues.producers import range_input_producer as range_input_producer
from jflow.training.input_queues.producers import slice_input_producer as slice_input_producer
from jflow.training.input_queues.producers import string_input_producer as string_input_producer
from jflow.training.input_queues.queue_runner import QueueRunner as QueueRunner
from jflow.training.input_queues.queue_runner import add_queue_runner as add_queue_runner
from jflow.training.input_queues.queue_runner import start_queue_runners as start_queue_runners
from jflow.training.monitored import CheckpointSaverHook as CheckpointSaverHook
from jflow.training.monitored import CheckpointSaverListener as CheckpointSaverListener
from jflow.training.monitored import ChiefSessionCreator as ChiefSessionCreator
from jflow.training.monitored import FeedFnHook as FeedFnHook
from jflow.training.monitored import FinalOpsHook as FinalOpsHook
from jflow.training.monitored import GlobalStepWaiterHook as GlobalStepWaiterHook
from jflow.training.monitored import LoggingTensorHook as LoggingTensorHook
from jflow.training.monitored import MonitoredSession as MonitoredSession
from jflow.training.monitored import MonitoredTrainingSession as MonitoredTrainingSession
from jflow.training.monitored import NanLossDuringTrainingError as NanLossDuringTrainingError
from jflow.training.monitored import NanTensorHook as NanTensorHook
from jflow.training.monitored import ProfilerHook as ProfilerHook
from jflow.training.monitored import Scaffold as Scaffold
from jflow.training.monitored import SecondOrStepTimer as SecondOrStepTimer
from jflow.training.monitored import SessionCreator as SessionCreator
from jflow.training.monitored import SessionManager as SessionManager
from jflow.training.monitored import SessionRunArgs as SessionRunArgs
from jflow.training.monitored import SessionRunContext as SessionRunContext
from jflow.training.monitored import SessionRunHook as SessionRunHook
from jflow.training.monitored import SessionRunValues as SessionRunValues
from jflow.training.monitored import SingularMonitoredSession as SingularMonitoredSession
from jflow.training.monitored import StepCounterHook as StepCounterHook
from jflow.training.monitored import StopAtStepHook as StopAtStepHook
from jflow.training.monitored import SummarySaverHook as SummarySaverHook
from jflow.training.monitored import Supervisor as Supervisor
from jflow.training.monitored import WorkerSessionCreator as WorkerSessionCreator
from jflow.training.monitored.global_step import create_global_step as create_global_step
from jflow.training.monitored.global_step import get_global_step as get_global_step
from jflow.training.monitored.global_step import (
    get_or_create_global_step as get_or_create_global_step,
)
from jflow.training.monitored.global_step import global_step as global_step
from jflow.training.moving_averages import ExponentialMovingAverage as ExponentialMovingAverage
from jflow.training.moving_averages import assign_moving_average as assign_moving_average
from jflow.training.moving_averages import weighted_moving_average as weighted_moving_average
from jflow.training.optimizers.decay import cosine_decay as cosine_decay
from jflow.training.optimizers.decay import cosine_decay_restarts as cosine_decay_restarts
from jflow.training.optimizers.decay import exponential_decay as exponential_decay
from jflow.training.optimizers.decay import inverse_time_decay as inverse_time_decay
from jflow.training.optimizers.decay import linear_cosine_decay as linear_cosine_decay
from jflow.training.optimizers.decay import natural_exp_decay as natural_exp_decay
from jflow.training.optimizers.decay import (
    noisy_linear_cosine_decay as noisy_linear_cosine_decay,
)
from jflow.training.optimizers.decay import piecewise_constant as piecewise_constant
from jflow.training.optimizers.decay import polynomial_decay as polynomial_decay
from jflow.training.optimizers.optimizer import Optimizer as Optimizer
from jflow.training.optimizers.presets import AdadeltaOptimizer as AdadeltaOptimizer
from jflow.training.optimizers.presets import AdagradOptimizer as AdagradOptimizer
from jflow.training.optimizers.presets import AdamOptimizer as AdamOptimizer
from jflow.training.optimizers.presets import GradientDescentOptimizer as GradientDescentOptimizer
from jflow.training.optimizers.presets import MomentumOptimizer as MomentumOptimizer
from jflow.training.optimizers.presets import RMSPropOptimizer as RMSPropOptimizer
from jflow.training.optimizers.regularized import AdagradDAOptimizer as AdagradDAOptimizer
from jflow.training.optimizers.regularized import FtrlOptimizer as FtrlOptimizer
from jflow.training.optimizers.regularized import (
    ProximalAdagradOptimizer as ProximalAdagradOptimizer,
)
from jflow.training.optimizers.regularized import (
    ProximalGradientDescentOptimizer as ProximalGradientDescentOptimizer,
)
from jflow.training.parameter_servers.device_setter import (
    replica_device_setter as replica_device_setter,
)
from jflow.training.sync_replicas import SyncReplicasOptimizer as SyncReplicasOptimizer
from jflow.training.threads import Coordinator as Coordinator
from jflow.training.threads import LooperThread as LooperThread

piecewise_constant_decay = piecewise_constant

_tracebacks.end_here(globals())
