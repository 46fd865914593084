"""`jflow dashboard` and `jflow up --dashboard`: serve the live page of a cluster."""

from __future__ import annotations

import argparse
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from jflow.base.text import printable
from jflow.cli.signals import interrupted, wait_for_signal
from jflow.cli.targets import TIMEOUT_S, add_options, candidates
from jflow.errors import UnimplementedError

if TYPE_CHECKING:
    import uvicorn

_INTERVAL_S = 1.0
_START_S = 30.0


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    dashboard = commands.add_parser(
        "dashboard", help="a live page of a cluster for a browser on this machine, until Ctrl-C"
    )
    add_options(dashboard)
    dashboard.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="PORT",
        help="where to listen (default: any free one)",
    )
    dashboard.set_defaults(run=_dashboard)


def _dashboard(options: argparse.Namespace) -> int:
    with (
        suppress(KeyboardInterrupt),
        interrupted(),
        served(candidates(options.target), options.timeout, options.port) as url,
    ):
        print(f"the page is at {printable(url)}\nCtrl-C ends it", flush=True)
        wait_for_signal()
    return 0


@contextmanager
def served(
    targets: Sequence[str],
    seconds: float = TIMEOUT_S,
    port: int = 0,
    interval_s: float = _INTERVAL_S,
) -> Iterator[str]:
    """A context manager that serves the page of a cluster on a thread.

    Args:
      targets: servers of the cluster.
      seconds: how long a server or a task has to answer.
      port: where to listen on this machine's loopback; 0 for any free port.
      interval_s: the time between two looks at the cluster while the page is open, in seconds.

    Yields:
      The URL, with a token that is valid as long as the block.

    Raises:
      UnimplementedError: if Starlette and uvicorn are not installed (`jflow[dashboard]`).
      ValueError: if something else listens on the port.
    """
    try:
        import uvicorn  # noqa: PLC0415 - needs `jflow[dashboard]`

        from jflow.cli.dashboard.app import application  # noqa: PLC0415
    except ImportError as error:
        raise UnimplementedError(
            f"the page needs {error.name}; install it: pip install 'jflow[dashboard]'"
        ) from None
    from jflow.cli.dashboard.looks import Looks  # noqa: PLC0415 - it imports JAX

    with _listening(port) as listener, Looks(targets, seconds, interval_s) as looks:
        token, bound = secrets.token_urlsafe(24), listener.getsockname()[1]
        config = uvicorn.Config(
            application(looks, token, bound), log_config=None, access_log=False, lifespan="off"
        )
        with _running(uvicorn.Server(config), listener):
            yield f"http://127.0.0.1:{bound}/#token={token}"


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    listener = socket.socket()
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise ValueError(f"--port: cannot listen on 127.0.0.1:{port}: {error}") from None
        listener.listen(128)  # a browser may be quicker than the thread that serves
        yield listener


@contextmanager
def _running(server: uvicorn.Server, listener: socket.socket) -> Iterator[None]:
    """Runs a server on a thread; signals remain those of this process."""
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="jflow dashboard http", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_START_S)
