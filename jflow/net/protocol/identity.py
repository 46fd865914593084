"""`ServerIdentity`: compares a server with the one that a caller means to reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jflow.base.cluster import (
    CLIENT_NAME,
    ClusterSpec,
    Task,
    certified_name,
    join_address,
    names_no_machine,
    split_address,
)
from jflow.base.roles import AccessRole
from jflow.errors import OpError, RestartedError, UnauthenticatedError, UnavailableError
from jflow.net.protocol.handshake import ANY_MACHINE
from jflow.net.protocol.v1 import handshake_pb2 as pb


@dataclass(frozen=True)
class ServerLocation:
    """The addresses and the machine by which a server is reached.

    Attributes:
      hosts: the hosts by which it is reached, in lower case, besides the one in the cluster.
      advertised: further addresses that lead to it, "host:port" in lower case, such as that of a
        proxy before it.
      machine: identifies its machine; "" where that is not known.
      is_local: whether only processes of its machine can reach it.
    """

    hosts: frozenset[str] = frozenset()
    advertised: frozenset[str] = frozenset()
    machine: str = ""
    is_local: bool = False


@dataclass(frozen=True)
class ServerIdentity:
    """The identity of a server, with which the claims of callers are compared.

    Attributes:
      task: its task.
      incarnation: the incarnation of its process.
      cluster: the tasks and their addresses, as it knows them.
      cluster_name: the name of the cluster; "" if it has none.
      location: the addresses and the machine by which it is reached.
      successors: as in `ServerInfo`.
    """

    task: Task
    incarnation: int
    cluster: ClusterSpec
    cluster_name: str = ""
    location: ServerLocation = ServerLocation()
    successors: Mapping[Task, Task] = field(default_factory=dict)

    def refusal(self, hello: pb.Hello) -> OpError | None:
        """Returns the error for a caller that means another server; None if it means this one.

        What the caller does not know is not compared, except that a server calls only servers whose
        cluster does not contradict its own.
        """
        caller = caller_of(hello)
        if caller is not None and caller in self.successors:
            return UnavailableError(
                f"{caller} has left the cluster, and {self.successors[caller]} has what was on it; "
                "start it with `jflow server --join`, as another task",
                task=hello.task or None,
            )
        expected, got, advice = self._difference(hello)
        if advice:
            return UnavailableError(
                f"the server at {hello.address} is not the one that was meant: expected "
                f"{expected}, got {got}; {advice}",
                task=hello.task or None,
            )
        if hello.incarnation not in (0, self.incarnation):
            return restarted(str(self.task), hello.incarnation, self.incarnation)
        return None

    def _difference(self, hello: pb.Hello) -> tuple[str, str, str]:
        """Returns the expected server, the actual one and advice, as texts; empty if they agree."""
        is_named = bool(hello.cluster and self.cluster_name)
        if is_named and hello.cluster != self.cluster_name:
            expected, got = f"cluster {hello.cluster!r}", f"cluster {self.cluster_name!r}"
            return expected, got, "use the present address of the server, or the same JFLOW_CLUSTER"
        if hello.task and hello.task != str(self.task):
            return hello.task, str(self.task), "correct the address, or give all tasks one cluster"
        own_address = self._address_of(str(self.task))
        if not self._is_at(hello.address, own_address):
            advice = (
                f"use {own_address}, or add '?at={own_address}' to the target if a tunnel leads "
                f"there; where all callers use it, set JFLOW_ADVERTISE={hello.address} for that "
                "server"
            )
            return f"a server at {hello.address}", f"one at {own_address}", advice
        if not self._is_on(hello.machine, hello.address):
            expected = f"a server on machine {hello.machine or '(not said)'}"
            advice = (
                "this address leads to the caller's own machine, so something there passes calls "
                f"on; if it is a tunnel that is meant, add '?at={own_address}' to the target"
            )
            return expected, f"one on machine {self.location.machine or '(unknown)'}", advice
        known_address = "" if is_named else self._address_of(hello.caller)
        if known_address and known_address != hello.caller_address:
            expected = f"a cluster with {hello.caller} at {hello.caller_address}"
            advice = (
                f"if {hello.caller} has restarted under another address, start it at "
                f"{known_address} again, or all tasks with {hello.caller_address} in the cluster; "
                "if this is a task of another cluster, correct the address; if one cluster has "
                "several addresses for a task, give all tasks one JFLOW_CLUSTER"
            )
            return expected, f"one with {hello.caller} at {known_address}", advice
        return "", "", ""

    def _address_of(self, name: str) -> str:
        """Returns the address of a task in the cluster; "" if it is not known."""
        for task in self.cluster.tasks():
            if str(task) == name:
                address = self.cluster.task_address(task.job, task.index)
                return "" if address.endswith(":0") else address
        return ""

    def _is_at(self, dialled: str, own: str) -> bool:
        if dialled == own:
            return True
        try:
            host, port = split_address(dialled)
        except ValueError:
            return False
        if join_address(host.lower(), port) in self.location.advertised:
            return True
        own_host, own_port = split_address(own)
        return port == own_port and host.lower() in self.location.hosts | {own_host.lower()}

    def _is_on(self, machine: str, dialled: str) -> bool:
        """Whether this server is on the machine that a caller means.

        The caller has to name its machine if only processes on it can reach this server, or if
        every machine has the address that was dialled.

        Otherwise a process on the caller's machine, at the same loopback address as this server,
        could pass the handshake on.
        """
        if machine in (ANY_MACHINE, self.location.machine):
            return True
        is_named = not (self.location.is_local or names_no_machine(split_address(dialled)[0]))
        return is_named and not machine


def caller_of(hello: pb.Hello) -> Task | None:
    """Returns the task that a caller claims to be; None if it claims none."""
    try:
        return Task.parse(hello.caller)
    except ValueError:
        return None


def certificate_refusal(
    names: frozenset[str] | None, hello: pb.Hello, *, is_of_servers: bool
) -> OpError | None:
    """Returns the error for a caller whose certificate does not allow its stream, or None.

    Every certificate of the cluster allows clients' calls. Those between servers need the
    certificate of the task that the caller says it is.

    Args:
      names: the names in the certificate; None if the connection has none.
      hello: the claims of the caller.
      is_of_servers: whether the stream is for calls between servers.
    """
    try:
        role = certified_role(names)
    except ValueError as error:
        return UnauthenticatedError(f"the certificate of the caller has a malformed role: {error}")
    if names is None or not is_of_servers:
        return None
    caller = caller_of(hello)
    expected = "a task" if caller is None else certified_name(caller)
    if expected in names and role == AccessRole.CLUSTER:
        return None
    return UnauthenticatedError(
        f"the caller {hello.caller or '(no task)'} has the wrong certificate: expected one "
        f"of {expected}, got {', '.join(sorted(names)) or 'no name'}; start each task with the "
        "certificate that was made for it",
        task=hello.task or None,
    )


def certified_role(names: Iterable[str] | None) -> AccessRole:
    """Returns the highest role that a certificate allows its owner, by the names in it.

    Raises:
      ValueError: if it names a role that does not exist.
    """
    ending = f".{CLIENT_NAME}"
    found = (name.lower() for name in names or ())
    roles = (
        AccessRole.of_user(name.removesuffix(ending)) for name in found if name.endswith(ending)
    )
    return min(roles, default=AccessRole.CLUSTER)


def restarted(task: str, expected: int, got: int) -> RestartedError:
    """Returns the error for a call addressed to an earlier incarnation of a task."""
    return RestartedError(
        f"{task} has restarted since the state of this call was created "
        f"(incarnation {expected:x} is now {got:x}): its variables and registered steps are gone; "
        "open a new session and initialize again",
        task=task,
    )
