"""Placement: a device for each operation, from the requests of the user."""

from jflow.compiler.placement.explain import RULES as RULES
from jflow.compiler.placement.explain import Explanation as Explanation
from jflow.compiler.placement.explain import Reason as Reason
from jflow.compiler.placement.explain import explain as explain
from jflow.compiler.placement.named import strategy_of as strategy_of
from jflow.compiler.placement.place import assign as assign
from jflow.compiler.placement.placer import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from jflow.compiler.placement.placer import Placer as Placer
from jflow.compiler.placement.relocate import Relocation as Relocation
from jflow.compiler.placement.relocate import RelocationPlan as RelocationPlan
from jflow.compiler.placement.relocate import Relocator as Relocator
from jflow.compiler.placement.strategy import Assignment as Assignment
from jflow.compiler.placement.strategy import Handles as Handles
from jflow.compiler.placement.strategy import Inventory as Inventory
from jflow.compiler.placement.strategy import Placement as Placement
from jflow.compiler.placement.strategy import Strategy as Strategy
