"""What clients of a queue did: lines that survive their writers, and calls made of them.

A line is written before a call and another one after it, so the queue did its part between the two:

    120 invoke put 3.17
    154 ok put 3.17
    160 invoke get 5
    498 fail get

Times are nanoseconds of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

OPEN = "open"
OK = "ok"
FAIL = "fail"


class Element(NamedTuple):
    """Names an element: its producer, and how many that producer had put before."""

    producer: int
    number: int

    def __str__(self) -> str:
        return f"{self.producer}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The element that a name stands for."""
        producer, number = map(int, text.split("."))
        return cls(producer, number)


@dataclass(frozen=True)
class Call:
    """A call of a client.

    Attributes:
      kind: "put" or "get".
      invoked: when it began, in nanoseconds.
      ended: when it had ended; infinity for a client that was killed in the middle.
      outcome: OK, FAIL (it said that it changed nothing) or OPEN (its client was killed).
      elements: what was put, or what a get brought.
      n: how many elements it was for.
    """

    kind: str
    invoked: float
    ended: float
    outcome: str
    elements: tuple[Element, ...]
    n: int = 1


class Recorder:
    """Appends to a history; each line is in the file when the method returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def put(self, outcome: str, element: Element) -> None:
        """A put begins ("invoke") or has ended."""
        self._write(outcome, "put", element)

    def invoke_get(self, n: int) -> None:
        """A get of so many elements begins."""
        self._write("invoke", "get", n)

    def end_get(self, outcome: str, elements: Sequence[Element] = ()) -> None:
        """A get has ended."""
        self._write(outcome, "get", *elements)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _write(self, *words: object) -> None:
        line = " ".join(map(str, (time.monotonic_ns(), *words)))
        os.write(self._file, f"{line}\n".encode())


def read_calls(lines: Iterable[str]) -> Iterator[Call]:
    """The calls of one client, in order."""
    begun: Call | None = None
    for line in lines:
        at, outcome, kind, *rest = line.split()
        if outcome == "invoke":
            n = 1 if kind == "put" else int(rest[0])
            elements = (Element.parse(rest[0]),) if kind == "put" else ()
            begun = Call(kind, int(at), float("inf"), OPEN, elements, n)
        else:
            assert begun is not None, f"nothing had begun before {line!r}"
            elements = tuple(map(Element.parse, rest))
            yield Call(kind, begun.invoked, int(at), outcome, elements, begun.n)
            begun = None
    if begun is not None:
        yield begun
