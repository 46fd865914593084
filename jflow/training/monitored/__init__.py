"""Monitored sessions: hooks, checkpoints and recovery around the steps of a training."""

from jflow.training.monitored.checkpoint_hook import CheckpointSaverHook as CheckpointSaverHook
from jflow.training.monitored.checkpoint_hook import (
    CheckpointSaverListener as CheckpointSaverListener,
)
from jflow.training.monitored.control_hooks import FeedFnHook as FeedFnHook
from jflow.training.monitored.control_hooks import FinalOpsHook as FinalOpsHook
from jflow.training.monitored.control_hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from jflow.training.monitored.control_hooks import (
    NanLossDuringTrainingError as NanLossDuringTrainingError,
)
from jflow.training.monitored.control_hooks import NanTensorHook as NanTensorHook
from jflow.training.monitored.control_hooks import StopAtStepHook as StopAtStepHook
from jflow.training.monitored.creators import ChiefSessionCreator as ChiefSessionCreator
from jflow.training.monitored.creators import SessionCreator as SessionCreator
from jflow.training.monitored.creators import WorkerSessionCreator as WorkerSessionCreator
from jflow.training.monitored.report_hooks import LoggingTensorHook as LoggingTensorHook
from jflow.training.monitored.report_hooks import ProfilerHook as ProfilerHook
from jflow.training.monitored.report_hooks import StepCounterHook as StepCounterHook
from jflow.training.monitored.report_hooks import SummarySaverHook as SummarySaverHook
from jflow.training.monitored.run_hook import SecondOrStepTimer as SecondOrStepTimer
from jflow.training.monitored.run_hook import SessionRunArgs as SessionRunArgs
from jflow.training.monitored.run_hook import SessionRunContext as SessionRunContext
from jflow.training.monitored.run_hook import SessionRunHook as SessionRunHook
from jflow.training.monitored.run_hook import SessionRunValues as SessionRunValues
from jflow.training.monitored.scaffold import Scaffold as Scaffold
from jflow.training.monitored.session import MonitoredSession as MonitoredSession
from jflow.training.monitored.session import SingularMonitoredSession as SingularMonitoredSession
from jflow.training.monitored.session_manager import SessionManager as SessionManager
from jflow.training.monitored.supervisor import Supervisor as Supervisor
from jflow.training.monitored.training_session import (
    MonitoredTrainingSession as MonitoredTrainingSession,
)
