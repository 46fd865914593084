"""`Trace`: the spans and transfers of one step, on all of its devices.

A measured trace and a simulated one have this one form, so that both open in one viewer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable, picture_of
from jflow.base.text import seconds_text
from jflow.plan.trace.chrome import chrome_json
from jflow.plan.trace.spans import Detail, Span, Transfer, Update


@dataclass(frozen=True)
class Trace(Carded):
    """The spans and transfers of one step.

    Attributes:
      title: what a viewer calls it, such as "simulated" or "measured".
      spans: in any order.
      transfers: in any order.
      details: what is known about the whole of it, such as how well the clocks of tasks agree.
      updates: of variables that the step had read before, in the order of its tasks.
    """

    title: str
    spans: tuple[Span, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    details: Mapping[str, Detail] = field(default_factory=dict, hash=False)
    updates: tuple[Update, ...] = ()

    @property
    def seconds(self) -> float:
        """The finish time of the last span or transfer; 0.0 if there is none."""
        ends = [*(span.finish for span in self.spans), *(one.finish for one in self.transfers)]
        return max(ends, default=0.0)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices, in the order in which spans, then transfers, name them."""
        return tuple(
            dict.fromkeys(
                [
                    *(span.device for span in self.spans),
                    *(device for one in self.transfers for device in (one.source, one.target)),
                ]
            )
        )

    def __repr__(self) -> str:
        size = f"{len(self.spans)} spans on {len(self.devices)} devices"
        return f"<jflow.Trace {self.title!r} of {size}, {seconds_text(self.seconds)}>"

    def _card(self) -> Card:
        busy: defaultdict[str, float] = defaultdict(float)
        for span in self.spans:
            busy[span.device] += span.seconds
        devices = [(device, seconds_text(busy[device])) for device in self.devices[:MAX_ROWS]]
        spans = sorted(self.spans, key=lambda span: -span.seconds)[:MAX_ROWS]
        facts = (
            ("takes", seconds_text(self.seconds)),
            ("transfers", f"{len(self.transfers):,}"),
            ("updates missed", max((one.n_missed for one in self.updates), default=None)),
            *self.details.items(),
        )
        tables = (
            CardTable("devices", ("device", "busy"), devices, len(self.devices), is_open=True),
            CardTable(
                "spans, the longest first",
                ("name", "kind", "device", "starts at", "takes"),
                [
                    (
                        *(one.name, one.kind, one.device),
                        *(seconds_text(one.start), seconds_text(one.seconds)),
                    )
                    for one in spans
                ],
                len(self.spans),
            ),
        )
        note = "to_chrome() is for https://ui.perfetto.dev."
        return Card("Trace", self.title, facts, tables, picture_of(self), note)

    def to_chrome(self) -> str:
        """Returns the trace as JSON that https://ui.perfetto.dev and chrome://tracing open.

        Each device is a process; transfers are arrows between them. See `jflow.plan.trace.chrome`.
        """
        metadata = {"title": self.title, **self.details}
        return chrome_json(self.devices, self.spans, self.transfers, metadata)


def merged(*traces: Trace) -> Trace:
    """Combines several traces into one, shown one above the other; all of them start at 0.

    The names of its devices begin with the title of each, and its number if titles repeat.
    """
    titles = [trace.title for trace in traces]
    spans: list[Span] = []
    transfers: list[Transfer] = []
    details: dict[str, Detail] = {}
    for number, trace in enumerate(traces):
        title = trace.title
        if titles.count(title) > 1:
            title = f"{title} {number}"
        spans += [replace(one, device=f"{title}: {one.device}") for one in trace.spans]
        transfers += [
            replace(one, source=f"{title}: {one.source}", target=f"{title}: {one.target}")
            for one in trace.transfers
        ]
        details |= {f"{title}: {name}": value for name, value in trace.details.items()}
    return Trace(", ".join(titles), tuple(spans), tuple(transfers), details)
