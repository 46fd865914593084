"""Progress of long work: on a terminal or in a notebook, and nowhere else.

Bars are tqdm's, if it is installed (`jflow[progress]`); without it a terminal gets a line for each
quarter. TQDM_DISABLE=1 switches bars off.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from jflow.base.handles import Closing

T = TypeVar("T")

LONG_S = 2.0
"""How long work that users did not ask to watch takes before it is shown, in seconds."""

_TICK_S = 0.5


class Progress(Closing):
    """Counts and shows the steps that several threads do; thread-safe.

    Args:
      total: how many there are; None if that is not known.
      label: what they belong to.
      unit: what one of them is called.
      after_s: show nothing before this time has passed, in seconds.
    """

    def __init__(
        self, total: int | None, label: str, unit: str = "step", after_s: float = 0.0
    ) -> None:
        self._total = total
        self._label = label
        self._unit = unit
        self._done = 0
        self._lock = threading.Lock()
        self._bar = _bar(total=total, desc=label, unit=unit, delay=after_s)
        self._has_lines = self._bar is None and is_watched() and not after_s

    def advance(self, note: str = "") -> None:
        """Counts a step and shows a note beside the progress."""
        with self._lock:
            self._done += 1
            if self._bar is not None:
                self._bar.set_postfix_str(note, refresh=False)
                self._bar.update()
            elif self._has_lines and self._done % max((self._total or 1) // 4, 1) == 0:
                total = "" if self._total is None else f" of {self._total}"
                line = f"{self._label}: {self._done}{total} {self._unit}s"
                print(f"{line}, {note}" if note else line, file=sys.stderr)

    @property
    def n_done(self) -> int:
        """How many steps have been counted."""
        return self._done

    def say(self, text: str) -> None:
        """Prints a line on standard output, above what shows the progress."""
        with self._lock:
            if self._bar is not None:
                self._bar.write(text, file=sys.stdout)
            else:
                print(text)

    def _leave(self, failed: bool) -> None:
        if self._bar is not None:
            self._bar.close()


def progress(
    values: Iterable[T], label: str = "", *, total: int | None = None, unit: str = "step"
) -> Iterator[T]:
    """Yields values, and shows on a terminal or in a notebook how many of them are done.

    It shows nothing where standard error is neither, such as in a file.

    Args:
      values: what to iterate over.
      label: what stands before the bar.
      total: how many values there are, if they have no length.
      unit: what one of them is called.
    """
    if total is None and isinstance(values, Sized):
        total = len(values)
    with Progress(total, label, unit) as shown:
        for value in values:
            yield value
            shown.advance()


@contextmanager
def shown_if_long(label: str) -> Iterator[None]:
    """Context manager that shows what goes on, and since when, once it has taken `LONG_S`."""
    if not is_watched():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_show_until, args=(ended, label), name="jflow progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show_until(ended: threading.Event, label: str) -> None:
    if ended.wait(LONG_S):
        return
    bar = _bar(desc=label, bar_format="{desc} … {elapsed}", leave=False)
    if bar is None:
        print(f"{label} …", file=sys.stderr)
        return
    with bar:
        if not bar.disable:  # TQDM_DISABLE
            bar.start_t -= LONG_S
        while not ended.wait(_TICK_S):
            bar.refresh()


def is_watched() -> bool:
    """Whether a person sees standard error as it is written: on a terminal or in a notebook."""
    stream = sys.stderr
    # None in a process without the stream; a closed one raises.
    is_open = stream is not None and not getattr(stream, "closed", False)
    return "ipykernel" in sys.modules or (is_open and stream.isatty())


def _bar(**options: Any) -> Any:
    """Returns a bar of tqdm, which warns when it is imported in a notebook; None without one."""
    if not is_watched():
        return None
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415
    except ImportError:
        return None
    return tqdm(**options)
