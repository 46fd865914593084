"""A progress bar: tqdm on a terminal or in a notebook, if installed; else one line per quarter."""

from __future__ import annotations

import sys
import threading
from typing import Any

from jflow.base.handles import Closing


class Progress(Closing):
    """Counts and shows the steps that several threads do; thread-safe.

    Args:
      total: how many there are.
      label: what they belong to.
      unit: what one of them is called.
    """

    def __init__(self, total: int, label: str, unit: str = "step") -> None:
        self._total = total
        self._label = label
        self._unit = unit
        self._done = 0
        self._lock = threading.Lock()
        self._bar = _bar(total, label, unit)

    def advance(self, note: str) -> None:
        """Counts a step and shows a note beside the progress."""
        with self._lock:
            self._done += 1
            if self._bar is not None:
                self._bar.set_postfix_str(note, refresh=False)
                self._bar.update()
            elif self._done % max(self._total // 4, 1) == 0:
                line = f"{self._label}: {self._done} of {self._total} {self._unit}s, {note}"
                print(line, file=sys.stderr)

    def _leave(self, failed: bool) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(total: int, label: str, unit: str) -> Any:
    """Returns a bar of tqdm, which warns when it is imported in a notebook.

    None without tqdm, and where a bar would fill a file.
    """
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return None
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415
    except ImportError:
        return None
    return tqdm(total=total, desc=label, unit=unit)
