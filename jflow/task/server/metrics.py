"""An endpoint with the metrics of a task in Prometheus' text format; off unless it is asked for.

`JFLOW_METRICS` says where: a port of the loopback, or `HOST:PORT`; with `+` behind it the first
free port from there on. Beyond the loopback it needs the certificates of `JFLOW_TLS_DIR`, of both
ends, and a token of its own, which gives access to nothing else (`jflow metrics-token`).

A metric has a label for each container at most. `JFLOW_METRICS_LABELS` asks for more: "queues",
"variables".
"""

from __future__ import annotations

import hmac
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from jflow.base.cluster import Task, split_address
from jflow.base.logs import event
from jflow.errors import InvalidArgumentError, UnknownError
from jflow.net.wire.tls import Tls
from jflow.state.records import needed
from jflow.state.watch import CoordinatorStatus, StatusRequest, TaskStatus

METRICS = "metrics"
"""The service that the key of the token for metrics is made for."""
VARIABLE = "JFLOW_METRICS"
LABELS_VARIABLE = "JFLOW_METRICS_LABELS"
_LABELS = ("queues", "variables")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_N_PORTS = 100
"""How many ports are tried where the first free one is wanted."""

_N_CALLERS = 16
"""How many callers are served at a time."""

_LOG = logging.getLogger(__name__)

Look = Callable[[StatusRequest], tuple[TaskStatus, Sequence[CoordinatorStatus]]]
"""Returns the status of the task, with its coordinators; called on any thread."""


class MetricsServer:
    """Serves the metrics of a task until it is closed."""

    def __init__(self, server: WSGIServer, address: str) -> None:
        self._server = server
        self.address = address
        self._thread = threading.Thread(
            target=server.serve_forever, name="jflow metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    task: Task,
    look: Look,
    tls: Tls | None,
    token: str,
    environ: Mapping[str, str] = os.environ,
) -> MetricsServer | None:
    """Serves the metrics of a task if the environment asks for them; None if it does not.

    Args:
      task: the task.
      look: see `Look`.
      tls: the certificates of the task.
      token: what a caller beyond the loopback needs.
      environ: the environment variables.

    Raises:
      InvalidArgumentError: if a variable is malformed, or there are no certificates for an address
        beyond the loopback.
      UnimplementedError: if prometheus_client is not installed (`jflow[metrics]`).
      UnknownError: if the port is in use.
    """
    place = environ.get(VARIABLE)
    if not place:
        return None
    host, port, n_ports = _place(place)
    labels = _labels(environ.get(LABELS_VARIABLE, ""))
    is_local = host in _LOOPBACK
    if not is_local and tls is None:
        raise InvalidArgumentError(
            f"{VARIABLE} is {place!r}, which others can reach: set JFLOW_TLS_DIR, or use a port of "
            "the loopback"
        )
    client = needed("prometheus_client", "metrics", "serving metrics")
    registry = client.CollectorRegistry()
    core = needed("prometheus_client.core", "metrics", "serving metrics")
    registry.register(_TaskCollector(core, task, look, labels))
    client.ProcessCollector(registry=registry)
    client.GCCollector(registry=registry)
    app = _guarded(client.make_wsgi_app(registry), None if is_local else token)
    server = _bound(host, port, n_ports)
    if not is_local and tls is not None:
        # The handshake is the handler's: a caller that says nothing must not keep others waiting.
        server.socket = _context(tls).wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    server.set_app(app)
    address = f"{'http' if is_local else 'https'}://{host}:{server.server_port}/metrics"
    event(_LOG, logging.INFO, "metrics_served", at=address)
    return MetricsServer(server, address)


def _place(text: str) -> tuple[str, int, int]:
    """Returns the host, the first port, and how many ports to try."""
    is_first_free = text.endswith("+")
    address = text.removesuffix("+")
    try:
        named = address if ":" in address else f"127.0.0.1:{int(address)}"
        host, port = split_address(named)
        if not 0 <= port < 1 << 16:
            raise ValueError(port)
    except ValueError:
        raise InvalidArgumentError(
            f"{VARIABLE} must be PORT or HOST:PORT, possibly with + behind it, got {text!r}"
        ) from None
    return host, port, _N_PORTS if is_first_free else 1


def _labels(text: str) -> frozenset[str]:
    labels = frozenset(name.strip() for name in text.split(",") if name.strip())
    if unknown := labels - {*_LABELS}:
        raise InvalidArgumentError(
            f"{LABELS_VARIABLE} must be some of {', '.join(_LABELS)}, got {min(unknown)!r}"
        )
    return labels


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Connections that have ended keep a port for a minute; one that listens keeps it in any case.
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_N_CALLERS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a caller on a thread of its own, or ends its connection if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a caller."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs nothing: a caller that breaks off is no event."""

    def server_bind(self) -> None:
        """Binds without looking up the name of the host, which may take seconds."""
        super(WSGIServer, self).server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # of a caller that says nothing

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        """Logs nothing: scrapes are no events."""


def _bound(host: str, port: int, n_ports: int) -> WSGIServer:
    made = _Server6 if ":" in host else _Server
    for candidate in range(port, min(port + n_ports, 1 << 16)):
        try:
            return made((host, candidate), _Handler)
        except OSError as error:
            latest = error
    raise UnknownError(f"{VARIABLE}: cannot listen on {host}:{port}: {latest}")


def _context(tls: Tls) -> ssl.SSLContext:
    """TLS of both ends, as for the callers of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(tls.identity_path)
    context.load_verify_locations(tls.authority_path)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _guarded(app: Any, token: str | None) -> Any:
    """Returns an application that refuses callers that may not read the metrics."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if token is None:
            host = environ.get("HTTP_HOST", "").rpartition(":")[0].strip("[]")
            is_allowed = host in _LOOPBACK
        else:
            given = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1")
            is_allowed = hmac.compare_digest(given, f"Bearer {token}".encode())
        if is_allowed and environ.get("REQUEST_METHOD") in ("GET", "HEAD"):
            return app(environ, start_response)  # type: ignore[no-any-return]
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"refused\n"]

    return answer


class _TaskCollector:
    """Makes the metrics of a task from its status, when they are asked for."""

    def __init__(self, core: Any, task: Task, look: Look, labels: frozenset[str]) -> None:
        self._core = core
        self._task = str(task)
        self._look = look
        self._labels = labels

    def describe(self) -> Iterable[Any]:
        """Returns nothing, so that registering makes no look."""
        return []

    def collect(self) -> Iterable[Any]:
        """Yields the metrics."""
        kinds = ("containers", "sessions", "steps", "queues", *sorted(self._labels - {"queues"}))
        status, coordinators = self._look(StatusRequest(kinds))
        yield self._gauge(
            "jflow_task",
            "1; its version and incarnation.",
            ("version",),
            [((status.version,), 1.0)],
        )
        yield from self._totals(status)
        yield from self._containers(status)
        yield from self._queues(status)
        yield from self._closures(coordinators)
        if "variables" in self._labels:
            rows = [((one.container, one.name), float(one.n_bytes)) for one in status.variables]
            help_text = "The memory of a variable; of the first 500 of the task."
            yield self._gauge("jflow_variable_bytes", help_text, ("container", "variable"), rows)

    def _totals(self, status: TaskStatus) -> Iterable[Any]:
        waiting = sum(bool(step.waiting_for) for step in status.steps)
        yield self._counter("jflow_steps", "Steps that have begun on the task.", status.n_begun)
        yield self._counter("jflow_programs", "Programs that it has compiled.", status.n_compiled)
        for name, text, value in (
            ("jflow_uptime_seconds", "Since its server started.", status.uptime_s),
            ("jflow_running_steps", "Steps that run on the task.", status.totals["steps"]),
            ("jflow_waiting_steps", "Of those listed, steps that wait for something.", waiting),
            ("jflow_sessions", "Sessions of clients.", status.totals["sessions"]),
            (
                "jflow_calls_waiting",
                "Calls of sessions that have begun.",
                sum(one.n_waiting for one in status.sessions),
            ),
        ):
            yield self._gauge(name, text, (), [((), float(value))])

    def _containers(self, status: TaskStatus) -> Iterable[Any]:
        for name, text, field in (
            ("jflow_container_bytes", "The memory of the variables.", "n_bytes"),
            ("jflow_container_variables", "The number of variables.", "n_variables"),
            ("jflow_container_resources", "The number of queues and the like.", "n_resources"),
        ):
            rows = [((one.name,), float(getattr(one, field))) for one in status.containers]
            yield self._gauge(
                name, f'{text} By container, "" for the default one.', ("container",), rows
            )

    def _queues(self, status: TaskStatus) -> Iterable[Any]:
        by_queue = "queues" in self._labels
        names = ("container", "queue") if by_queue else ("container",)
        for name, text, field in (
            ("jflow_queue_elements", "Elements of queues.", "size"),
            ("jflow_queue_waiting_puts", "Puts that wait for room.", "n_enqueues"),
            ("jflow_queue_waiting_gets", "Gets that wait for elements.", "n_dequeues"),
        ):
            rows = [
                (
                    (one.container, one.name) if by_queue else (one.container,),
                    float(getattr(one, field)),
                )
                for one in status.queues
            ]
            yield self._gauge(name, text, names, rows)

    def _closures(self, coordinators: Sequence[CoordinatorStatus]) -> Iterable[Any]:
        rows = [
            ((one.name, state), float(getattr(one, f"n_{state}")))
            for one in coordinators
            for state in ("waiting", "running", "done", "failed", "cancelled", "retried")
        ]
        text = "Closures of the coordinators of its clients, by what became of them."
        yield self._gauge("jflow_closures", text, ("coordinator", "state"), rows)

    def _gauge(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        rows: Sequence[tuple[Sequence[str], float]],
    ) -> Any:
        family = self._core.GaugeMetricFamily(name, text, labels=("task", *labels))
        sums: dict[tuple[str, ...], float] = {}
        for values, value in rows:  # two rows of the same labels would be a malformed page
            sums[*values] = sums.get((*values,), 0.0) + value
        for labelled, value in sums.items():
            family.add_metric((self._task, *labelled), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Any:
        family = self._core.CounterMetricFamily(name, text, labels=("task",))
        family.add_metric((self._task,), value)
        return family
