"""What every test needs: three CPU devices before JAX starts, and a default graph of its own."""

import os
import subprocess
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from hypothesis import settings

pytest_plugins = ["jflow.testing.fixtures"]
jax.config.update("jax_num_cpu_devices", 3)
# A test that fails should show jflow's own frames; those that are about tracebacks filter them.
jax.config.update("jax_traceback_filtering", "off")

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


@pytest.fixture(autouse=True)
def _fresh_default_graph(fresh_graph):
    """Every test has a default graph of its own."""


@pytest.fixture(scope="session")
def gpu():
    """The environment of programs that use this machine's GPU; a skip where there is none.

    The process of the tests keeps to CPUs itself.
    """
    environment = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS"}
    # The tasks of a cluster share the GPU, so none of them may take all of its memory.
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    found = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices('gpu')"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip(f"no GPU here: {found.stderr.strip().splitlines()[-1]}")
    return environment
