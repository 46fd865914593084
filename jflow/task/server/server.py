"""`Server`: one task of a cluster, in this process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

from jflow.base import forks
from jflow.base.cluster import ClusterDef, ClusterDeviceFilters, ClusterSpec, split_address
from jflow.base.handles import Closing
from jflow.base.logs import LogOptions, event, log_to_stderr
from jflow.base.logs.setup import LEVEL_VARIABLE
from jflow.base.options import ConfigProto
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.net.wire import (
    TRANSPORTS,
    cluster_name,
    load_secret,
    load_tls,
    load_users,
)
from jflow.net.wire.ports import are_loopback
from jflow.plan.compiler import COMPILER
from jflow.plan.validator import VALIDATOR
from jflow.state.checkpoint_files import ANYWHERE
from jflow.state.members import MemberList
from jflow.state.records.allowed_directories import CHECKPOINTS, AllowedDirectories
from jflow.state.watch import CoordinatorStatus, StatusRequest, TaskStatus
from jflow.task.server.address import listening_hosts, location_at
from jflow.task.server.apart import compiles_apart
from jflow.task.server.definition import ServerDef, defined, packed_defaults, which_task
from jflow.task.server.joining import join_cluster
from jflow.task.server.loop import SERVERS, run_programs_in_their_threads
from jflow.task.server.members_file import StoredMembers
from jflow.task.server.metrics import METRICS, MetricsServer, serve_metrics
from jflow.task.server.running import RunningServer, ServerTerms, start_server
from jflow.task.server.stuck import (
    STUCK_EXIT_CODE,
    abandoned_limit_s,
)
from jflow.task.worker import Worker

_LOG = logging.getLogger(__name__)
_STOP_S = 5.0
_LOOK_S = 5.0
_JOIN_POLL_S = 1.0
_ROOTS_VARIABLE = "JFLOW_DATA_ROOTS"
_CHECKPOINTS_VARIABLE = "JFLOW_CHECKPOINT_ROOTS"


@forks.guarded("start", "connect", "join", ignored=("stop",))
class Server(Closing):
    """A task of a cluster: a master for clients and a worker for masters, on one port.

    A process may have several servers. A server listens only at the address that the cluster gives
    for its task, and serves only callers that mean this task and prove that they have the token of
    this user. With certificates (JFLOW_TLS_DIR), streams are encrypted. If JAX has not been used in
    the process before, the server switches off `jax_cpu_enable_async_dispatch`.
    What it logs goes to standard error if JFLOW_LOG is set, which names a level. It keeps the list
    of members in the directory JFLOW_MEMBERS, and begins with the one that it finds there. With
    JFLOW_COMPILE_APART=1, processes of their own compile its programs, on CPUs only.

    Args:
      server_or_cluster_def: the cluster, as for ClusterSpec, or a ServerDef, whose fields count
        where the other arguments do not say something else.
      job_name, task_index: the task of this server. May be omitted if TF_CONFIG gives the task or
        only one is possible.
      protocol: the transport; "grpc" if None.
      config: options of sessions on this server that do not set them themselves; connections take
        the connect timeout, the device filters and the isolation of state, and have their own time
        limits and placement. Their `placement` is the name of a strategy.
      start: whether to start at once.
      data_roots: directories below which readers may read files; if None, those of
        JFLOW_DATA_ROOTS, separated as in PATH.
      checkpoint_roots: directories below which checkpoints may be written and read; if None, those
        of JFLOW_CHECKPOINT_ROOTS. Without any, a server that listens on the loopback interface
        allows all directories, because its callers are its own user, and another one allows none.

    Raises:
      NotFoundError: if a root is not a directory.
      ValueError: if the task is not given and cannot be inferred.
      InvalidArgumentError: if the cluster has no such task, or its address does not resolve,
        belongs to another machine, or is not a loopback address and there are no certificates; or a
        certificate is not valid.
      NotFoundError: if the protocol is unknown, or a certificate does not exist.
      PermissionDeniedError: if other users may read or replace the token or a certificate.
      UnimplementedError: if JFLOW_COMPILE_APART is 1 and a device is not a CPU.
      UnknownError: if the port is in use.
    """

    _worker_type: ClassVar[type[Worker]] = Worker
    """The class that runs plans; the placement lab has servers whose workers simulate them."""

    _instead_of_copy = "other processes reach it by its target: jflow.connect(server.target)"

    def __init__(
        self,
        server_or_cluster_def: ServerDef | ClusterSpec | ClusterDef | Mapping[str, object],
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: ConfigProto | None = None,
        start: bool = True,
        *,
        data_roots: Sequence[str | os.PathLike[str]] | None = None,
        checkpoint_roots: Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        definition = defined(server_or_cluster_def, job_name, task_index, protocol, config)
        if definition.protocol not in TRANSPORTS:
            raise NotFoundError(
                f"No server factory registered for protocol {definition.protocol!r}"
            )
        cluster = ClusterSpec(definition.cluster)
        self._task = which_task(cluster, definition.job_name, definition.task_index)
        self._filters = definition.cluster_device_filters or ClusterDeviceFilters()
        self._members_file = StoredMembers.of(self._task)
        self._members: MemberList | None = None
        self._cluster = self._filters.seen_by(self._task, cluster)
        self._read_members()
        self._protocol = definition.protocol
        self._config = definition.default_session_config
        self._defaults = b"" if self._config is None else packed_defaults(self._config)
        self._roots = AllowedDirectories(_paths(data_roots, _ROOTS_VARIABLE))
        paths = _paths(checkpoint_roots, _CHECKPOINTS_VARIABLE)
        self._checkpoints = AllowedDirectories(paths, CHECKPOINTS) if paths else None
        self._stopped = threading.Event()
        self._stuck_reason = ""
        self._running: RunningServer | None = None
        self._metrics: MetricsServer | None = None
        if start:
            self.start()

    @classmethod
    def create_local_server(cls, config: ConfigProto | None = None, start: bool = True) -> Self:
        """Creates the server of a one-task cluster, "/job:local/task:0", at a free port.

        Args:
          config, start: as for `Server`.
        """
        return cls({"local": ["localhost:0"]}, config=config, start=start)

    @property
    def server_def(self) -> ServerDef:
        """A ServerDef of this server: its task, and the cluster as the server sees it.

        It has the port that the system chose, so it defines an equal server after this one stopped.
        """
        return ServerDef(
            self.cluster_spec.as_cluster_def(),
            self._task.job,
            self._task.index,
            self._protocol,
            self._config,
        )

    @property
    def target(self) -> str:
        """The target for sessions: "grpc://host:port"."""
        return f"{self._protocol}://{self._address}"

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster as this server knows it."""
        return self._cluster if self._running is None else self._running.info().cluster

    @property
    def incarnation(self) -> int:
        """A random number that identifies this run of the task's server."""
        return self._started().info().incarnation

    @property
    def worker(self) -> Worker:
        """The worker, for inspection; call its methods only on the servers' event loop."""
        return self._started().worker

    @classmethod
    def joining(
        cls,
        target: str,
        job_name: str,
        address: str,
        task_index: int | None = None,
        **options: Any,
    ) -> Self:
        """Creates the server of a task that joins a running cluster, and starts it.

        New placements and coordinators see it; what is placed stays where it is.

        Args:
          target: any server of the cluster, "grpc://host:port".
          job_name: the job.
          address: where it listens, "host:port".
          task_index: the index of a task that has ended, in whose place it comes; None for the next
            index, or that of the task of this address.
          options: as for `Server`.

        Raises:
          AlreadyExistsError: if the task is up elsewhere, or has left.
          FailedPreconditionError: if the cluster cannot change (`jflow server --members`).
          UnavailableError: if the task that changes the list of members does not answer.
        """
        task, members = join_cluster(target, job_name, task_index, address)
        server = cls(members.cluster, task.job, task.index, start=False, **options)
        server._members = members
        server.start()
        return server

    def start(self) -> None:
        """Starts listening; does nothing if it is running. Raises as the constructor."""
        if self._running is None:
            forks.mark_used()
            self._read_members()
            options = LogOptions.of()
            if os.environ.get(LEVEL_VARIABLE):
                log_to_stderr(options, str(self._task))
            run_programs_in_their_threads()
            # Not on the loop, which must serve other calls while a name is resolved.
            tls = load_tls(self._task)
            own_host = split_address(self._address)[0]
            hosts = listening_hosts(own_host, self._task, is_encrypted=tls is not None)
            transport = TRANSPORTS[self._protocol](tls)
            location = location_at(hosts)
            counts = {} if self._config is None else self._config.device_count
            terms = ServerTerms(
                load_secret(),
                load_users(),
                cluster_name(),
                location,
                self._defaults,
                counts,
                self._members_file,
                self._filters,
                compiles_apart(),
            )
            limit_s = abandoned_limit_s()
            checkpoints = self._checkpoints or (ANYWHERE if are_loopback(hosts) else None)
            make = partial(self._worker_type, checkpoint_roots=checkpoints)
            if terms.compiles_apart:
                make = partial(make, compiled_by=COMPILER.compile)
            parts = (hosts, transport, terms, self._roots, make)
            starting = start_server(self._task, self._cluster, *parts)
            self._running = SERVERS.run_coroutine(starting)
            SERVERS.run_coroutine(self._running.watch_steps(options.slow_step_s, limit_s))
            self._running.watched.stopping = self.stop
            SERVERS.run_coroutine(self._running.begin_with(self._members))
            self._cluster = self.cluster_spec
            VALIDATOR.start()
            if terms.compiles_apart:
                COMPILER.start()
            try:
                token = terms.secret.key(METRICS).hex()
                self._metrics = serve_metrics(self._task, self._look, tls, token)
            except BaseException:
                self.stop()
                raise
            event(_LOG, logging.INFO, "server_started", server=str(self._task), at=self._address)

    def connect(self, cluster: ClusterSpec | Mapping[str, object]) -> None:
        """Sets the addresses of the other tasks, if they were not known at the start.

        Raises:
          InvalidArgumentError: if the cluster has another address for this task.
        """
        known = self._filters.seen_by(self._task, ClusterSpec(cluster))
        if known.task_address(self._task.job, self._task.index) != self._address:
            raise InvalidArgumentError(
                f"{self._task} listens at {self._address}, but has another address in {known}"
            )
        self._started().set_cluster(known)
        self._cluster = known

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the server stops or `timeout` seconds pass; returns whether it stopped."""
        if timeout is None:
            # A signal that arrives just before a wait without an end is handled only after it.
            while not self._stopped.wait(_JOIN_POLL_S):
                pass
            return True
        return self._stopped.wait(timeout)

    def stop(self) -> None:
        """Stops listening, cancels running steps and frees the state. May be called again.

        It returns within seconds even if a program is running, which cannot be interrupted.
        """
        running, self._running = self._running, None
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            metrics.close()
        if running is not None:
            running.watched.is_serving = False
            try:
                SERVERS.run_coroutine(running.stop(), _STOP_S)
            except TimeoutError:
                _LOG.warning(
                    "%s did not stop within %g s and was left running", self._task, _STOP_S
                )
            # Without waiting: a device may be busy with a program that cannot be cancelled.
            running.worker.long_programs.shutdown()
            running.threads.shutdown(wait=False, cancel_futures=True)
            VALIDATOR.stop()
            if running.compiles_apart:
                COMPILER.stop()
            event(_LOG, logging.INFO, "server_stopped", server=str(self._task))
        self._stopped.set()

    def leave_when_stuck(self) -> None:
        """Makes the server stop when a device of it is stuck, after its callers got the reason.

        A device is stuck when it has run a program for JFLOW_ABANDONED_LIMIT_S seconds, 60 unless
        that is set, after the caller gave it up. Before, the server saves its variables to
        JFLOW_SAVE_WHEN_STUCK if that is set. `stuck_reason` has the reason then.
        """
        SERVERS.run_coroutine(self._started().leave_when_stuck(self._leave_stuck))

    def _leave_stuck(self, reason: str) -> None:
        self._stuck_reason = reason
        code = STUCK_EXIT_CODE
        event(_LOG, logging.ERROR, "server_stuck", reason=reason, exit_code=code)

    @property
    def stuck_reason(self) -> str:
        """Why the server has stopped by itself; "" if it has not."""
        return self._stuck_reason

    def __enter__(self) -> Self:
        self.start()
        return self

    def _leave(self, failed: bool) -> None:
        self.stop()

    def _read_members(self) -> None:
        """Takes the list of members that was kept, if it is newer than the one that is known."""
        stored = None if self._members_file is None else self._members_file.read(self._task)
        if stored is not None and (self._members is None or stored.epoch > self._members.epoch):
            self._members = stored
        if self._members is not None:
            self._cluster = self._filters.seen_by(self._task, self._members.cluster)

    @property
    def _address(self) -> str:
        return self._cluster.task_address(self._task.job, self._task.index)

    def _look(self, request: StatusRequest) -> tuple[TaskStatus, Sequence[CoordinatorStatus]]:
        running = self._started()

        async def look() -> tuple[TaskStatus, Sequence[CoordinatorStatus]]:
            return running.watched.inspect(request), running.master.coordinators().coordinators

        return SERVERS.run_coroutine(look(), _LOOK_S)

    def _started(self) -> RunningServer:
        if self._running is None:
            raise RuntimeError(f"the server {self._task} is not running")
        return self._running

    def __repr__(self) -> str:
        state = "stopped" if self._running is None else "at"
        return f"<jflow.train.Server {self._task} {state} {self.target}>"


def _paths(paths: Sequence[str | os.PathLike[str]] | None, variable: str) -> list[str]:
    """Returns the given directories, or else those of an environment variable."""
    if paths is None:
        paths = os.environ.get(variable, "").split(os.pathsep)
    return [os.fspath(path) for path in paths if path]
