"""What commands that keep servers running say; it must not end them."""

from __future__ import annotations

import sys

from jflow.base.files import is_without_room


def say(text: str, *, is_error: bool = False) -> None:
    """Prints a line at once, in one piece: others may print on threads of their own.

    If the output is a file on a full disk, the line is lost, or comes with a later one.

    Args:
      text: the line.
      is_error: whether it goes to the standard error.
    """
    stream = sys.stderr if is_error else sys.stdout
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except OSError as error:
        if not is_without_room(error):
            raise
