"""How many examples a property test draws."""

from __future__ import annotations

from hypothesis import settings

BASE = 25
"""Examples of a property test that does not say how many it needs, in `make test`."""


def examples(n: int) -> int:
    """The number of examples in this run, of a property test for which `make test` draws `n`.

    `make check-long` draws more of every test by the same factor.
    """
    return max(1, n * settings().max_examples // BASE)
