"""The zygotes of this process: what starts programs of tests quickly, kept until it ends."""

from __future__ import annotations

import atexit
import os
import threading

from jflow.launch.zygote import Zygote

CHILD = "jflow.launch.child"
"""The program of a task, which imports what all programs with jflow need."""

_READ_AT_IMPORT = (
    *("CUDA_", "GLIBC_", "GRPC_", "JAX_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON"),
    *("TF_CPP_", "XLA_"),
)
"""How the names of variables begin that libraries read when they are imported."""

_zygotes: dict[object, Zygote] = {}
_lock = threading.Lock()


def shared_zygote() -> Zygote:
    """The zygote of this process, which is started at its first use and must not be closed.

    A program must not see what another one would have read at its start. So there is one for each
    working directory and environment of libraries that this process has had.
    """
    variables = sorted(item for item in os.environ.items() if item[0].startswith(_READ_AT_IMPORT))
    key = (os.getpid(), os.getcwd(), tuple(variables))
    with _lock:
        zygote = _zygotes.get(key)
        if zygote is None or zygote.has_ended:
            zygote = _zygotes[key] = Zygote([CHILD])
            atexit.register(zygote.close)
        return zygote


def shared_pids() -> set[int]:
    """The process ids of the shared zygotes."""
    with _lock:
        return {zygote.pid for zygote in _zygotes.values()}
