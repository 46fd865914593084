"""What happens in a simulation: a hash of all of it, and text when it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any


class Trace:
    """Notes what happens, in order.

    Args:
      now: gives the virtual time.
      directory: the path of the checkpoints, which is another one each time and is left out.
      print_line: takes each event as a line; None for no text.

    Attributes:
      is_on: whether messages are noted, too.
    """

    def __init__(
        self,
        now: Callable[[], float],
        directory: str,
        print_line: Callable[[str], object] | None = None,
    ) -> None:
        self.is_on = True
        self._now, self._print = now, print_line
        self._directory = directory
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, kind: str, *what: Any) -> None:
        """Notes an event."""
        text = f"{self._now():.6f} {kind} {' '.join(map(self._text, what))}"
        self._hash.update(text.encode())
        if self._print is not None:
            self._print(text)

    def digest(self) -> str:
        """Returns the hash of all events so far."""
        return self._hash.hexdigest()

    def _text(self, one: Any) -> str:
        control = getattr(one, "control", one)
        if isinstance(control, bytes):
            # Not the bytes: the entries of a protobuf map have another order in each process.
            return f"{len(control)} bytes"
        return str(one).replace(self._directory, "")
