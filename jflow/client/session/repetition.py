"""`Repetition`: several runs of a step for one call of a session."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.client.runtime.backend import Executable
from jflow.errors import InvalidArgumentError


class Repetition:
    """Runs a step several times, in as few requests as possible.

    Args:
      n_steps: how often.
      is_stacked: whether the values of all runs are wanted.

    Raises:
      ValueError: if there is no run.
      TypeError: if `n_steps` is not an integer.
    """

    def __init__(self, n_steps: int, is_stacked: bool) -> None:
        self._n_steps = operator.index(n_steps)
        self._is_stacked = is_stacked
        if self._n_steps < 1:
            raise ValueError(f"expected at least one step, got {n_steps}")

    def run(
        self, executable: Executable, feeds: Sequence[Array], deadline: Deadline
    ) -> list[Array]:
        """Runs it, again where it had to be registered anew. Raises as `Executable.run_steps`."""
        parts: list[list[Array]] = []
        n_left = self._n_steps
        while n_left:
            n_done, values = executable.run_steps(feeds, deadline, n_left, self._is_stacked)
            parts.append(values)
            n_left -= n_done
        if not self._is_stacked or len(parts) == 1:
            return parts[-1]
        try:
            return [np.concatenate(column) for column in zip(*parts, strict=True)]
        except ValueError as error:
            raise InvalidArgumentError(
                f"results of different shapes cannot be stacked: {error}; the {self._n_steps} "
                "steps were applied"
            ) from None

    def repeated(self, value: Array) -> Array:
        """Returns what the call returns for a value that every run has, such as a fed one."""
        return np.stack([value] * self._n_steps) if self._is_stacked else value
