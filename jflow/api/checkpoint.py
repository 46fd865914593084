"""The public names of `jflow.checkpoint`."""

from jflow import tracebacks as _tracebacks
from jflow.runtime.saving import SaveReport as SaveReport
from jflow.training.states import restore as restore
from jflow.training.states import save as save

_tracebacks.end_here(globals())
