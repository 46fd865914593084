"""Placement: a device for each operation, from the requests of the user."""

from jflow.placement.explain import RULES as RULES
from jflow.placement.explain import Explanation as Explanation
from jflow.placement.explain import Reason as Reason
from jflow.placement.explain import explain as explain
from jflow.placement.explain import time_text as time_text
from jflow.placement.named import strategy_of as strategy_of
from jflow.placement.place import assign as assign
from jflow.placement.place import place as place
from jflow.placement.placer import DEFAULT_STRATEGY as DEFAULT_STRATEGY
from jflow.placement.placer import Placer as Placer
from jflow.placement.relocate import Relocation as Relocation
from jflow.placement.relocate import RelocationPlan as RelocationPlan
from jflow.placement.relocate import Relocator as Relocator
from jflow.placement.strategy import Assignment as Assignment
from jflow.placement.strategy import Handles as Handles
from jflow.placement.strategy import Inventory as Inventory
from jflow.placement.strategy import Placement as Placement
from jflow.placement.strategy import Strategy as Strategy
