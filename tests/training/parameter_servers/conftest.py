"""A cluster in this process: two parameter servers and two workers, and strategies on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import jflow as tf
from jflow.base.cluster import ClusterSpec
from jflow.testing import start_servers

Strategy = tf.distribute.ParameterServerStrategy


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterSpec]:
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 2})
        yield servers[0].cluster_spec


@pytest.fixture
def make_strategy(cluster: ClusterSpec) -> Iterator[Callable[..., Strategy]]:
    """Makes strategies on the cluster, whose containers are empty at first."""
    tf.Session.reset(f"grpc://{cluster.task_address('ps', 0)}")
    with ExitStack() as stack:

        def make(*args: Any, **options: Any) -> Strategy:
            strategy = Strategy(cluster, *args, **options)
            stack.callback(strategy.close)
            return strategy

        yield make


@pytest.fixture
def strategy(make_strategy: Callable[..., Strategy]) -> Strategy:
    return make_strategy()
