"""Pods that run without privileges, on a root that is read-only."""

from __future__ import annotations

import copy
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jflow.launch.kubernetes import USER, KubernetesCluster, certificate_files
from jflow.net.wire.authority import write_certificates
from tests.launch.pods import environment, expanded, pod_of
from tests.launch.restricted import containers, violations

PODS = ("jflow-ps", "jflow-worker", "jflow-program")


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("name", PODS)
def test_restricted_namespaces_accept_the_pods(name: str, is_encrypted: bool) -> None:
    cluster = KubernetesCluster("i", gpus=1, is_encrypted=is_encrypted, command=("run",))
    pod = pod_of(cluster.manifests(), name)
    assert violations(pod) == []
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == USER != 0
    assert pod["automountServiceAccountToken"] is False
    volumes = {volume["name"] for volume in pod["volumes"]}
    for one in containers(pod):
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
        written = {mount["mountPath"] for mount in one["volumeMounts"] if not mount.get("readOnly")}
        assert "/run/jflow" in written
        variables = {variable["name"]: variable.get("value") for variable in one["env"]}
        assert variables.get("HOME", "/run/jflow").startswith("/run/jflow")
    (container,) = pod["containers"]
    assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("hostNetwork",), True, "hostNetwork"),
        (("volumes", 0), {"name": "v", "hostPath": {"path": "/"}}, "volume v: hostPath"),
        (("securityContext", "runAsUser"), 0, "pod: runAsUser"),
        (("securityContext", "runAsNonRoot"), False, "task: runAsNonRoot"),
        (("securityContext", "sysctls"), [{"name": "kernel.msgmax"}], "sysctl kernel.msgmax"),
        (("containers", 0, "securityContext", "privileged"), True, "task: privileged"),
        (("containers", 0, "securityContext", "capabilities"), {}, "task: capabilities.drop"),
        (
            ("containers", 0, "securityContext", "capabilities", "add"),
            ["SYS_ADMIN"],
            "task: capabilities.add",
        ),
        (
            ("containers", 0, "securityContext", "allowPrivilegeEscalation"),
            None,
            "task: allowPrivilegeEscalation",
        ),
        (
            ("initContainers", 0, "securityContext", "seccompProfile", "type"),
            "Unconfined",
            "certificates: seccompProfile",
        ),
        (("containers", 0, "ports", 0, "hostPort"), 1, "task: hostPort"),
        (("containers", 0, "securityContext", "procMount"), "Unmasked", "task: procMount"),
    ],
)
def test_what_restricted_namespaces_refuse_is_found(
    path: tuple[Any, ...], value: Any, rule: str
) -> None:
    pod = copy.deepcopy(pod_of(KubernetesCluster("i").manifests(), "jflow-worker"))
    at: Any = pod
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert rule in violations(pod)


class Pods:
    """Runs containers of rendered pods as Kubernetes would, in namespaces of their own.

    Their root is that of this machine, read-only; they have the user that the pod names, no
    capabilities, and of all else only the volumes of the pod. Names of pods are in /etc/hosts.

    Args:
      folder: an empty directory.
      cluster: the cluster.
      certificates: the directory with the files of its secret.
    """

    def __init__(self, folder: Path, cluster: KubernetesCluster, certificates: Path) -> None:
        self._folder, self._certificates = folder, certificates
        self._manifests, self._name = cluster.manifests(), cluster.name
        # The root has no such directories on this machine, and is read-only.
        self._places = {"/run/jflow": folder / "run", "/certificates": folder / "certificates"}
        hosts = ["127.0.0.1 localhost"]
        for number, task in enumerate(cluster.cluster_spec().tasks()):
            pod = f"{cluster.name}-{task.job}-{task.index}"
            hosts.append(f"127.0.0.{number + 2} {pod}.{cluster.name}.default.svc.cluster.local")
        (folder / "hosts").write_text("\n".join(hosts) + "\n")
        for place in self._places.values():
            place.mkdir()
        check = subprocess.run(
            [*_NAMESPACES, "-c", f"{self._mounts()} && {_UNPRIVILEGED} true"],
            capture_output=True,
            text=True,
            check=False,
        )
        if check.returncode:
            pytest.skip(f"no root that is read-only on this machine: {check.stderr}")

    def start(self, owner: str, pod_name: str) -> subprocess.Popen[str]:
        """Starts a pod: its init container, and then its container."""
        pod = pod_of(self._manifests, owner)
        *before, container = *pod.get("initContainers", ()), *pod["containers"]
        secrets = {f"{self._name}-token": {"token": "5" * 64}}
        variables = environment(container, pod_name, "default", secrets)
        script = self._mounts()
        for one in (*before, container):
            words = [*one["command"], *one.get("args", ())]
            command = shlex.join(self._placed(expanded(word, variables)) for word in words)
            script += f" && {'exec ' if one is container else ''}{_UNPRIVILEGED} {command}"
        own = {name: self._placed(value) for name, value in variables.items()}
        kept = {
            name: os.environ[name] for name in ("PYTHONPATH", "XLA_FLAGS") if name in os.environ
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.Popen(
            [*_NAMESPACES, "-c", script],
            env={**kept, **own, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )

    def _placed(self, text: str) -> str:
        for path, other in self._places.items():
            text = text.replace(path, str(other))
        return text

    def _mounts(self) -> str:
        """The commands that mount the volumes, as the superuser of the namespace."""
        run, secret = map(str, self._places.values())
        hosts = shlex.quote(str(self._folder / "hosts"))
        return " && ".join(
            [
                f"mount --bind {hosts} /etc/hosts",
                f"mount -t tmpfs -o mode=777 volume {shlex.quote(run)}",
                f"mount --bind {shlex.quote(str(self._certificates))} {shlex.quote(secret)}",
                "mount -o remount,bind,ro /",
                _NOTHING_ELSE,
            ]
        )


_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "sh"]
_UNPRIVILEGED = f"unshare --user --map-user={USER} --map-group={USER}"
_NOTHING_ELSE = "! touch /etc/written /root/written 2>/dev/null"


@pytest.mark.parametrize("is_encrypted", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_cluster_runs_as_another_user_on_a_read_only_root(
    is_encrypted: bool, tmp_path: Path
) -> None:
    program = (
        "import os, jflow as tf\n"
        f"assert os.getuid() == {USER}\n"
        "v = tf.Variable(20.0)\n"
        "spec = tf.train.ClusterSpec({'worker': [os.environ['WORKER']]})\n"
        "with tf.Session('grpc://' + os.environ['WORKER'] + '?task=/job:worker/task:0') as s:\n"
        "    s.run(v.initializer)\n"
        "    print('answer', s.run(v + 22.0))\n"
    )
    worker = "ro-worker-0.ro.default.svc.cluster.local:2222"
    command = ("env", f"WORKER={worker}", "python", "-c", program)
    cluster = KubernetesCluster("i", 0, 1, "ro", is_encrypted=is_encrypted, command=command)
    secret = tmp_path / "secret"
    write_certificates(secret, cluster.cluster_spec(), 1)
    assert {path.name for path in secret.iterdir()} > {*certificate_files(cluster.cluster_spec())}
    (tmp_path / "pods").mkdir()
    pods = Pods(tmp_path / "pods", cluster, secret)
    server = pods.start("ro-worker", "ro-worker-0")
    try:
        with pods.start("ro-program", "ro-program-x7k2p") as started:
            said, _ = started.communicate()
        assert started.returncode == 0, said
        assert said.splitlines()[-1] == "answer 42.0", said
    finally:
        server.terminate()
        said, _ = server.communicate()
    assert server.returncode == 0, said
    assert "is ready" in said
