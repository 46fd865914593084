"""Pytest fixtures: `pytest_plugins = ["jflow.testing.fixtures"]` in a conftest.py.

A test that takes `backend` runs on each backend: this process, servers in it, servers in processes
of their own. The backends are opened when they are first needed and kept for the whole test run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jflow.compiler.graph import owners, reset_default_graph
from jflow.launch.testing.backends import BACKENDS, BackendPool, BackendUnderTest
from jflow.launch.testing.leaks import no_leaks


@pytest.fixture(scope="session")
def backend_pool() -> Iterator[BackendPool]:
    """The backends of this test run, opened at first use."""
    pool = BackendPool()
    yield pool
    pool.close()


@pytest.fixture(scope="session", params=list(BACKENDS))
def opened_backend(request: pytest.FixtureRequest, backend_pool: BackendPool) -> BackendUnderTest:
    """Each backend in turn, whose containers may hold state of earlier tests."""
    return backend_pool.get(request.param)


@pytest.fixture
def backend(opened_backend: BackendUnderTest) -> Iterator[BackendUnderTest]:
    """Each backend in turn; its default container is emptied before and after the test."""
    opened_backend.reset()
    yield opened_backend
    opened_backend.reset()


@pytest.fixture
def shared_backend(backend: BackendUnderTest) -> BackendUnderTest:
    """Each backend in turn whose sessions share state; skips the test on the others."""
    if not backend.shared:
        pytest.skip("sessions of this process share nothing")
    return backend


@pytest.fixture
def fresh_graph() -> Iterator[None]:
    """A new default graph for the test; fails if the test leaves a connection open."""
    reset_default_graph()
    before = owners.innermost()
    yield
    # It would make variables of other tests eager.
    assert owners.innermost() is before, "the test left a connection open"


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Fails if the test leaves a process, thread or listening port behind."""
    with no_leaks():
        yield
