"""Manifests of a cluster on Kubernetes: what `jflow k8s render` prints, as YAML.

Each job is a StatefulSet, because its pods keep their names: `NAME-worker-3` is worker 3 for as
long as the cluster is there, and a headless service gives it the address
`NAME-worker-3.NAME.NAMESPACE.svc.cluster.local` in each of its lives. The program that uses the
cluster, if there is one, is a Job, which ends.

Every pod has the cluster in its environment, in two forms that agree: `TF_CONFIG`, for programs
that read it, and `JFLOW_JOBS`, `JFLOW_SERVICE`, `JFLOW_PORT` and `JFLOW_POD`, for
`KubernetesClusterResolver`. Kubernetes puts the namespace and the index of the pod into them.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jflow.base.cluster import ClusterSpec, Task
from jflow.launch.resources import HUGE_PAGES, TUNABLES

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TASK_LABEL = "apps.kubernetes.io/pod-index"
_RUN = "/run/jflow"
_PRIVATE = f"{_RUN}/home"
_CERTIFICATES = "/certificates"
# What Kubernetes mounts belongs to the superuser and may be written to by others; a copy in a home
# directory of the pod's own user is private. Only the key of the task itself is copied.
_COPY = (
    f"umask 077 && mkdir -p {_PRIVATE}/tls && "
    f'cp -L {_CERTIFICATES}/ca.crt "{_CERTIFICATES}/$JFLOW_CERTIFICATE" {_PRIVATE}/tls/'
)
_OF_CERTIFICATES = ("JFLOW_TASK_INDEX", "JFLOW_CERTIFICATE")
# In the container of the program, whose log `kubectl logs` shows.
_WHEN_READY = (
    'for i in $(seq 100); do jflow status && exec "$@"; sleep 2; done; '
    "echo 'the cluster is not ready' >&2; exit 1"
)
USER = 10001
"""The user and group that pods run as; any but the superuser does."""

_PROBE_S = 5
"""The timeout of a probe in seconds; the default of `grpc_health_probe` is 1."""


@dataclass(frozen=True)
class KubernetesCluster:
    """The specification of a cluster on Kubernetes.

    Attributes:
      image: the container image; it has jflow, and `grpc_health_probe` if the cluster is encrypted.
      ps, workers: numbers of tasks.
      name: the name of the service; those of all other objects begin with it.
      namespace: where it is; None for the one that kubectl is set to.
      port: the port of each task.
      domain: the domain of the cluster's DNS.
      cpu, memory: what each task requests, such as "4" and "8Gi"; None for nothing.
      gpus: how many GPUs each worker has.
      abandoned_limit_s: for how long a device of a worker may run a program that its caller gave
        up, in seconds; then it takes no steps. None for that of `jflow server`.
      restarts_when_stuck: whether a worker is started again then.
      is_encrypted: whether the tasks have certificates, in the secret NAME-certificates.
      command: the program that uses the cluster; empty if there is none.
      token: the content of the secret NAME-token; None if the secret is there already.
      certificates: the files of the secret NAME-certificates; None if it is there already.

    Raises:
      ValueError: if one of them is not possible.
    """

    image: str
    ps: int = 1
    workers: int = 2
    name: str = "jflow"
    namespace: str | None = None
    port: int = 2222
    domain: str = "cluster.local"
    cpu: str | None = None
    memory: str | None = None
    gpus: int = 0
    abandoned_limit_s: float | None = None
    restarts_when_stuck: bool = False
    is_encrypted: bool = True
    command: Sequence[str] = ()
    token: str | None = field(default=None, repr=False)
    certificates: Mapping[str, bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                "the name must have at most 40 lower-case letters, digits and hyphens and begin "
                f"with a letter, as names of services do, got {self.name!r}"
            )
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(f"{self.namespace!r} is not the name of a namespace of Kubernetes")
        if not self.image.strip() or self.image != self.image.strip():
            raise ValueError(f"expected the name of a container image, got {self.image!r}")
        if self.ps < 0 or self.workers < 0 or not self.jobs:
            raise ValueError(f"expected at least one task, got ps={self.ps} workers={self.workers}")
        if not 0 < self.port < 65536:
            raise ValueError(f"the port must be from 1 to 65535, got {self.port}")
        if self.gpus < 0:
            raise ValueError(f"the number of GPUs must not be negative, got {self.gpus}")
        if self.abandoned_limit_s is not None and not self.abandoned_limit_s > 0:
            raise ValueError(f"the limit must be seconds above 0, got {self.abandoned_limit_s}")

    @property
    def jobs(self) -> dict[str, int]:
        """The number of tasks of each job."""
        return {job: n for job, n in (("ps", self.ps), ("worker", self.workers)) if n}

    def addresses(self, service: str) -> dict[str, list[str]]:
        """Returns the task addresses by job, for a service with this DNS name."""
        return {
            job: [f"{self.name}-{job}-{i}.{service}:{self.port}" for i in range(n)]
            for job, n in self.jobs.items()
        }

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster as seen in its namespace, by default `default`."""
        return ClusterSpec(
            self.addresses(f"{self.name}.{self.namespace or 'default'}.svc.{self.domain}")
        )

    def manifests(self) -> list[dict[str, Plain]]:
        """Returns the Kubernetes objects in the order in which they can be applied."""
        objects = [*self._secrets(), self._service()]
        for job in self.jobs:
            objects += [self._budget(job), self._stateful_set(job)]
        if self.command:
            objects.append(self._program())
        return objects

    def _object(self, version: str, kind: str, suffix: str, **content: Plain) -> dict[str, Plain]:
        place = {} if self.namespace is None else {"namespace": self.namespace}
        metadata: Plain = {"name": self.name + suffix, **place, "labels": self._labels()}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}

    def _labels(self, job: str | None = None) -> dict[str, str]:
        labels = {"app.kubernetes.io/name": "jflow", "app.kubernetes.io/instance": self.name}
        return labels if job is None else {**labels, "app.kubernetes.io/component": job}

    def _secrets(self) -> Iterator[dict[str, Plain]]:
        if self.token is not None:
            yield self._object(
                "v1", "Secret", "-token", type="Opaque", stringData={"token": self.token}
            )
        if self.certificates is not None:
            files = {
                name: b64encode(content).decode() for name, content in self.certificates.items()
            }
            yield self._object("v1", "Secret", "-certificates", type="Opaque", data=files)

    def _service(self) -> dict[str, Plain]:
        # A task that is not ready has an address, too: others connect to it while it starts.
        spec: Plain = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": self._labels(),
            "ports": [{"name": "grpc", "port": self.port}],
        }
        return self._object("v1", "Service", "", spec=spec)

    def _budget(self, job: str) -> dict[str, Plain]:
        # What a parameter server has is lost with its pod, so no drain of a node may take one.
        n_fewer = 0 if job == "ps" else 1
        spec: Plain = {
            "maxUnavailable": n_fewer,
            "selector": {"matchLabels": self._labels(job)},
        }
        return self._object("policy/v1", "PodDisruptionBudget", f"-{job}", spec=spec)

    def _stateful_set(self, job: str) -> dict[str, Plain]:
        container: dict[str, Plain] = {
            "name": "task",
            "command": ["jflow", "server", *(self._when_stuck() if job == "worker" else ())],
            "ports": [{"name": "grpc", "containerPort": self.port}],
            # Patient, because a task that is started again has lost its state.
            "startupProbe": {**self._probe(), "periodSeconds": 2, "failureThreshold": 90},
            "readinessProbe": {**self._probe(), "periodSeconds": 5},
            "livenessProbe": {**self._probe(), "periodSeconds": 10, "failureThreshold": 6},
        }
        spec: Plain = {
            "serviceName": self.name,
            "replicas": self.jobs[job],
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": self._labels(job)},
            "template": self._pod(job, container, terminationGracePeriodSeconds=15),
        }
        return self._object("apps/v1", "StatefulSet", f"-{job}", spec=spec)

    def _when_stuck(self) -> Iterator[str]:
        """Yields the options of workers; what a parameter server has is lost with its process."""
        if self.restarts_when_stuck:
            yield "--restart-when-stuck"
        if self.abandoned_limit_s is not None:
            yield f"--abandoned-limit-s={self.abandoned_limit_s:g}"

    def _program(self) -> dict[str, Plain]:
        # Kubernetes would put variables into it that are in parentheses behind a dollar sign.
        container: dict[str, Plain] = {
            "name": "program",
            "command": ["sh", "-c", _WHEN_READY, "sh"],
            "args": [word.replace("$", "$$") for word in self.command],
        }
        template = self._pod("program", container, restartPolicy="Never")
        return self._object(
            "batch/v1", "Job", "-program", spec={"backoffLimit": 0, "template": template}
        )

    def _pod(self, role: str, container: dict[str, Plain], **more: Plain) -> dict[str, Plain]:
        """Returns the pod template of a job or of the program."""
        environment = [*self._environment(role)]
        container = {
            **container,
            "image": self.image,
            "env": environment,
            "resources": self._resources(role),
            "securityContext": _CONTAINED,
        }
        own: Plain = {"name": "private", "mountPath": _RUN}
        temporary: Plain = {"name": "temporary", "mountPath": "/tmp"}
        container["volumeMounts"] = [own, temporary]
        volumes: list[Plain] = [
            {"name": "private", "emptyDir": {"medium": "Memory"}},
            {"name": "temporary", "emptyDir": {}},
        ]
        # Kubernetes would make variables such as JFLOW_PORT of the services of the namespace.
        spec: dict[str, Plain] = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _UNPRIVILEGED,
            "volumes": volumes,
            **more,
        }
        if self.is_encrypted:
            spec["initContainers"] = [self._copying(environment, own)]
            secret = f"{self.name}-certificates"
            volumes.append({"name": "certificates", "secret": {"secretName": secret}})
        # Only tasks are behind the service.
        labels = self._labels(role) if role in self.jobs else {"jflow.program": self.name}
        return {"metadata": {"labels": labels}, "spec": {**spec, "containers": [container]}}

    def _copying(self, environment: Sequence[Mapping[str, Plain]], own: Plain) -> dict[str, Plain]:
        """Returns the init container that copies a task's certificate to a private volume."""
        return {
            "name": "certificates",
            "image": self.image,
            "command": ["sh", "-c", _COPY],
            "env": [one for one in environment if one["name"] in _OF_CERTIFICATES],
            "securityContext": _CONTAINED,
            "volumeMounts": [
                own,
                {"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True},
            ],
        }

    def _environment(self, role: str) -> Iterator[dict[str, Plain]]:
        """Yields the environment variables of a pod; each may refer to those before it."""
        is_task = role in self.jobs
        service = f"{self.name}.$(JFLOW_NAMESPACE).svc"
        tf_config: dict[str, Plain] = {"cluster": self.addresses("$(JFLOW_SERVICE)")}
        yield _field("JFLOW_NAMESPACE", "metadata.namespace")
        if is_task:
            yield _field("JFLOW_POD", "metadata.name")
            yield _field("JFLOW_TASK_INDEX", f"metadata.labels['{_TASK_LABEL}']")
            tf_config["task"] = {"type": role, "index": "$(JFLOW_TASK_INDEX)"}
            names = (f"{self.name}", f"{self.name}.$(JFLOW_NAMESPACE)", service)
            yield _variable("JFLOW_ADVERTISE", ",".join(f"$(JFLOW_POD).{name}" for name in names))
        else:
            yield _variable("JFLOW_ROLE", "client")
        yield _variable("JFLOW_SERVICE", f"{service}.{self.domain}")
        yield _variable("JFLOW_PORT", str(self.port))
        yield _variable("JFLOW_JOBS", ",".join(f"{job}={n}" for job, n in self.jobs.items()))
        yield _variable("JFLOW_CLUSTER", f"$(JFLOW_NAMESPACE)/{self.name}")
        text = json.dumps(tf_config)
        yield _variable("TF_CONFIG", text.replace('"$(JFLOW_TASK_INDEX)"', "$(JFLOW_TASK_INDEX)"))
        secret: Plain = {"name": f"{self.name}-token", "key": "token"}
        yield {"name": "JFLOW_TOKEN", "valueFrom": {"secretKeyRef": secret}}
        yield _variable("HOME", _PRIVATE)
        if is_task:
            yield _variable(TUNABLES, HUGE_PAGES)
        if role == "ps":
            yield _variable("JAX_PLATFORMS", "cpu")
        if self.is_encrypted:
            own = f"{role}-$(JFLOW_TASK_INDEX)" if is_task else "client"
            yield _variable("JFLOW_CERTIFICATE", f"{own}.pem")
            yield _variable("JFLOW_TLS_DIR", f"{_PRIVATE}/tls")
        else:
            yield _variable("JFLOW_INSECURE", "1")

    def _probe(self) -> dict[str, Plain]:
        patience: dict[str, Plain] = {"timeoutSeconds": _PROBE_S}
        if not self.is_encrypted:
            return {"grpc": {"port": self.port}, **patience}
        # Kubernetes' own probe has no certificate to show.
        own = '"$JFLOW_TLS_DIR/$JFLOW_CERTIFICATE"'
        probe = (
            f"exec grpc_health_probe -addr=$JFLOW_POD.$JFLOW_SERVICE:{self.port} "
            f"-connect-timeout={_PROBE_S}s -rpc-timeout={_PROBE_S}s -tls "
            f'-tls-ca-cert="$JFLOW_TLS_DIR/ca.crt" -tls-client-cert={own} -tls-client-key={own} '
            '-tls-server-name="${JFLOW_CERTIFICATE%.pem}.jflow"'
        )
        return {"exec": {"command": ["sh", "-c", probe]}, **patience}

    def _resources(self, role: str) -> dict[str, Plain]:
        requested = {"cpu": self.cpu, "memory": self.memory} if role in self.jobs else {}
        requests: dict[str, Plain] = {name: text for name, text in requested.items() if text}
        limits: dict[str, Plain] = {}
        if "memory" in requests:
            limits["memory"] = requests["memory"]
        if role == "worker" and self.gpus:
            limits["nvidia.com/gpu"] = str(self.gpus)
        resources: dict[str, Plain] = {"requests": requests, "limits": limits}
        return {name: content for name, content in resources.items() if content}


# What namespaces with the Pod Security Standard "restricted" ask for, and a root that is read-only:
# only the volumes are written to. The user is in no image's list of users and needs not be.
_UNPRIVILEGED: Plain = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINED: Plain = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def certificate_files(cluster: ClusterSpec) -> list[str]:
    """Returns the files of `jflow certs init` that a cluster's pods need, without the CA's key."""
    return ["ca.crt", "client.pem", *(_file(task) for task in cluster.tasks())]


def _file(task: Task) -> str:
    return f"{task.job}-{task.index}.pem"


def _variable(name: str, value: str) -> dict[str, Plain]:
    return {"name": name, "value": value}


def _field(name: str, path: str) -> dict[str, Plain]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


# The type of what JSON can hold.
Plain = Mapping[str, "Plain"] | Sequence["Plain"] | str | int | bool | None
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def to_yaml(documents: Iterable[Plain]) -> str:
    """Returns documents as a YAML stream in block style; each begins with "---".

    Texts are written as JSON writes them, which is YAML, too, so none is taken for a number.
    """
    return "".join(f"---\n{chr(10).join(_block(document, ''))}\n" for document in documents)


def _block(value: Plain, indent: str) -> Iterator[str]:
    """Yields the lines of a value that begins on a line of its own."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{indent}{_key(key)}:", item, indent + "  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            first, *others = _block(item, indent + "  ")
            yield f"{indent}- {first.strip()}"
            yield from others
    else:
        yield indent + json.dumps(value, ensure_ascii=False)


def _entry(key: str, item: Plain, indent: str) -> Iterator[str]:
    """Yields the lines of one entry of a mapping."""
    if isinstance(item, Mapping | list | tuple) and item:
        yield key
        yield from _block(item, indent)
    else:
        yield f"{key} {json.dumps(item, ensure_ascii=False)}"


def _key(key: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _NOT_TEXT
    return key if is_plain else json.dumps(key)
