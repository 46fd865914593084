"""What every test needs: three CPU devices before JAX starts, and a default graph of its own."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from hypothesis import settings

import jflow as tf

jax.config.update("jax_num_cpu_devices", 3)

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


@pytest.fixture(autouse=True)
def _fresh_default_graph():
    tf.reset_default_graph()
