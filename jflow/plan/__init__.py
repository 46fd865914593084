"""Plans: what each device does in a step, as records independent of graphs and of the wire."""

from jflow.plan.callback import CallbackAttributes as CallbackAttributes
from jflow.plan.plan import CALLBACK as CALLBACK
from jflow.plan.plan import NAN_CHECK as NAN_CHECK
from jflow.plan.plan import VARYING as VARYING
from jflow.plan.plan import Call as Call
from jflow.plan.plan import Feed as Feed
from jflow.plan.plan import Fetch as Fetch
from jflow.plan.plan import Instruction as Instruction
from jflow.plan.plan import Plan as Plan
from jflow.plan.plan import Program as Program
from jflow.plan.plan import Recv as Recv
from jflow.plan.plan import ResourceSpec as ResourceSpec
from jflow.plan.plan import Run as Run
from jflow.plan.plan import Send as Send
from jflow.plan.plan import Slot as Slot
from jflow.plan.plan import VariableKey as VariableKey
from jflow.plan.plan import VariableSpec as VariableSpec
from jflow.plan.plan import feed_indices as feed_indices
from jflow.plan.plan import fetch_indices as fetch_indices
from jflow.plan.private import owner_of as owner_of
from jflow.plan.private import private_container as private_container
from jflow.plan.verify import MAX_OPERANDS as MAX_OPERANDS
from jflow.plan.verify import MAX_SLOTS as MAX_SLOTS
from jflow.plan.verify import check_size as check_size
from jflow.plan.verify import verify as verify
from jflow.plan.verify import verify_step as verify_step
