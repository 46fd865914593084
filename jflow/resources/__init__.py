"""State that outlives a step: containers and the variables in them."""

from jflow.resources.store import Store as Store
from jflow.resources.variable import Buffer as Buffer
from jflow.resources.variable import Lease as Lease
from jflow.resources.variable import Variable as Variable
