"""Activates failpoints, in this process and in those that a test starts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from jflow.base.failpoints import NAMES, VARIABLE
from jflow.base.failpoints.actions import (
    Armed,
    FailpointAction,
    reached_path,
    released_path,
    to_text,
)
from jflow.base.failpoints.points import actions
from jflow.base.handles import Closing
from jflow.launch.testing.waiting import wait_until

FAILPOINTS = NAMES
"""Every failpoint of jflow, with a description of where it is."""


class failpoints(Closing):  # noqa: N801 - reads as a statement: `with failpoints({...}):`
    """A context manager in which failpoints are active.

        with failpoints({"worker.before_run": Pause()}) as points:
            step = in_background(session.run, train)
            points.wait_until_reached("worker.before_run")
            ...
            points.release("worker.before_run")

    Args:
      chosen: what happens, by the name of the failpoint.
      here: whether they act in this process, which has servers if the test starts them here. Other
        processes need `environment` when they are started; see `ProcessCluster`.

    Raises:
      ValueError: if there is no failpoint of a name.
    """

    def __init__(self, chosen: Mapping[str, FailpointAction], *, here: bool = True) -> None:
        if unknown := sorted(chosen.keys() - NAMES.keys()):
            raise ValueError(f"there are no failpoints {unknown}; there are {sorted(NAMES)}")
        self._chosen = dict(chosen)
        self._here = here
        self._reached = dict.fromkeys(chosen, 0)
        self._directory: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that activate these failpoints in a process.

        Raises:
          TypeError: if an action can act in this process only.
        """
        return {VARIABLE: to_text(self._chosen, self._shared_directory())} if self._chosen else {}

    def reached(self, name: str) -> int:
        """Returns how often a failpoint was reached in this context, in all processes together."""
        self._check(name)
        if self._directory is not None:
            path = reached_path(self._directory, name)
            self._reached[name] = path.read_text().count("\n") if path.exists() else 0
        return self._reached[name]

    def wait_until_reached(self, name: str, times: int = 1) -> None:
        """Blocks until a failpoint was reached `times` times."""
        wait_until(lambda: self.reached(name) >= times, f"reaching the failpoint {name!r}")

    def release(self, name: str) -> None:
        """Ends all pauses at a failpoint, including future ones."""
        self._check(name)
        released_path(self._shared_directory(), name).touch()

    def close(self) -> None:
        """Deactivates the failpoints and releases what pauses at them. May be called again."""
        if self._here:
            for name in self._chosen:
                actions.pop(name, None)
        if self._directory is not None:
            for name in self._chosen:
                self.reached(name)
            shutil.rmtree(self._directory)
            self._directory = None

    def __enter__(self) -> Self:
        if self._here and (already := sorted(self._chosen.keys() & actions.keys())):
            raise ValueError(f"the failpoints {already} are on already, in an outer block")
        directory = self._directory = Path(tempfile.mkdtemp(prefix="jflow-failpoints-"))
        if self._here:
            for name, action in self._chosen.items():
                actions[name] = Armed(action, directory)
        return self

    def _leave(self, failed: bool) -> None:
        self.close()

    def _shared_directory(self) -> Path:
        """Returns the directory in which processes note reached and released failpoints."""
        if self._directory is None:
            raise RuntimeError("the block of these failpoints is not open")
        return self._directory

    def _check(self, name: str) -> None:
        if name not in self._chosen:
            raise ValueError(f"the failpoint {name!r} is not one of {sorted(self._chosen)}")
