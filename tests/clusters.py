"""What tests run against; `jflow.testing` has it for users' projects too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jflow.launch.testing.backends import BackendPool
from jflow.testing import BACKENDS, BackendUnderTest, in_process, local, processes, start_servers

Backend = BackendUnderTest

__all__ = ["BACKENDS", "Backend", "in_process", "local", "opened_in", "processes", "start_servers"]


@contextmanager
def opened_in(pool: BackendPool, name: str) -> Iterator[Backend]:
    """The backend of that name in `BACKENDS`; processes are those of the whole test run.

    They take seconds to start. Servers in this process end with the block, because tests of other
    files look at what runs in it.
    """
    if name == "processes":
        yield pool.get(name)
    else:
        with BACKENDS[name]() as backend:
            yield backend
