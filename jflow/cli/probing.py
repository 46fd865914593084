"""What `jflow doctor` finds by calling the tasks of a cluster."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass

import jflow
from jflow.base.cluster import ClusterSpec, Target, Task, numeric_host, split_address
from jflow.base.deadline.clock import now
from jflow.cli.diagnosis import Finding, differences
from jflow.cli.watcher import Seen, Watcher
from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnauthenticatedError,
)
from jflow.net.wire import connect
from jflow.task.server.address import listening_hosts

_MAX_VIEWS = 16
"""How many servers are asked how they see the others."""
_OWN_VERSION = jflow.__version__


@dataclass(frozen=True)
class TaskProbe:
    """The result of calling a task.

    Attributes:
      task, address: the task, and its address in the cluster.
      state: "up", "silent", "down" or "refused".
      version, incarnation: of its process; None unless it is up.
      cluster: the cluster as it knows it; None unless it is up.
      findings: what is wrong with it.
    """

    task: Task
    address: str
    state: str
    version: str | None = None
    incarnation: int | None = None
    cluster: ClusterSpec | None = None
    findings: tuple[Finding, ...] = ()


def probe_all(
    cluster: ClusterSpec, own: Task | None, source: str, seconds: float
) -> tuple[list[TaskProbe], list[Finding]]:
    """Calls all tasks of a cluster at once.

    Args:
      cluster: the cluster.
      own: the task of this process; None if it has none.
      source: what says the cluster.
      seconds: how long each task has to answer.

    Returns:
      The tasks, and all that is wrong with them.
    """
    tasks = list(cluster.tasks())
    with ThreadPoolExecutor(min(len(tasks), 64) or 1) as threads:
        probes = list(
            threads.map(lambda task: _probe(task, cluster, seconds, is_own=task == own), tasks)
        )
        up = [probe for probe in probes if probe.state == "up"]
        seen = threads.map(lambda probe: _seen_from(probe, seconds), up[:_MAX_VIEWS])
        views = list(zip(up, seen, strict=False))
    findings = [finding for probe in probes for finding in probe.findings]
    known = {str(probe.task): probe.cluster for probe in up if probe.cluster is not None}
    findings += differences({source: cluster} | known)
    findings += _between({probe.task for probe in up}, views)
    findings += _not_there(probes)
    return probes, findings


def _probe(task: Task, cluster: ClusterSpec, seconds: float, *, is_own: bool) -> TaskProbe:
    address = cluster.task_address(task.job, task.index)
    host, port = split_address(address)
    try:
        socket.getaddrinfo(numeric_host(host), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        what = (
            f"{task} is at {address}, and the name {host!r} does not resolve on this machine "
            f"({error}); correct the cluster, or make the name known (DNS, /etc/hosts)"
        )
        return TaskProbe(task, address, "down", findings=(Finding("unresolved_name", what),))
    own_findings = [*_of_own_host(task, host)] if is_own else []
    if own_findings:
        return TaskProbe(task, address, "down", findings=tuple(own_findings))
    if not _listens(address, seconds):
        findings = []
        if is_own and _is_bound(address):
            findings.append(_port_in_use(task, address, "it is bound, and refuses connections"))
        return TaskProbe(task, address, "down", findings=tuple(findings))
    start = now()
    try:
        with _watching(task, address, seconds) as watcher:
            (seen,) = watcher.inspect((), [task])
            status, info = seen.status, watcher.info
    except OpError as error:
        state = "silent" if now() - start >= seconds else "refused"
        finding = _refused(task, address, error, is_own=is_own)
        return TaskProbe(task, address, state, findings=(finding,))
    if status is not None and status.version != _OWN_VERSION:
        what = (
            f"{task} at {address} has jflow {status.version}, and this is {_OWN_VERSION}; install "
            "one version on all machines, and start the tasks again"
        )
        own_findings.append(Finding("version_skew", what))
    version = None if status is None else status.version
    return TaskProbe(
        task, address, "up", version, info.incarnation, info.cluster, tuple(own_findings)
    )


def _of_own_host(task: Task, host: str) -> list[Finding]:
    """Returns findings about why this machine cannot listen at the host of its task."""
    try:
        listening_hosts(host, task, is_encrypted=True)
        is_encrypted = bool(os.environ.get("JFLOW_TLS_DIR"))
    except InvalidArgumentError as error:
        return [Finding("other_machine", error.message)]
    try:
        listening_hosts(host, task, is_encrypted=is_encrypted)
    except InvalidArgumentError as error:
        return [Finding("not_encrypted", error.message)]
    return []


def _refused(task: Task, address: str, error: OpError, *, is_own: bool) -> Finding:
    """Returns why what listens at the address of a task cannot be used."""
    if isinstance(error, UnauthenticatedError):
        what = (
            f"{task} at {address} has another token or certificate than this process: "
            f"{error.message}; give all machines one token (JFLOW_TOKEN_FILE)"
        )
        return Finding("other_token", what)
    if isinstance(error, FailedPreconditionError):
        return Finding("version_skew", f"{error.message}, and start the tasks again")
    if is_own:
        return _port_in_use(task, address, error.message)
    what = (
        f"what listens at {address} does not answer as {task}: {error.message}; if the task is "
        "stopped or overloaded, let it go on, else correct its address or end that process"
    )
    return Finding("wrong_server", what)


def _port_in_use(task: Task, address: str, why: str) -> Finding:
    """Returns that another process has the port of this process's task."""
    return Finding(
        "port_taken",
        f"the port of {task}, {address}, is taken by another process ({why}); end that, or give "
        "the task another port in the cluster of all tasks",
    )


def _listens(address: str, seconds: float) -> bool:
    """Returns whether something accepts connections at an address."""
    host, port = split_address(address)
    try:
        with socket.create_connection((numeric_host(host), port), timeout=seconds):
            return True
    except OSError:
        return False


def _is_bound(address: str) -> bool:
    """Returns whether another process has the port of an address of this machine."""
    host, port = split_address(address)
    kind, *_, at = socket.getaddrinfo(numeric_host(host), port, type=socket.SOCK_STREAM)[0]
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(at)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _seen_from(probe: TaskProbe, seconds: float) -> Sequence[Seen]:
    """Returns all tasks as the server of one task reports them."""
    with suppress(OpError), _watching(probe.task, probe.address, seconds) as watcher:
        watcher.inspect(())
        # Now it knows which lives the others are, so its sessions can be asked about them.
        return watcher.inspect(("sessions",))
    return []


def _between(up: set[Task], views: Sequence[tuple[TaskProbe, Sequence[Seen]]]) -> list[Finding]:
    """Servers that do not reach each other, and sessions that use former lives of tasks."""
    findings = []
    for probe, tasks in views:
        for seen in tasks:
            report = seen.report
            if report.task in up and not seen.is_up:
                what = (
                    f"{probe.task} does not reach {report.task} at {report.address}, which this "
                    f"machine reaches: {report.reason}"
                )
                findings.append(Finding("not_reached", what))
            if report.task == probe.task:
                findings += _restarted(seen, up)
    return findings


def _restarted(seen: Seen, up: set[Task]) -> list[Finding]:
    return [
        Finding(
            "restarted",
            f"{name} came back as another life since session {session.number} of "
            f"{seen.report.task} used it: its variables are gone, and that session fails on it; "
            "open a new session, and initialize or restore what was there",
        )
        for session in seen.items("sessions")
        for name in session.restarted
        if Task.parse(name) in up
    ]


def _not_there(probes: Sequence[TaskProbe]) -> list[Finding]:
    """Returns the tasks at whose addresses nothing listens."""
    down = [probe for probe in probes if probe.state == "down" and not probe.findings]
    if not down:
        return []
    named = ", ".join(f"{probe.task} at {probe.address}" for probe in down)
    if len(down) == len(probes):
        what = f"no task is running: {named}; start each on its machine, with `jflow server`"
        return [Finding("not_started", what, is_problem=False)]
    return [Finding("down", f"nothing listens for {named}; start what is missing")]


def _watching(task: Task, address: str, seconds: float) -> Watcher:
    """Returns a connection to the server of a task."""
    return Watcher([Target(address, task=task)], seconds)


def cluster_at(targets: Sequence[str], seconds: float) -> ClusterSpec:
    """The cluster of the first of several servers that answers. Raises OpError if none does."""
    errors: list[OpError] = []
    for target in targets:
        try:
            with closing(connect(target, seconds)) as client:
                return client.info.cluster
        except OpError as error:
            errors.append(error)
    raise errors[0]


def not_listed(error: OpError) -> Finding:
    """Returns why a server that was named does not report its cluster."""
    codes = {UnauthenticatedError: "other_token", FailedPreconditionError: "version_skew"}
    return Finding(codes.get(type(error), "down"), error.message)
