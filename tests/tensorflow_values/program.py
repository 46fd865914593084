"""What a program is. It imports neither TensorFlow nor jflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


class Steps:
    """Several calls of `Session.run`, of which the last one gives the value.

    Args:
      steps: a fetch each, or a tuple of a fetch and what it is fed.
    """

    def __init__(self, *steps: Any) -> None:
        self._steps = [step if isinstance(step, tuple) else (step,) for step in steps]

    def run(self, session: Any) -> Any:
        """Runs them in order and returns the value of the last one."""
        return [session.run(*step) for step in self._steps][-1]


@dataclass(frozen=True)
class Program:
    """A graph, and what a session fetches from it.

    Attributes:
      build: adds to the default graph of a module `tf`, which is TensorFlow's `compat.v1` or jflow,
        and returns what to fetch, by name, or `Steps`. The variables are initialized before each.
      expected: the values.
      needs_resources: whether it fails with TensorFlow's reference variables.
    """

    build: Callable[[Any], Mapping[str, Any]]
    expected: Mapping[str, Any]
    needs_resources: bool = False

    @property
    def name(self) -> str:
        """What it shows."""
        return self.build.__name__

    def check(self, tf: Any, session: Any) -> None:
        """Runs the program in a session of the default graph, which may be another for each call.

        Args:
          tf: the module.
          session: makes a session.

        Raises:
          AssertionError: if a value is another one.
        """
        fetches = self.build(tf)
        assert {*fetches} == {*self.expected}, self.name
        initializer = tf.global_variables_initializer()
        with session() as running:
            for name, fetch in fetches.items():
                running.run(initializer)
                steps = fetch if isinstance(fetch, Steps) else Steps(fetch)
                value = steps.run(running)
                np.testing.assert_allclose(
                    value, self.expected[name], rtol=1e-4, err_msg=f"{self.name}: {name}"
                )


def gives(**expected: Any) -> Callable[[Callable[[Any], Mapping[str, Any]]], Program]:
    """Makes a program of its `build`, with the values that are expected, by name."""
    return lambda build: Program(build, expected)
