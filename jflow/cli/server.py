"""`jflow server`: one task of a cluster; and the token for its metrics."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from contextlib import suppress

from jflow.base.cluster import ClusterSpec, parse_cluster
from jflow.base.cluster.membership import find_membership
from jflow.base.logs import LogOptions, log_to_stderr
from jflow.cli.output import say
from jflow.cli.server_options import add_server_options, set_variables
from jflow.cli.signals import STOPPING, interrupted
from jflow.cli.tokens import cluster_secret

_STOP_S = 8.0
"""How long stopping may take, in seconds, before the process exits anyway."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    server = commands.add_parser("server", help="runs one task of a cluster until it is stopped")
    server.add_argument(
        "--cluster",
        metavar="JSON",
        help='the cluster: {"ps": ["host:port"], "worker": {"3": "host"}} gives the addresses of '
        "a job as a list or by task index, with port 2222 by default (default: TF_CONFIG, or what "
        "Slurm, Open MPI or Kubernetes say)",
    )
    server.add_argument("--job", metavar="NAME", help="the job of this task")
    server.add_argument("--index", type=int, metavar="N", help="the index of this task in its job")
    server.add_argument(
        "--data-root",
        action="append",
        metavar="DIR",
        help="a directory that readers may read; may be repeated (default: JFLOW_DATA_ROOTS)",
    )
    server.add_argument(
        "--checkpoint-root",
        action="append",
        metavar="DIR",
        help="a directory that checkpoints may be written to and read from; may be repeated "
        "(default: JFLOW_CHECKPOINT_ROOTS; else any directory if the server listens on the "
        "loopback interface only, and none if it does not)",
    )
    server.add_argument(
        "--metrics",
        metavar="[HOST:]PORT[+]",
        help="where Prometheus finds the metrics of the task; with + the first free port from PORT "
        "on (default: JFLOW_METRICS, else nowhere)",
    )
    _add_members_options(server)
    add_server_options(server)
    server.set_defaults(run=_server)
    token = commands.add_parser(
        "metrics-token", help="the token with which Prometheus reads metrics of other machines"
    )
    token.set_defaults(run=_metrics_token)


def _add_members_options(parser: argparse.ArgumentParser) -> None:
    """Adds --members, --join and --address."""
    parser.add_argument(
        "--members",
        metavar="DIR",
        help="where the task keeps the list of members, as DIR/JOB-INDEX.json; tasks join and "
        "leave only if the task has one that keeps the list: at first the one with the variables "
        "that request no device (default: JFLOW_MEMBERS, else nowhere)",
    )
    parser.add_argument(
        "--join",
        metavar="grpc://HOST:PORT",
        help="a server of a running cluster that this task joins, in place of --cluster; --index "
        "is that of a task that has ended, or left out for a new one",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="where the task listens that joins, with port 2222 by default",
    )


def _metrics_token(_: argparse.Namespace) -> None:
    from jflow.task.server.metrics import METRICS  # noqa: PLC0415 - no other command needs it here

    print(cluster_secret().key(METRICS).hex())


def _server(options: argparse.Namespace) -> None:
    from jflow.task.server import Server  # noqa: PLC0415 - watchers need none
    from jflow.task.server.definition import which_task  # noqa: PLC0415
    from jflow.task.server.loop import exempt_from_collection  # noqa: PLC0415
    from jflow.task.server.stuck import STUCK_EXIT_CODE, restarts_when_stuck  # noqa: PLC0415

    set_variables(options, JFLOW_METRICS=options.metrics, JFLOW_MEMBERS=options.members)
    restarts = restarts_when_stuck()
    roots = {"data_roots": options.data_root, "checkpoint_roots": options.checkpoint_root}
    if options.join is not None:
        _check_joining(options)
        known = "" if options.index is None else f"/task:{options.index}"
        log_to_stderr(LogOptions.of(), f"/job:{options.job}{known}")
        joined = (options.join, options.job, options.address, options.index)
        server = Server.joining(*joined, **roots)
    else:
        cluster, job, index = _task(options)
        log_to_stderr(LogOptions.of(), str(which_task(cluster, job, index)))
        server = Server(cluster, job, index, **roots)
    try:
        with interrupted():
            if restarts:
                server.leave_when_stuck()
            exempt_from_collection()
            say(f"{server!r} is ready")
            server.join()
    except KeyboardInterrupt:
        with suppress(OSError):  # the reader of the pipe is gone
            print("stopping", flush=True)
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
    code = STUCK_EXIT_CODE if server.stuck_reason else 0
    _exit_after(_STOP_S, code)
    server.stop()
    _exit(code)


def _check_joining(options: argparse.Namespace) -> None:
    """Raises ValueError if a task cannot join by what the options say."""
    if options.cluster is not None:
        raise ValueError("--join and --cluster exclude each other: the cluster says what it has")
    for name in ("job", "address"):
        if getattr(options, name) is None:
            raise ValueError(f"--join needs --{name}")


def _task(options: argparse.Namespace) -> tuple[ClusterSpec, str | None, int | None]:
    """The cluster, job and index of a server, of which the last two may be left to be inferred."""
    job, index = options.job, options.index
    if options.cluster is not None:
        cluster = parse_cluster(options.cluster, "--cluster")
    elif (membership := find_membership()) is None:
        cluster = ClusterSpec({})
    else:
        cluster = membership.cluster
        # A server reads TF_CONFIG by itself, and knows what to say where that is wrong.
        if (
            membership.task is not None
            and membership.source != "TF_CONFIG"
            and job is index is None
        ):
            job, index = membership.task.job, membership.task.index
    if not cluster:
        raise ValueError("no cluster: give --cluster, or set TF_CONFIG")
    return cluster, job, index


def _exit_after(seconds: float, code: int) -> None:
    timer = threading.Timer(seconds, _exit, (code,))
    timer.daemon = True
    timer.start()


def _exit(code: int) -> None:
    """Ends the process; a normal exit would wait for programs, which cannot be interrupted."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader of the pipe is gone
            stream.flush()
    os._exit(code)
