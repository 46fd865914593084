"""The public names of `jflow.checkpoint`."""

from jflow.base import tracebacks as _tracebacks
from jflow.client.runtime.saving import SaveReport as SaveReport
from jflow.state.checkpoint_files import Checkpoint as Checkpoint
from jflow.state.checkpoint_files import SavedTensor as SavedTensor
from jflow.state.checkpoint_files import open_checkpoint as open_checkpoint
from jflow.state.checkpoint_files import write_orbax as write_orbax
from jflow.state.checkpoint_files import write_tensorflow as write_tensorflow
from jflow.training.checkpoints.states import restore as restore
from jflow.training.checkpoints.states import save as save

_tracebacks.end_here(globals())
