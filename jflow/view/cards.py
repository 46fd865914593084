"""Cards with pictures: a placement, and the declarations of what draws explanations and traces."""

from __future__ import annotations

from collections import Counter

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable, draw_by
from jflow.base.cluster import Device
from jflow.compiler.graph import Operation
from jflow.compiler.placement import Explanation
from jflow.plan.trace import Trace
from jflow.view.picture import html_picture
from jflow.view.timeline import timeline


class PlacedStep(Carded, dict[Operation, Device]):
    """The device of each operation of a step; notebooks show it as a picture."""

    def __repr__(self) -> str:
        n_devices = len(set(self.values()))
        return f"<jflow placement of {len(self)} operations on {n_devices} devices>"

    def __str__(self) -> str:
        return "\n".join(f"{op.name}  {device}" for op, device in self.items())

    def _card(self) -> Card:
        counts = Counter(map(str, self.values())).most_common()
        rows = [(device, f"{count:,}") for device, count in counts[:MAX_ROWS]]
        table = CardTable("devices", ("device", "operations"), rows, len(counts))
        drawn = html_picture(self) if self else ""
        return Card("placement", "", (("operations", f"{len(self):,}"),), (table,), drawn)


draw_by(Explanation, html_picture)
draw_by(Trace, timeline)
