"""State that outlives a step: containers, and the variables and queues in them."""

from jflow.resources.attempt import Attempt as Attempt
from jflow.resources.attempt import Resource as Resource
from jflow.resources.holder import Holder as Holder
from jflow.resources.holder import Holders as Holders
from jflow.resources.store import Store as Store
from jflow.resources.variable import Buffer as Buffer
from jflow.resources.variable import Lease as Lease
from jflow.resources.variable import Variable as Variable
