"""The three backends, opened once for the files that share them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jflow.launch.testing.backends import BackendPool
from tests.clusters import BACKENDS, Backend, opened_in

CONTAINERS = ("", "problem", "other")


@pytest.fixture(scope="package", params=list(BACKENDS))
def opened(request: pytest.FixtureRequest, backend_pool: BackendPool) -> Iterator[Backend]:
    with opened_in(backend_pool, request.param) as backend:
        backend.reset(*CONTAINERS)
        yield backend


@pytest.fixture
def backend(opened: Backend) -> Iterator[Backend]:
    yield opened
    opened.reset(*CONTAINERS)
