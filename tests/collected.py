"""The tests that a run has found, before it has left out any by their marks."""

from __future__ import annotations

import pytest

ALL_IDS = pytest.StashKey[list[str]]()
"""In the configuration: the ids of all tests in the files of this run."""
