"""Names in the certificates of a cluster's tasks and clients."""

from __future__ import annotations

from jflow.base.cluster.device import Task

OF_TASKS = ".jflow"
"""The end of these names, which no host may have in a certificate."""
CLIENT_NAME = f"client{OF_TASKS}"
"""The name in the certificate of clients."""


def certified_name(task: Task | None) -> str:
    """The DNS name in the certificate of a task, "worker-1.jflow"; that of clients for None.

    TLS compares names without regard to case, so certificates do not distinguish the jobs "ps" and
    "PS"; `write_certificates` refuses clusters that have both.
    """
    return CLIENT_NAME if task is None else f"{task.job}-{task.index}{OF_TASKS}".lower()
