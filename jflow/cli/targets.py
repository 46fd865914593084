"""Which cluster a command means: its TARGET, else TF_CONFIG, else a `jflow up` of this user."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from contextlib import suppress

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


def add_names(parser: argparse.ArgumentParser, what: str, more: str) -> None:
    """Adds TARGET and names to a command; `split_target` takes them apart.

    Args:
      parser: of the command.
      what: what each name is called.
      more: what the help says of them.
    """
    help_text = f"grpc://HOST:PORT, {HELP}; and {more}"
    parser.add_argument("names", nargs="*", metavar=f"[TARGET] {what}", help=help_text)


def split_target(names: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Returns the target, None if there is none, and the names of `add_names`."""
    has_target = bool(names) and names[0].startswith("grpc://")
    return (names[0], names[1:]) if has_target else (None, names)


def add_tasks(parser: argparse.ArgumentParser) -> None:
    """Adds --task to a command."""
    parser.add_argument(
        "--task", action="append", metavar="/job:JOB/task:I", help="only this one; may be repeated"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json to a command."""
    parser.add_argument("--json", action="store_true", help="for programs instead of people")


def parse_seconds(text: str, *, may_be_infinite: bool = False) -> float:
    """Returns the seconds that an argument says. Raises ArgumentTypeError if it says none."""
    with suppress(ValueError):
        seconds = float(text)
        if 0 < seconds < math.inf or (may_be_infinite and seconds == math.inf):
            return seconds
    raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")


def parse_tasks(names: Sequence[str] | None) -> list[Task]:
    """Returns the tasks of --task. Raises ValueError if one is malformed."""
    return [Task.parse(name) for name in names or ()]
