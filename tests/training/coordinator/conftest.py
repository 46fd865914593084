"""A cluster of a parameter server and two workers in this process, and coordinators of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jflow.base.cluster import ClusterSpec
from jflow.client.session import Session
from jflow.launch.testing.backends import start_servers
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.parameter_servers import ParameterServerStrategy


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSpec]:
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 2})
        yield servers[0].cluster_spec


@pytest.fixture
def made(cluster: ClusterSpec) -> Iterator[Callable[..., ClusterCoordinator]]:
    """Makes coordinators, which end with the test."""
    with ExitStack() as stack:

        def make(spec: ClusterSpec = cluster, **options: float) -> ClusterCoordinator:
            strategy = ParameterServerStrategy(spec)
            stack.callback(strategy.close)
            return stack.enter_context(ClusterCoordinator(strategy, **options))

        yield make
    Session.reset(f"grpc://{cluster.task_address('ps', 0)}", [])


@pytest.fixture
def coordinator(made: Callable[..., ClusterCoordinator]) -> ClusterCoordinator:
    return made()
