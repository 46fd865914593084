"""Effects: which steps a task has applied, so that a repeated one is not applied again.

Pure: an `Effect` identifies one attempt of a step, a `Ledger` is what one task knows of all of
them, and `verdict` decides which attempt is committed when a later one takes over. Values,
variables and calls are elsewhere: `jflow.state.resources.transaction` stages what a step writes,
`jflow.state.core` executes the decisions.
"""

from jflow.state.effects.effect import Effect as Effect
from jflow.state.effects.effect import EffectKey as EffectKey
from jflow.state.effects.effect import unsupported as unsupported
from jflow.state.effects.effect import writes_once as writes_once
from jflow.state.effects.ledger import Ledger as Ledger
from jflow.state.effects.outcome import ConflictError as ConflictError
from jflow.state.effects.outcome import Earlier as Earlier
from jflow.state.effects.outcome import Phase as Phase
from jflow.state.effects.outcome import SupersededError as SupersededError
from jflow.state.effects.outcome import verdict as verdict
from jflow.state.effects.results import MAX_KEPT_BYTES as MAX_KEPT_BYTES
from jflow.state.effects.results import kept_results as kept_results
from jflow.state.effects.saved import NOTHING_APPLIED as NOTHING_APPLIED
from jflow.state.effects.saved import SavedLedger as SavedLedger
from jflow.state.effects.saved import SavedWindows as SavedWindows
