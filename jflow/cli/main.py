"""`jflow demo` and `jflow server`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from jflow.cluster import read_tf_config
from jflow.demo import run_demo
from jflow.errors import OpError
from jflow.server import Server

_STOPPING = (signal.SIGTERM, signal.SIGINT)
_STOP_S = 8.0
"""How long stopping may take before the process ends without it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0, or 1 when it could not do what was asked."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="jflow: %(message)s")
    try:
        options.run(options)
    except (OpError, ValueError) as error:
        print(f"jflow: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jflow", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="a tour in one minute, on this machine")
    demo.add_argument(
        "--picture",
        type=Path,
        default=Path("jflow-demo.svg"),
        help="where to write the picture of the placed graph (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)

    server = commands.add_parser("server", help="runs one task of a cluster until it is stopped")
    server.add_argument(
        "--cluster", help='the cluster as JSON, {"ps": ["host:port"], …}; else TF_CONFIG tells it'
    )
    server.add_argument("--job", help="which job this task belongs to")
    server.add_argument("--index", type=int, help="which task of the job this is")
    server.add_argument(
        "--data-root",
        action="append",
        metavar="DIR",
        help="where readers may read files; may be given several times (else JFLOW_DATA_ROOTS)",
    )
    server.set_defaults(run=_server)
    return parser


def _demo(options: argparse.Namespace) -> None:
    run_demo(options.picture)


def _server(options: argparse.Namespace) -> None:
    cluster = json.loads(options.cluster) if options.cluster else read_tf_config().cluster
    if not cluster:
        raise ValueError("no cluster: give --cluster, or set TF_CONFIG")
    server = Server(cluster, options.job, options.index, data_roots=options.data_root)
    try:
        for number in _STOPPING:
            signal.signal(number, _interrupt)
        print(f"{server!r} is ready", flush=True)
        server.join()
    except KeyboardInterrupt:
        print("stopping", flush=True)
    for number in _STOPPING:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    threading.Thread(target=_exit_after, args=(_STOP_S,), daemon=True).start()
    server.stop()
    _exit()


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _exit_after(seconds: float) -> None:
    time.sleep(seconds)
    _exit()


def _exit() -> None:
    """Ends the process: Python would wait for programs that nothing can interrupt."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nothing reads it any more
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
