"""The Pod Security Standard "restricted" of Kubernetes, field by field, of which it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
    *("projected", "secret"),
}
_SYSCTLS = {
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
    *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"),
    *("net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
    *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}
_SELINUX = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(pod: Mapping[str, Any]) -> list[str]:
    """The rules that the specification of a pod breaks."""
    return [*_of_pod(pod), *(text for one in containers(pod) for text in _of_container(pod, one))]


def containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All containers of a pod."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from pod.get(kind, ())


def _of_pod(pod: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    for volume in pod.get("volumes", ()):
        for kind in volume.keys() - {"name"} - _VOLUMES:
            yield f"volume {volume['name']}: {kind}"
    context = pod.get("securityContext", {})
    yield from _of_any("pod", context)
    for one in context.get("sysctls", ()):
        if one["name"] not in _SYSCTLS:
            yield f"sysctl {one['name']}"


def _of_container(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[str]:
    name, context = container["name"], container.get("securityContext", {})
    of_pod = pod.get("securityContext", {})
    yield from _of_any(name, context)
    if context.get("privileged"):
        yield f"{name}: privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{name}: capabilities.drop"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities.add"
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield f"{name}: runAsNonRoot"
    if context.get("seccompProfile", of_pod.get("seccompProfile", {})).get("type") not in _SECCOMP:
        yield f"{name}: seccompProfile"
    if context.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    yield from _of_ports_and_probes(name, container)


def _of_ports_and_probes(name: str, container: Mapping[str, Any]) -> Iterator[str]:
    for port in container.get("ports", ()):
        if port.get("hostPort"):
            yield f"{name}: hostPort"
    hooks = container.get("lifecycle", {})
    probes = (container.get(f"{kind}Probe", {}) for kind in ("liveness", "readiness", "startup"))
    for one in (*probes, *hooks.values()):
        for kind in ("httpGet", "tcpSocket"):
            if one.get(kind, {}).get("host"):
                yield f"{name}: host of a probe or hook"


def _of_any(name: str, context: Mapping[str, Any]) -> Iterator[str]:
    """The rules of both a pod's and a container's security context."""
    if context.get("runAsUser") == 0:
        yield f"{name}: runAsUser"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield f"{name}: hostProcess"
    if context.get("seccompProfile", {}).get("type", "RuntimeDefault") not in _SECCOMP:
        yield f"{name}: seccompProfile"
    if context.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in _SECCOMP:
        yield f"{name}: appArmorProfile"
    options = context.get("seLinuxOptions", {})
    if options.get("type") not in _SELINUX or options.get("user") or options.get("role"):
        yield f"{name}: seLinuxOptions"
