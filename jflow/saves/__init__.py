"""What a task does when state is saved or restored: from containers to files and back.

`SnapshotOfTask` takes what a task holds of a checkpoint at one moment, without copying variables,
and writes it; `RestoreOfTask` reads it and sets it. `StateItems` says what, and travels.
"""

from jflow.saves.items import SaveReport as SaveReport
from jflow.saves.items import StateItem as StateItem
from jflow.saves.items import StateItems as StateItems
from jflow.saves.items import StateSlice as StateSlice
from jflow.saves.items import by_task as by_task
from jflow.saves.pauses import PATIENCE_S as PATIENCE_S
from jflow.saves.pauses import Pauses as Pauses
from jflow.saves.restore import RestoreOfTask as RestoreOfTask
from jflow.saves.snapshot import SnapshotOfTask as SnapshotOfTask
