"""Checkpoints: `jflow.checkpoint.save` and `restore`, and reading what was saved."""

from jflow.api import root as _root  # noqa: F401 - tracebacks end at methods of what it exports
from jflow.api.missing import refuse_missing as _refuse_missing
from jflow.base import tracebacks as _tracebacks
from jflow.client.runtime.saving import SaveReport as SaveReport
from jflow.state.checkpoint_files import Checkpoint as Checkpoint
from jflow.state.checkpoint_files import SavedTensor as SavedTensor
from jflow.state.checkpoint_files import open_checkpoint as open_checkpoint
from jflow.state.checkpoint_files import write_orbax as write_orbax
from jflow.state.checkpoint_files import write_tensorflow as write_tensorflow
from jflow.training.checkpoints.states import restore as restore
from jflow.training.checkpoints.states import save as save

__getattr__ = _refuse_missing(globals())

_tracebacks.end_here(globals())
