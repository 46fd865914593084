"""`Server`: one task of a cluster, in this process."""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, NamedTuple, Self

from jflow.base import forks
from jflow.base.cluster import ClusterDef, ClusterDeviceFilters, ClusterSpec, Task, split_address
from jflow.base.drivers.loop import TaskSet
from jflow.base.failpoints import async_failpoint
from jflow.base.handles import Closing
from jflow.base.logs import LogOptions, event, log_to_stderr
from jflow.base.logs.setup import LEVEL_VARIABLE
from jflow.base.options import ConfigProto
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.net.protocol import (
    Arrivals,
    ClusterTasks,
    DeviceRecord,
    Endpoint,
    MasterSession,
    OwnTask,
    Rights,
    Secret,
    ServerInfo,
    ServerLocation,
    Transport,
    Users,
    WorkerSession,
)
from jflow.net.wire import (
    TRANSPORTS,
    cluster_name,
    file_system_id,
    load_secret,
    load_tls,
    load_users,
)
from jflow.plan.compiler import COMPILER
from jflow.plan.validator import VALIDATOR
from jflow.plan.xla import export_platform
from jflow.state.checkpoint_files import ANYWHERE
from jflow.state.records.allowed_directories import CHECKPOINTS, AllowedDirectories
from jflow.state.watch import CoordinatorStatus, StatusRequest, TaskStatus
from jflow.task.execution import local_devices, memory_limits
from jflow.task.master import Master
from jflow.task.server.address import are_loopback, listening_hosts, location_at
from jflow.task.server.apart import check_can_compile_apart, compiles_apart
from jflow.task.server.definition import ServerDef, defined, packed_defaults, which_task
from jflow.task.server.loop import SERVERS, run_programs_in_their_threads, take_64_bits
from jflow.task.server.metrics import METRICS, MetricsServer, serve_metrics
from jflow.task.server.quotas import quotas_of
from jflow.task.server.slow_steps import SlowSteps
from jflow.task.server.stuck import (
    RESTART_LIMIT_S,
    STUCK_EXIT_CODE,
    abandoned_limit_s,
    leaving_error,
    save_what_can_be,
    saved_prefix,
)
from jflow.task.server.watched import ServedTask
from jflow.task.worker import Worker

_LOG = logging.getLogger(__name__)
_N_THREADS = 8
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
    What it logs goes to standard error if JFLOW_LOG is set, which names a level. With
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
        self._cluster = self._filters.seen_by(self._task, cluster)
        self._protocol = definition.protocol
        self._config = definition.default_session_config
        self._defaults = b"" if self._config is None else packed_defaults(self._config)
        self._roots = AllowedDirectories(_paths(data_roots, _ROOTS_VARIABLE))
        paths = _paths(checkpoint_roots, _CHECKPOINTS_VARIABLE)
        self._checkpoints = AllowedDirectories(paths, CHECKPOINTS) if paths else None
        self._stopped = threading.Event()
        self._stuck_reason = ""
        self._running: _Running | None = None
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
            self._cluster.as_cluster_def(),
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
        return self._cluster

    @property
    def incarnation(self) -> int:
        """A random number that identifies this run of the task's server."""
        return self._started().info().incarnation

    @property
    def worker(self) -> Worker:
        """The worker, for inspection; call its methods only on the servers' event loop."""
        return self._started().worker

    def start(self) -> None:
        """Starts listening; does nothing if it is running. Raises as the constructor."""
        if self._running is None:
            forks.mark_used()
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
            terms = _Terms(
                load_secret(),
                load_users(),
                cluster_name(),
                location,
                self._defaults,
                counts,
                compiles_apart(),
            )
            limit_s = abandoned_limit_s()
            checkpoints = self._checkpoints or (ANYWHERE if are_loopback(hosts) else None)
            make = partial(self._worker_type, checkpoint_roots=checkpoints)
            if terms.compiles_apart:
                make = partial(make, compiled_by=COMPILER.compile)
            starting = _start(self._task, self._cluster, hosts, transport, terms, self._roots, make)
            self._running = SERVERS.run_coroutine(starting)
            SERVERS.run_coroutine(self._running.watch_steps(options.slow_step_s, limit_s))
            self._running.watched.stopping = self.stop
            self._cluster = self._running.info().cluster
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

    @property
    def _address(self) -> str:
        return self._cluster.task_address(self._task.job, self._task.index)

    def _look(self, request: StatusRequest) -> tuple[TaskStatus, Sequence[CoordinatorStatus]]:
        running = self._started()

        async def look() -> tuple[TaskStatus, Sequence[CoordinatorStatus]]:
            return running.watched.inspect(request), running.master.coordinators().coordinators

        return SERVERS.run_coroutine(look(), _LOOK_S)

    def _started(self) -> _Running:
        if self._running is None:
            raise RuntimeError(f"the server {self._task} is not running")
        return self._running

    def __repr__(self) -> str:
        state = "stopped" if self._running is None else "at"
        return f"<jflow.train.Server {self._task} {state} {self.target}>"


class _Terms(NamedTuple):
    """The authentication, the identity and the session options of a server.

    Attributes:
      secret, users, cluster_name, location: see `Endpoint`.
      session_defaults: see `ServerInfo`.
      device_counts: the largest number of devices of a type.
      compiles_apart: whether other processes compile programs.
    """

    secret: Secret
    users: Users
    cluster_name: str
    location: ServerLocation
    session_defaults: bytes
    device_counts: Mapping[str, int]
    compiles_apart: bool = False


class _Running:
    """The parts of a running server; see `protocol.ServerRoles`."""

    def __init__(
        self,
        task: Task,
        cluster: ClusterSpec,
        transport: Transport,
        terms: _Terms,
        threads: ThreadPoolExecutor,
        roots: AllowedDirectories,
        make_worker: Callable[..., Worker],
    ) -> None:
        devices = local_devices(task, terms.device_counts)
        if terms.compiles_apart:
            check_can_compile_apart(devices.values())
        incarnation = secrets.randbits(63) + 1
        self.compiles_apart = terms.compiles_apart
        self.threads = threads
        self.tasks = ClusterTasks(cluster, transport, terms.secret, task, terms.cluster_name)
        self.worker = make_worker(task, devices, self.tasks, threads, roots, take_64_bits)
        self.tasks.arrivals = Arrivals(str(task), self.worker.deliver)
        self.tasks.own = OwnTask(self.info, self.worker)
        self._task = task
        self._slow_steps: SlowSteps | None = None
        self._incarnation = incarnation
        self._session_defaults = terms.session_defaults
        memory = memory_limits(devices)
        self.worker.containers.usage.quotas = quotas_of(sum(memory.values()))
        self._devices = tuple(
            DeviceRecord(
                device,
                export_platform(found),
                incarnation,
                memory_limit_bytes=memory[device],
                file_system=file_system_id(),
            )
            for device, found in devices.items()
        )
        gate, fences = self.worker.moves.steps, self.worker.claims.fences
        self.master = Master(self.info, self.tasks, gate, fences)
        self.watched = self.worker.watched = ServedTask(self.info, self.worker, self.master)
        self.endpoint = Endpoint(
            self, terms.secret, terms.location, terms.cluster_name, terms.users
        )
        self.listener = transport.listener(
            self.endpoint.services(), lambda: self.watched.is_serving
        )

    def info(self) -> ServerInfo:
        return ServerInfo(
            self._task,
            self._incarnation,
            self.tasks.cluster,
            self._devices,
            self.worker.programs.n_compiled,
            self._session_defaults,
        )

    def set_cluster(self, cluster: ClusterSpec) -> None:
        self.tasks.cluster = cluster

    def open_master_session(self, rights: Rights) -> MasterSession:
        return self.master.open_session(rights)

    def open_worker_session(self, caller: Task | None) -> WorkerSession:
        return self.worker.open_session(caller)

    async def watch_steps(self, slow_s: float, abandoned_s: float) -> None:
        """Starts to log slow steps, and to look for devices that are stuck.

        Args:
          slow_s: after how many seconds a step is slow.
          abandoned_s: after how many seconds an abandoned program makes its device stuck.
        """
        self.worker.abandoned.limit_s = abandoned_s
        self._slow_steps = SlowSteps(self.worker.running.listed, slow_s)
        self._slow_steps.start()

    async def leave_when_stuck(self, leaves: Callable[[str], object]) -> None:
        """Ends the server when a device of it is stuck, after callers were told the reason.

        Args:
          leaves: called with the reason.
        """
        leaving = TaskSet()

        async def end(reason: str) -> None:
            held = await save_what_can_be(self.worker, saved_prefix(self._task))
            leaves(f"{reason}. {held}")
            self.endpoint.refuse_calls(leaving_error(self._task, reason, held))
            self.watched.stop()

        def leave(reason: str) -> None:
            if self.watched.is_serving:  # else another device was first, or the server stops
                self.watched.is_serving = False
                leaving.start(end(reason))

        abandoned = self.worker.abandoned
        if abandoned.limit_s == math.inf:
            abandoned.limit_s = RESTART_LIMIT_S
        abandoned.on_stuck = leave

    async def stop(self) -> None:
        if self._slow_steps is not None:
            self._slow_steps.stop()
        await self.listener.stop()
        await self.tasks.close()


async def _start(
    task: Task,
    cluster: ClusterSpec,
    hosts: Sequence[str],
    transport: Transport,
    terms: _Terms,
    roots: AllowedDirectories,
    make_worker: Callable[..., Worker],
) -> _Running:
    if (action := async_failpoint("server.before_listen")) is not None:
        await action
    host, port = split_address(cluster.task_address(task.job, task.index))
    threads = ThreadPoolExecutor(
        _N_THREADS, thread_name_prefix=f"jflow {task}", initializer=take_64_bits
    )
    running = _Running(task, cluster, transport, terms, threads, roots, make_worker)
    bound = await running.listener.start(hosts, port)
    shown = f"[{host}]" if ":" in host else host
    running.set_cluster(cluster.replace(task, f"{shown}:{bound}"))
    return running


def _paths(paths: Sequence[str | os.PathLike[str]] | None, variable: str) -> list[str]:
    """Returns the given directories, or else those of an environment variable."""
    if paths is None:
        paths = os.environ.get(variable, "").split(os.pathsep)
    return [os.fspath(path) for path in paths if path]
