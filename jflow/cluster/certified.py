"""Names in the certificates of a cluster's tasks and clients."""

from __future__ import annotations

from jflow.cluster.device import Task

CLIENT_NAME = "client.jflow"
"""The name in the certificate of clients."""


def certified_name(task: Task | None) -> str:
    """The DNS name in the certificate of a task, "worker-1.jflow"; that of clients for None.

    TLS compares names without regard to case, so certificates do not distinguish the jobs "ps" and
    "PS"; `write_certificates` refuses clusters that have both.
    """
    return CLIENT_NAME if task is None else f"{task.job}-{task.index}.jflow".lower()
