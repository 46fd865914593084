"""A task's part in saves and restores: from containers to files and back.

`SnapshotOfTask` takes what a task holds of a checkpoint at one moment, without copying variables,
and writes it; `RestoreOfTask` reads it and sets it. `StateItems` says what, and travels.
"""

from jflow.state.saves.items import SaveReport as SaveReport
from jflow.state.saves.items import StateItem as StateItem
from jflow.state.saves.items import StateItems as StateItems
from jflow.state.saves.items import StateSlice as StateSlice
from jflow.state.saves.items import StateSource as StateSource
from jflow.state.saves.items import by_task as by_task
from jflow.state.saves.pauses import PATIENCE_S as PATIENCE_S
from jflow.state.saves.pauses import Pauses as Pauses
from jflow.state.saves.restore import RestoreOfTask as RestoreOfTask
from jflow.state.saves.snapshot import SnapshotOfTask as SnapshotOfTask
from jflow.state.saves.tensors import READ_TENSOR as READ_TENSOR
from jflow.state.saves.tensors import fits_dtype as fits_dtype
from jflow.state.saves.tensors import tensor_functions as tensor_functions
