"""Connections to everything that functions can run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jflow as tf
from jflow.testing import BACKENDS, BackendPool
from jflow.testing import BackendUnderTest as Backend


@pytest.fixture(scope="session", params=list(BACKENDS))
def backend(request: pytest.FixtureRequest, backend_pool: BackendPool) -> Backend:
    """This process, servers in it, servers in processes of their own; one of each for all tests."""
    return backend_pool.get(request.param)


@pytest.fixture
def connection(backend: Backend) -> Iterator[tf.function.Connection]:
    """A connection of this test's own, with nothing in its containers."""
    backend.reset()
    with tf.connect(backend.targets[0]) as connection:
        yield connection
