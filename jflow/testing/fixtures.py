"""Fixtures of pytest: `pytest_plugins = ["jflow.testing.fixtures"]` in a conftest.py."""

from jflow.launch.testing.fixtures import backend as backend
from jflow.launch.testing.fixtures import backend_pool as backend_pool
from jflow.launch.testing.fixtures import fresh_graph as fresh_graph
from jflow.launch.testing.fixtures import leaves_nothing as leaves_nothing
from jflow.launch.testing.fixtures import opened_backend as opened_backend
from jflow.launch.testing.fixtures import shared_backend as shared_backend
