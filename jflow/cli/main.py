"""The command `jflow`: a tour, servers, clusters that are watched, and what prepares them."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from jflow.base.cluster import ClusterSpec, parse_cluster
from jflow.base.cluster.membership import find_membership
from jflow.base.logs import log_to_stderr
from jflow.base.progress import Progress
from jflow.base.text import printable
from jflow.cli import (
    bench,
    completion,
    doctor,
    engines,
    listing,
    logs,
    members,
    replay,
    status,
    timeline,
    tokens,
    top,
    up,
)
from jflow.cli.advice import AdvisingParser
from jflow.cli.apart import add_apart_option, apart_variables
from jflow.cli.dashboard import command as dashboard
from jflow.cli.logs import add_log_options, log_options
from jflow.cli.members import add_members_options, check_joining, members_variables
from jflow.cli.output import say
from jflow.cli.quotas import add_quota_option, quota_variables
from jflow.cli.signals import STOPPING, interrupted
from jflow.cli.stuck import add_save_option, add_stuck_options, stuck_variables
from jflow.cli.version import version_text
from jflow.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
)

_DESCRIPTION = """\
Starts, watches and prepares clusters of jflow. For a beginning: `jflow demo`; `jflow up`, and
beside it `jflow status`. `jflow doctor` says which cluster a program would use, and what is wrong.
"""
_USAGE_ERRORS = (
    ValueError,
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
_STOP_S = 8.0
"""How long stopping may take, in seconds, before the process exits anyway."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      The exit code: 0; 1 for a failure, such as a cluster that does not answer; 2 for an invalid
      argument or environment variable; 3 if some of the tasks of a cluster do not answer, or a run
      log lacks something; 75 of a server that ends because it is stuck; 141, as of a program that
      SIGPIPE ends, if what reads its output has ended, as in `jflow ls | head`.
    """
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(arguments: Sequence[str] | None) -> int:
    """Parses the arguments and runs the verb; returns the exit code."""
    parser = _parser()
    completion.complete(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="jflow: %(message)s")
    try:
        code: int = options.run(options) or 0
    except BrokenPipeError:
        raise
    except (OpError, OSError, ValueError) as error:
        print(printable(f"jflow: {error}", allowed="\n"), file=sys.stderr)
        return 2 if isinstance(error, _USAGE_ERRORS) else 1
    return code


class _Version(argparse.Action):
    """Prints the version and exits; the commit is asked for only then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(version_text())
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = AdvisingParser(prog="jflow", description=_DESCRIPTION)
    parser.add_argument("--version", action=_Version, help="the version, and its commit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a tour in one minute, on this machine")
    demo.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        default=Path("jflow-demo.svg"),
        help="where to write the picture of the placed graph (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)

    calibrate = commands.add_parser(
        "calibrate", help="measures what devices and links do, for placement by cost"
    )
    calibrate.add_argument(
        "--target",
        metavar="grpc://HOST:PORT",
        help="a server of an idle cluster; its sessions are closed (default: three tasks on this "
        "machine, started for it)",
    )
    calibrate.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="where to write it (default: JFLOW_CALIBRATION, else the user's cache directory, "
        "where sessions look)",
    )
    calibrate.add_argument(
        "--quick", action="store_true", help="measures less, in seconds; not for figures"
    )
    calibrate.add_argument(
        "--show", action="store_true", help="measures nothing; prints what the file says"
    )
    calibrate.set_defaults(run=_calibrate)

    _add_server(commands)
    up.add_command(commands)
    for watching in (status, top, dashboard, timeline, listing, members, logs, doctor):
        watching.add_commands(commands)
    replay.add_command(commands)
    bench.add_command(commands)
    engines.add_commands(commands)
    tokens.add_command(commands)
    completion.add_command(commands)
    _describe(commands)
    return parser


def _describe(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Has the help of each command begin with what the list of commands says of it."""
    for listed in commands._choices_actions:
        command, description = commands.choices[listed.dest], listed.help or ""
        command.description = f"{description[:1].upper()}{description[1:]}."
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                _describe(action)


def _add_server(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    add_members_options(server)
    add_stuck_options(server)
    add_save_option(server)
    add_quota_option(server)
    add_apart_option(server)
    add_log_options(server)
    server.set_defaults(run=_server)
    token = commands.add_parser(
        "metrics-token", help="the token with which Prometheus reads metrics of other machines"
    )
    token.set_defaults(run=_metrics_token)


def _metrics_token(_: argparse.Namespace) -> None:
    from jflow.task.server.metrics import METRICS  # noqa: PLC0415 - no other command needs it here

    print(tokens.cluster_secret().key(METRICS).hex())


def _demo(options: argparse.Namespace) -> int:
    from jflow.cli.demo import run_demo  # noqa: PLC0415 - a server never builds graphs

    directory = options.picture.parent
    if not directory.is_dir():
        raise ValueError(f"--picture: the directory {str(directory)!r} does not exist")
    try:
        with interrupted():  # so that SIGTERM also ends the cluster and removes the checkpoints
            run_demo(options.picture)
    except KeyboardInterrupt:
        print("interrupted; no process is left", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _calibrate(options: argparse.Namespace) -> None:
    from jflow.client.runtime.calibration_file import (  # noqa: PLC0415
        calibration_path,
        read_calibration,
        write_calibration,
    )
    from jflow.client.runtime.target import checked_target  # noqa: PLC0415
    from jflow.lab.calibration import calibrate, calibration_report  # noqa: PLC0415 - as in _demo
    from jflow.launch import LocalCluster  # noqa: PLC0415

    path = options.output or calibration_path()
    if options.show:
        print(printable(calibration_report(read_calibration(path)), allowed="\n"))
        return
    if options.target is not None:
        checked_target(options.target)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        target = options.target
        if target is None:
            target = stack.enter_context(LocalCluster(ps=1, workers=2)).target()
        shown = stack.enter_context(Progress(None, "measuring", "figure"))
        calibration = calibrate(target, quick=options.quick, progress=shown.advance)
    with _writing(path):
        write_calibration(calibration, path)
    print(printable(calibration_report(calibration), allowed="\n"))
    print(f"written to {path}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"the calibration cannot be written to {path}: {error}") from error


def _server(options: argparse.Namespace) -> None:
    from jflow.task.server import Server  # noqa: PLC0415 - watchers need none
    from jflow.task.server.definition import which_task  # noqa: PLC0415
    from jflow.task.server.loop import exempt_from_collection  # noqa: PLC0415
    from jflow.task.server.stuck import STUCK_EXIT_CODE, restarts_when_stuck  # noqa: PLC0415

    if options.metrics is not None:
        os.environ["JFLOW_METRICS"] = options.metrics
    for variables in (stuck_variables, quota_variables, apart_variables, members_variables):
        os.environ.update(variables(options))
    restarts = restarts_when_stuck()
    roots = {"data_roots": options.data_root, "checkpoint_roots": options.checkpoint_root}
    if options.join is not None:
        check_joining(options)
        known = "" if options.index is None else f"/task:{options.index}"
        log_to_stderr(log_options(options), f"/job:{options.job}{known}")
        joined = (options.join, options.job, options.address, options.index)
        server = Server.joining(*joined, **roots)
    else:
        cluster, job, index = _task(options)
        log_to_stderr(log_options(options), str(which_task(cluster, job, index)))
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
    threading.Thread(target=_exit_after, args=(_STOP_S, code), daemon=True).start()
    server.stop()
    _exit(code)


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
    time.sleep(seconds)
    _exit(code)


def _exit(code: int) -> None:
    """Ends the process; a normal exit would wait for programs, which cannot be interrupted."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader of the pipe is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
