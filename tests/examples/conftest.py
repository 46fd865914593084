"""A cluster in this process with a coordinator, for examples that schedule functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import jflow as tf
from jflow.testing import start_servers


@pytest.fixture
def coordinator(request: pytest.FixtureRequest) -> Iterator[tf.ClusterCoordinator]:
    """A coordinator of two workers; indirect parameters are options of its strategy."""
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 2})
        strategy = tf.distribute.ParameterServerStrategy(
            servers[0].cluster_spec, **getattr(request, "param", {})
        )
        stack.callback(strategy.close)
        yield stack.enter_context(tf.ClusterCoordinator(strategy))
