"""Whether a FIFO queue could have given what its clients saw.

The rules, for clients that may be killed at any time:

1. What comes out was put, by a put that did not fail, and comes out once.
2. What was put with success comes out.
3. What was put later, after the earlier put had ended, does not come out earlier.

A client that is killed in a get may take elements with it, and elements that are given back on
its behalf may come out late. So each such get excuses as many breaches of rules 2 and 3 as it asked
for elements, if it had begun before the queue was past the element: when one that was put later
had not come out yet.

A get whose time is over when the queue has just served it gives its elements back, too. They come
out late if another get took what was behind them meanwhile. So it excuses as many breaches of
rule 3 as it asked for elements, if it was under way at the same time as that other get.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from tests.chaos.history import FAIL, OK, OPEN, Call, Element

NEVER = float("inf")
_NONE = Call("get", NEVER, NEVER, OPEN, ())


@dataclass(frozen=True)
class Findings:
    """What a history shows.

    Attributes:
      n_acknowledged: elements whose put had succeeded.
      n_delivered: elements that came out.
      n_excused: elements that are missing or late, with a consumer to blame that was killed, or
        whose time was over.
      violations: what must not be, in words.
    """

    n_acknowledged: int
    n_delivered: int
    n_excused: int
    violations: list[str] = field(default_factory=list)


def check(calls: Iterable[Call]) -> Findings:
    """Checks the calls of all clients of a queue that is empty in the end."""
    calls = [*calls]
    puts = {call.elements[0]: call for call in calls if call.kind == "put"}
    gets = [call for call in calls if call.kind == "get" and call.outcome == OK]
    acknowledged = {element for element, put in puts.items() if put.outcome == OK}
    delivered = Counter(element for get in gets for element in get.elements)

    violations = [f"{e} came out and was never put" for e in delivered if e not in puts]
    violations += [f"{e} came out {n} times" for e, n in delivered.items() if n > 1]
    violations += [
        f"{e} came out, though its put had failed"
        for e in delivered
        if e in puts and puts[e].outcome == FAIL
    ]
    violations += [
        f"a get of {g.n} brought {len(g.elements)}" for g in gets if len(g.elements) > g.n
    ]

    passed = _Passed(puts, gets)
    lost = {e: passed.at(e) for e in acknowledged if e not in delivered}
    late = passed.late()
    failed = [c for c in calls if c.kind == "get" and c.outcome == FAIL]
    held = _given_back(late, failed)
    broken = [c for c in calls if c.kind == "get" and c.outcome == OPEN]
    kept = {e: get.ended for e, get in late.items() if e not in held}
    blamed = _not_excused(lost | kept, broken)
    violations += [f"{e} is lost" for e in blamed if e in lost]
    violations += [f"{e} came out after one that was put later" for e in blamed if e in late]
    n_excused = len(lost) + len(late) - len(blamed)
    return Findings(len(acknowledged), len(delivered), n_excused, violations)


class _Passed:
    """When the queue was past an element: one that was put after it had come out.

    Args:
      puts: by the element.
      gets: those that brought something.
    """

    def __init__(self, puts: dict[Element, Call], gets: Sequence[Call]) -> None:
        self._puts = puts
        self._gets = gets
        came_out = {element: get for get in gets for element in get.elements}
        order = sorted((e for e in came_out if e in puts), key=lambda e: puts[e].invoked)
        self._invoked = [puts[e].invoked for e in order]
        last_first = accumulate((came_out[e] for e in reversed(order)), _first_ended, initial=_NONE)
        self._earliest = [*last_first][::-1]

    def by(self, element: Element) -> Call:
        """The first get to end with something that was put after it; it never ends if none has."""
        return self._earliest[bisect_right(self._invoked, self._puts[element].ended)]

    def at(self, element: Element) -> float:
        """When something that was put after it had come out; infinity if nothing has."""
        return self.by(element).ended

    def late(self) -> dict[Element, Call]:
        """The elements that came out when the queue was past them, and the get that was first."""
        late = {}
        for get in self._gets:
            known = [e for e in get.elements if e in self._puts]
            late |= {e: self.by(e) for e in known if self.at(e) < get.invoked}
            # A batch is in order in itself.
            for before, element in pairwise(known):
                if self._puts[element].ended < self._puts[before].invoked:
                    late.setdefault(element, get)
        return late


def _first_ended(one: Call, other: Call) -> Call:
    return min(one, other, key=lambda get: get.ended)


def _given_back(late: Mapping[Element, Call], failed: Iterable[Call]) -> set[Element]:
    """The late elements that a get may have held whose time was over, while others passed them."""
    left = {get: get.n for get in failed}
    held = set()
    for element, passing in late.items():
        together = (
            get
            for get in left
            if left[get] and get.invoked <= passing.ended and passing.invoked <= get.ended
        )
        if (get := min(together, key=lambda one: one.ended, default=None)) is not None:
            left[get] -= 1
            held.add(element)
    return held


def _not_excused(breaches: dict[Element, float], broken: Iterable[Call]) -> list[Element]:
    """The elements for which no killed get is left, given since when the queue was past them.

    A get that may excuse an early breach may excuse any later one, so each breach takes what is
    left of those that had begun in time.
    """
    gets = sorted(broken, key=lambda get: get.invoked)
    left = 0
    blamed = []
    for element, at in sorted(breaches.items(), key=lambda item: item[1]):
        while gets and gets[0].invoked <= at:
            left += gets.pop(0).n
        if left:
            left -= 1
        else:
            blamed.append(element)
    return blamed
