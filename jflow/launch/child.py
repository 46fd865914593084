"""The process of one task of a cluster: `python -m jflow.launch.child JOB INDEX [CLUSTER]`.

Without a cluster it listens on the loopback interface, on a port that the system chooses, writes
its address to standard output, and reads the cluster from a line of standard input. It writes there
that it is ready, or why it cannot start, and serves until its server is told to stop or that input
ends: the parent has closed it, or has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax

from jflow.base.cluster import ClusterSpec, Task
from jflow.base.logs import LogOptions, log_to_stderr
from jflow.errors import OpError
from jflow.net.wire import remove_own_sockets
from jflow.plan.compiler import COMPILER
from jflow.plan.validator import VALIDATOR
from jflow.task.server import Server
from jflow.task.server.apart import VARIABLE as COMPILE_APART
from jflow.task.server.stuck import STUCK_EXIT_CODE, restarts_when_stuck


def main(server_type: Callable[..., Server] = Server) -> int:
    """Runs the server of one task until it is stopped or standard input ends.

    Args:
      server_type: the class of the server.

    Returns:
      The exit code: 0, or `STUCK_EXIT_CODE`.
    """
    VALIDATOR.fork()  # nothing of JAX has been started yet
    if os.environ.get(COMPILE_APART) == "1":
        COMPILER.fork()
    job, index = sys.argv[1], int(sys.argv[2])
    cluster = json.loads(sys.argv[3]) if sys.argv[3:] else {job: {index: "127.0.0.1:0"}}
    signal.signal(signal.SIGTERM, _exit)
    if platforms := os.environ.get("JAX_PLATFORMS"):
        # JAX has been imported before the fork, with the environment of that moment.
        jax.config.update("jax_platforms", platforms)
    try:
        log_to_stderr(LogOptions.of(), str(Task(job, index)))
        restarts = restarts_when_stuck()
        server = server_type(ClusterSpec(cluster), job, index)
    except OpError as error:
        _tell({"error": int(error.error_code), "message": error.message})
        return 0
    with server:
        if not sys.argv[3:]:
            _tell({"address": server.cluster_spec.task_address(job, index)})
            line = sys.stdin.readline()
            if not line:
                return 0
            server.connect(json.loads(line)["cluster"])
        if restarts:
            server.leave_when_stuck()
        _tell({"ready": True})
        threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
        server.join()
        return STUCK_EXIT_CODE if server.stuck_reason else 0


def _stop_with_input(server: Server) -> None:
    """Stops a server when standard input ends."""
    sys.stdin.read()
    server.stop()


def _tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _exit(_: int, __: FrameType | None) -> None:
    remove_own_sockets()
    os._exit(0)


if __name__ == "__main__":
    code = main()
    # A normal exit would wait for a device that runs a program, which cannot be cancelled.
    os._exit(code)
