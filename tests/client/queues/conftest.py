"""The three backends, without what tests leave in a container of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters import Backend


@pytest.fixture
def backend(backend: Backend) -> Iterator[Backend]:
    yield backend
    backend.reset("other")


@pytest.fixture
def cluster(shared_backend: Backend) -> Backend:
    """A backend on which sessions share state."""
    return shared_backend
