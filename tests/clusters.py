"""What tests run against; `jflow.testing` has it for users' projects too."""

from jflow.testing import BACKENDS, BackendUnderTest, in_process, local, processes, start_servers

Backend = BackendUnderTest

__all__ = ["BACKENDS", "Backend", "in_process", "local", "processes", "start_servers"]
