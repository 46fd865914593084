"""The programs of the users, as the operator sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jflow.base.handles import Closing
from jflow.testing import ProgramProcess, cpu_time, wait_until
from tests.gameday.site import run_cli

ROLE = "use"
Told = dict[str, Any]


def make_token(user: str, folder: Path) -> dict[str, str]:
    """Makes a token for a user; returns the environment of their programs."""
    path = folder / f"token-of-{user}"
    run_cli("token", "make", user, "--role", ROLE, "-o", str(path))
    return {"JFLOW_TOKEN_FILE": str(path)}


class Person(Closing):
    """A program of a user that runs.

    Args:
      program: its module in `tests.gameday.programs`.
      environment: has the token of the user.
      arguments: of the program.

    Attributes:
      told: what it has said.
    """

    def __init__(self, program: str, environment: dict[str, str], *arguments: str) -> None:
        self._name = program
        module = f"tests.gameday.programs.{program}"
        self.process = ProgramProcess(["-m", module, *arguments], environment)
        self.told: list[Told] = []

    def hear(self) -> list[Told]:
        """Returns all that it has said until now."""
        while self.process.has_line():
            if not (line := self.process.read_line()):
                break
            self.told.append(json.loads(line))
        return self.told

    def find(self, key: str, first: int = 0) -> Told | None:
        """Returns what it said with some key, from a line on; None if it did not yet."""
        return next((told for told in self.hear()[first:] if key in told), None)

    def wait_for(self, key: str, *, is_new: bool = False) -> Told:
        """Waits until it says something with a key, or says so again from now on."""
        first, found = len(self.hear()) if is_new else 0, None

        def is_said() -> bool:
            nonlocal found
            found = self.find(key, first)
            return found is not None or self._has_ended()

        self._until(is_said, f"{self._name} to tell {key!r}")
        assert found is not None, f"{self._name} ended with {self.process.exit_code}: {self.told}"
        return found

    @property
    def n_rounds(self) -> int:
        """How many rounds have ended since the program was started."""
        return sum("rounds" in told for told in self.hear())

    def goes_on(self, n: int) -> None:
        """Waits until some more rounds have ended."""
        enough = self.n_rounds + n
        self._until(
            lambda: self.n_rounds >= enough or self._has_ended(), f"rounds of {self._name} to end"
        )
        assert not self._has_ended(), f"{self._name} ended with {self.process.exit_code}"

    def longest(self, first: int) -> float:
        """How long a round took at most, of those told from a line on, in seconds; else 0."""
        return max(
            (told["seconds"] for told in self.hear()[first:] if "seconds" in told), default=0
        )

    def end(self, key: str) -> Told:
        """Tells it that the day is over, waits until it has ended, and returns its last words."""
        self.process.write_line("over")
        code = self.process.wait()
        self.hear()
        assert code == 0, f"{self._name} ended with exit code {code}"
        assert key in self.told[-1], self.told[-1]
        return self.told[-1]

    def _has_ended(self) -> bool:
        return self.process.exit_code is not None

    def _until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, progress=lambda: cpu_time(self.process.pid))

    def _leave(self, failed: bool) -> None:
        self.process.close()
