"""Connections to everything that functions can run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendPool
from tests.clusters import BACKENDS, Backend, opened_in


@pytest.fixture(scope="session", params=list(BACKENDS))
def backend(request: pytest.FixtureRequest, backend_pool: BackendPool) -> Iterator[Backend]:
    """This process, servers in it, servers in processes of their own; one of each for all tests."""
    with opened_in(backend_pool, request.param) as backend:
        backend.reset()
        yield backend


@pytest.fixture
def connection(backend: Backend) -> Iterator[tf.function.Connection]:
    """A connection of this test's own, with nothing in its containers."""
    backend.reset()
    with tf.connect(backend.targets[0]) as connection:
        yield connection
