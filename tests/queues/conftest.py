"""The three backends, opened once for the whole test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jflow.testing import BackendUnderTest as Backend


@pytest.fixture
def backend(opened_backend: Backend) -> Iterator[Backend]:
    opened_backend.reset("", "other")
    yield opened_backend
    opened_backend.reset("", "other")


@pytest.fixture
def cluster(backend: Backend) -> Backend:
    """A backend on which sessions share state."""
    if not backend.shared:
        pytest.skip("local sessions share nothing")
    return backend
