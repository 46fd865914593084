"""The public names of `jflow.checkpoint`."""

from jflow import tracebacks as _tracebacks
from jflow.checkpoint_files import Checkpoint as Checkpoint
from jflow.checkpoint_files import SavedTensor as SavedTensor
from jflow.checkpoint_files import open_checkpoint as open_checkpoint
from jflow.checkpoint_files import write_orbax as write_orbax
from jflow.runtime.saving import SaveReport as SaveReport
from jflow.training.states import restore as restore
from jflow.training.states import save as save

_tracebacks.end_here(globals())
