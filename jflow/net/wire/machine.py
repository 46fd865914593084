"""Identifies machines, by their loopback interface, and the file systems of processes."""

from __future__ import annotations

import os
from collections.abc import Iterable

from jflow.base.cluster import names_no_machine
from jflow.base.deadline.clock import boot_id

_NETWORK = "/proc/self/ns/net"
_MOUNTS = "/proc/self/ns/mnt"


def machine_id() -> str:
    """Identifies the machine of this process: a running kernel and one of its network namespaces.

    Processes have equal ones if and only if they have one loopback interface. So containers are
    machines of their own, unless they share their network.

    Returns:
      The boot id and the number of the namespace; "" where there is no /proc, as on other systems
      than Linux.
    """
    try:
        return f"{boot_id()}:{os.stat(_NETWORK).st_ino}" if boot_id() else ""
    except OSError:
        return ""


def file_system_id() -> str:
    """Identifies the file system that this process sees: a kernel, its mounts and its root.

    In processes with equal ones, an absolute path means one file. Containers have file systems of
    their own, also those that share a network.

    Returns:
      The boot id, the number of the mount namespace and the root directory; "" as `machine_id`.
    """
    try:
        root = os.stat("/")
        mounts = os.stat(_MOUNTS).st_ino
        return f"{boot_id()}:{mounts}:{root.st_dev}:{root.st_ino}" if boot_id() else ""
    except OSError:
        return ""


def machine_at(addresses: Iterable[str]) -> str:
    """Returns the machine of a server at numeric addresses; "" if they name it themselves."""
    return machine_id() if any(map(names_no_machine, addresses)) else ""
