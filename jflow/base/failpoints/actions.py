"""Actions of failpoints, and how they are passed to other processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jflow.base.failpoints.points import NAMES, actions
from jflow.errors import OpError, from_code

_POLL_S = 0.005


@dataclass(frozen=True, kw_only=True)
class FailpointAction(ABC):
    """Base of what happens when a failpoint is reached, always or a number of times.

    Args:
      skip: how many times nothing happens before.
      times: how many times it happens then; None for always.
    """

    skip: int = 0
    times: int | None = None

    @abstractmethod
    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        """Begins the action; returns a function that says whether the code may go on."""

    def to_attributes(self) -> dict[str, Any]:
        """Encodes the action for another process. Raises TypeError if it works in this one only."""
        return {"kind": type(self).__name__, **vars(self)}


@dataclass(frozen=True)
class Raise(FailpointAction):
    """Raises an error.

    Args:
      error: what is raised; in another process an error of `jflow.errors`.
    """

    error: Exception

    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        raise self.error

    def to_attributes(self) -> dict[str, Any]:
        if not isinstance(self.error, OpError):
            raise TypeError(
                f"another process can raise errors of jflow.errors only, not {self.error!r}"
            )
        return super().to_attributes() | {"error": (self.error.error_code, self.error.message)}


@dataclass(frozen=True)
class Kill(FailpointAction):
    """Kills the process with SIGKILL, like a crash of the machine."""

    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        os.kill(os.getpid(), signal.SIGKILL)
        return lambda: False  # until the signal comes


@dataclass(frozen=True)
class Delay(FailpointAction):
    """Delays the code by some seconds.

    Args:
      seconds: how long.
    """

    seconds: float

    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        end = time.monotonic() + self.seconds
        return lambda: time.monotonic() >= end


@dataclass(frozen=True)
class Pause(FailpointAction):
    """Waits until the test releases the failpoint."""

    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        released = released_path(directory, name)
        # The directory goes when the test leaves its block.
        return lambda: released.exists() or not directory.exists()


@dataclass(frozen=True)
class CallFunction(FailpointAction):
    """Calls a function, in this process only.

    Args:
      function: called with the failpoint's name.
    """

    function: Callable[[str], object]

    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        self.function(name)
        return lambda: True

    def to_attributes(self) -> dict[str, Any]:
        raise TypeError("a function cannot be called in another process")


@dataclass(frozen=True)
class Pass(FailpointAction):
    """Does nothing but count how often the failpoint is reached."""

    def steps(self, directory: Path, name: str) -> Callable[[], bool]:
        return lambda: True


@dataclass
class Armed:
    """An action that is switched on; logs each time that its failpoint is reached to a file.

    Args:
      action: what to do.
      directory: where the processes of a test tell each other about failpoints.
    """

    action: FailpointAction
    directory: Path
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, name: str) -> None:
        """See `points.ActingPoint.act`."""
        if (is_over := self._begin(name)) is not None:
            while not is_over():
                time.sleep(_POLL_S)

    async def act_async(self, name: str) -> None:
        """See `points.ActingPoint.act_async`."""
        if (is_over := self._begin(name)) is not None:
            while not is_over():
                await asyncio.sleep(_POLL_S)

    def _begin(self, name: str) -> Callable[[], bool] | None:
        with self._lock:
            number = self._count - self.action.skip
            self._count += 1
            # Before the action, which may end the process. Appending a line is atomic. A process
            # may outlive the test's block, and with it the directory.
            with (
                suppress(FileNotFoundError),
                reached_path(self.directory, name).open("a") as log,
            ):
                log.write(f"{os.getpid()}\n")
        if number < 0 or (self.action.times is not None and number >= self.action.times):
            return None
        return self.action.steps(self.directory, name)


def reached_path(directory: Path, name: str) -> Path:
    """Returns the path of the file with a line for each time that a failpoint was reached."""
    return directory / f"{name}.reached"


def released_path(directory: Path, name: str) -> Path:
    """Returns the path of the file whose existence ends the pauses at a failpoint."""
    return directory / f"{name}.released"


def to_text(chosen: Mapping[str, FailpointAction], directory: Path) -> str:
    """Encodes actions as the value of the environment variable that `switch_on` reads."""
    points = {name: action.to_attributes() for name, action in chosen.items()}
    return json.dumps({"directory": str(directory), "points": points})


def switch_on(text: str) -> None:
    """Switches on the failpoints in a text of `to_text`. Raises ValueError for an unknown name."""
    content = json.loads(text)
    for name, attributes in content["points"].items():
        if name not in NAMES:
            raise ValueError(f"there is no failpoint {name!r}; there are {sorted(NAMES)}")
        actions[name] = Armed(_from_attributes(attributes), Path(content["directory"]))


def _from_attributes(attributes: dict[str, Any]) -> FailpointAction:
    kind = _KINDS[attributes.pop("kind")]
    if kind is Raise:
        attributes["error"] = from_code(*attributes["error"])
    return kind(**attributes)


_KINDS: dict[str, type[FailpointAction]] = {
    kind.__name__: kind for kind in (Raise, Kill, Delay, Pause, Pass)
}
"""What happens at failpoints of another process, by the name of the class."""
