"""What a program is. It imports neither TensorFlow nor jflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Step = tuple[Any, ...]
"""What a session runs at once: a fetch, and perhaps what it is fed."""


@dataclass(frozen=True)
class Program:
    """A graph, and what a session fetches from it.

    Attributes:
      build: adds to the default graph of a module `tf`, which is TensorFlow's `compat.v1` or jflow,
        and returns what to fetch, by name, each in a step after the variables were initialized
        anew; a list is several steps in a row, of which the last is the value.
      expected: the values.
    """

    build: Callable[[Any], Mapping[str, Any]]
    expected: Mapping[str, Any]

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
                for step in fetch if isinstance(fetch, list) else [fetch]:
                    value = running.run(*step) if isinstance(step, tuple) else running.run(step)
                np.testing.assert_allclose(
                    value, self.expected[name], rtol=1e-5, err_msg=f"{self.name}: {name}"
                )


def gives(**expected: Any) -> Callable[[Callable[[Any], Mapping[str, Any]]], Program]:
    """Makes a program of its `build`, with the values that are expected, by name."""
    return lambda build: Program(build, expected)
