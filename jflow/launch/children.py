"""`Child`: the process of a task, as the program sees it that started it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jflow.base.cluster import Task
from jflow.errors import UnavailableError, from_code
from jflow.launch.zygote import Zygote

_POLL_S = 0.01


def log_name(task: Task) -> str:
    """The name of the file with the log of a task, such as "worker-1.log"."""
    return f"{task.job}-{task.index}.log"


class Child:
    """A server process (`child.py`), which exits at the end of its standard input.

    Args:
      zygote: what starts it.
      task: its task.
      command: "-m", its module and arguments.
      environment: all of its environment variables.
      core: the processor core that it is pinned to; None for all.
      logs: the directory of its log; None to write to the standard error of this process.
    """

    def __init__(
        self,
        zygote: Zygote,
        task: Task,
        command: Sequence[str],
        environment: Mapping[str, str],
        core: int | None = None,
        logs: Path | None = None,
    ) -> None:
        self.task = task
        if logs is None:
            self.process = zygote.start(command, environment, core=core)
            return
        with (logs / log_name(task)).open("ab") as log:
            self.process = zygote.start(command, environment, stderr=log.fileno(), core=core)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Sends a message. Raises UnavailableError if the process has ended."""
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def listen(self, key: str) -> Any:
        """Waits for a message that has the key; returns its value.

        Raises:
          UnavailableError: if the process has ended.
          OpError: what it cannot start with.
        """
        line = self.process.stdout.readline()
        if not line:
            raise self._ended()
        message = json.loads(line)
        if "error" in message:
            raise from_code(message["error"], message["message"], task=str(self.task))
        return message[key]

    def close(self) -> None:
        """Tells the process to end. May be called again."""
        with suppress(BrokenPipeError):  # it has ended already
            self.process.stdin.close()

    def wait(self, timeout: float) -> None:
        """Waits for the end of the process, and kills it after a time in seconds."""
        self.close()
        end = time.monotonic() + timeout
        with suppress(ConnectionError):  # the zygote has ended, and all of its programs with it
            while self.process.poll() is None:
                if time.monotonic() > end:
                    self.process.kill()
                time.sleep(_POLL_S)
        self.process.stdout.close()

    def _ended(self) -> UnavailableError:
        try:
            ended = f"ended with exit code {self.process.wait()}"
        except ConnectionError:
            ended = "was ended"
        return UnavailableError(
            f"the process of {self.task} {ended} while the cluster started; see its output above",
            task=str(self.task),
        )
