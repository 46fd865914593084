"""From what users asked for to a device for each operation."""

from jflow.placement.place import Inventory as Inventory
from jflow.placement.place import Placement as Placement
from jflow.placement.place import place as place
from jflow.placement.placer import Placer as Placer
