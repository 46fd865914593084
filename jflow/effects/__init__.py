"""Effects: which steps a task has applied, so that a repeated one is not applied again.

Pure: an `Effect` names one attempt of a step, a `Ledger` is what one task knows of all of them, and
`Takeover` decides what becomes of an attempt that was lost. Values, variables and calls are
elsewhere: `jflow.resources.transaction` stages what a step writes, `jflow.core` acts this out.
"""

from jflow.effects.effect import Effect as Effect
from jflow.effects.effect import EffectKey as EffectKey
from jflow.effects.effect import unsupported as unsupported
from jflow.effects.effect import writes_once as writes_once
from jflow.effects.ledger import Ledger as Ledger
from jflow.effects.outcome import ConflictError as ConflictError
from jflow.effects.outcome import Earlier as Earlier
from jflow.effects.outcome import Phase as Phase
from jflow.effects.outcome import SupersededError as SupersededError
from jflow.effects.outcome import verdict as verdict
from jflow.effects.results import MAX_KEPT_BYTES as MAX_KEPT_BYTES
from jflow.effects.results import kept_results as kept_results
from jflow.effects.saved import NOTHING_APPLIED as NOTHING_APPLIED
from jflow.effects.saved import SavedLedger as SavedLedger
from jflow.effects.saved import SavedWindows as SavedWindows
