"""Which cluster a command means: its TARGET, else TF_CONFIG, else a `jflow up` of this user."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from jflow.base.cluster import Target, Task, read_tf_config

HELP = "a server of the cluster (default: that of TF_CONFIG, else of the running `jflow up`)"
TIMEOUT_S = 3.0
"""How long a server or task has to answer, in seconds, unless the user says otherwise."""


def add_options(parser: argparse.ArgumentParser, *, has_target: bool = True) -> None:
    """Adds TARGET and --timeout to a command."""
    if has_target:
        parser.add_argument("target", nargs="?", metavar="TARGET", help=f"grpc://HOST:PORT, {HELP}")
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long each task has to answer (default: %(default)g)",
    )


def candidates(target: str | None) -> list[str]:
    """Returns the servers of the cluster that the options name; any of them knows the others.

    Args:
      target: what the user gave.

    Raises:
      ValueError: if it is malformed, or nothing says which cluster is meant, or several do.
    """
    if target is not None:
        if not target.startswith("grpc://"):
            raise ValueError(f"TARGET must be grpc://HOST:PORT, got {target!r}")
        Target.parse(target)
        return [target]
    if cluster := read_tf_config().cluster:
        addresses = [cluster.task_address(task.job, task.index) for task in cluster.tasks()]
        pairs = zip(cluster.tasks(), addresses, strict=True)
        return [f"grpc://{address}?task={task}" for task, address in pairs]
    from jflow.net.wire.running_ups import running_ups  # noqa: PLC0415 - it imports JAX

    running = running_ups()
    if len(running) > 1:
        named = ", ".join(f"{up.targets[0].partition('?')[0]} (process {up.pid})" for up in running)
        raise ValueError(f"{len(running)} clusters of `jflow up` are running: {named}; give TARGET")
    if not running:
        where = "TF_CONFIG is empty" if os.environ.get("TF_CONFIG") else "TF_CONFIG is not set"
        raise ValueError(
            f"which cluster? {where} and no `jflow up` of this user is running; give TARGET, "
            "grpc://HOST:PORT of one of its servers"
        )
    return list(running[0].targets)


def parse_tasks(names: Sequence[str] | None) -> list[Task]:
    """Returns the tasks of --task. Raises ValueError if one is malformed."""
    return [Task.parse(name) for name in names or ()]
