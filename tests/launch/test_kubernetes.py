"""Manifests for Kubernetes: what a pod finds in its environment, and what is in the objects."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from jflow.base.cluster import ClusterSpec, KubernetesClusterResolver, Task, read_tf_config
from jflow.cli.main import main
from jflow.launch.kubernetes import KubernetesCluster, certificate_files, to_yaml
from jflow.task.server.address import read_advertised
from tests.launch.pods import environment, expanded, objects_of, pod_of

SECRETS = {"digits-token": {"token": "0" * 64}}
SMALL = KubernetesCluster("me/train:1", 1, 2, "digits", command=("python", "train.py"))


def rendered(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """What `jflow k8s render` prints, as kubectl reads it."""
    assert main(["k8s", "render", "--image", "me/train:1", *arguments]) == 0
    return [*yaml.safe_load_all(capsys.readouterr().out)]


@pytest.mark.parametrize(("ps", "workers"), [(1, 2), (4, 64)])
@pytest.mark.parametrize("security", [["--insecure"], []], ids=["insecure", "encrypted"])
def test_each_pod_learns_from_its_environment_the_cluster_and_its_task(
    ps: int, workers: int, security: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = rendered(
        *("--ps", str(ps), "--workers", str(workers), "--name", "digits", *security), capsys=capsys
    )
    service = "digits.research.svc.cluster.local:2222"
    expected = ClusterSpec(
        {
            "ps": [f"digits-ps-{i}.{service}" for i in range(ps)],
            "worker": [f"digits-worker-{i}.{service}" for i in range(workers)],
        }
    )
    for task in expected.tasks():
        (container,) = pod_of(manifests, f"digits-{task.job}")["containers"]
        pod = f"digits-{task.job}-{task.index}"
        found = environment(container, pod, "research", SECRETS)
        resolver = KubernetesClusterResolver(environ=found)
        assert resolver.cluster_spec() == expected
        assert (resolver.task_type, resolver.task_id) == (task.job, task.index)
        told = read_tf_config(found)
        assert (told.cluster, told.job, told.index) == (expected, task.job, task.index)
        assert {f"{pod}.digits", f"{pod}.digits.research"} < read_advertised(found).hosts
        assert found["JFLOW_TOKEN"] == "0" * 64
        assert ("JFLOW_INSECURE" in found) == bool(security)


def run_container(
    container: Mapping[str, Any], variables: Mapping[str, str], programs: Path, jflow: str
) -> tuple[int, str]:
    """The exit code of a container and what it prints, with a stand-in for `jflow`."""
    for name, text in (("jflow", jflow), ("sleep", "true")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    words = [*container["command"], *container.get("args", ())]
    done = subprocess.run(
        [expanded(word, variables) for word in words],
        env={**variables, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_log_of_the_program_has_the_states_of_the_tasks_until_all_are_up(
    tmp_path: Path,
) -> None:
    """`kubectl logs` shows no container that comes before it."""
    pod = pod_of(KubernetesCluster("i", command=("echo", "trained")).manifests(), "jflow-program")
    (container,) = pod["containers"]
    second = 'echo "status $#"; [ -e "$0.once" ] || { touch "$0.once"; exit 3; }'
    assert run_container(container, {}, tmp_path, second) == (0, "status 1\nstatus 1\ntrained\n")
    code, said = run_container(container, {}, tmp_path, "echo down; exit 3")
    assert (code, {*said.split()}) == (1, {"down"})


def test_the_program_has_the_cluster_and_no_task_and_its_words_as_they_were_typed(
    tmp_path: Path,
) -> None:
    odd = KubernetesCluster("i", name="digits", command=("printf", "%s|", "$(HOME) $$ $x", "a b"))
    (container,) = pod_of(odd.manifests(), "digits-program")["containers"]
    found = environment(container, "digits-program-x7k2p", "research", SECRETS)
    assert run_container(container, found, tmp_path, jflow="true") == (0, "$(HOME) $$ $x|a b|")
    told = read_tf_config(found)
    assert told.cluster == KubernetesClusterResolver(environ=found).cluster_spec()
    assert (told.job, KubernetesClusterResolver(environ=found).task_type) == (None, None)


def test_objects_refer_to_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    manifests = rendered("--name", "digits", "--namespace", "research", "--", "run", capsys=capsys)
    (service,) = objects_of(manifests, "Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    budgets = {
        one["metadata"]["name"]: one["spec"] for one in objects_of(manifests, "PodDisruptionBudget")
    }
    for owner in objects_of(manifests, "StatefulSet"):
        spec, labels = owner["spec"], owner["spec"]["template"]["metadata"]["labels"]
        assert spec["serviceName"] == service["metadata"]["name"]
        for selector in (spec["selector"]["matchLabels"], service["spec"]["selector"]):
            assert selector.items() <= labels.items()
        assert budgets[owner["metadata"]["name"]]["selector"] == spec["selector"]
    assert [budgets[f"digits-{job}"]["maxUnavailable"] for job in ("ps", "worker")] == [0, 1]
    (program,) = objects_of(manifests, "Job")
    labels = program["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= labels.items(), "it is no task"
    assert {one["metadata"]["namespace"] for one in manifests} == {"research"}


def test_workers_have_the_gpus_and_parameter_servers_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifests = rendered("--gpus", "2", "--cpu", "4", "--memory", "8Gi", capsys=capsys)
    (ps,), (worker,) = (pod_of(manifests, f"jflow-{job}")["containers"] for job in ("ps", "worker"))
    assert worker["resources"] == {
        "requests": {"cpu": "4", "memory": "8Gi"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "2"},
    }
    assert ps["resources"]["limits"] == {"memory": "8Gi"}
    given = {
        name: environment(one, f"jflow-{name}-0", "n", {"jflow-token": {"token": ""}})
        for name, one in {"ps": ps, "worker": worker}.items()
    }
    assert given["ps"]["JAX_PLATFORMS"] == "cpu"
    for variables in given.values():
        assert variables["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


@pytest.mark.parametrize("kind", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_ask_the_health_service_with_a_certificate_if_there_are_any(kind: str) -> None:
    insecure = KubernetesCluster("i", is_encrypted=False, port=99).manifests()
    (container,) = pod_of(insecure, "jflow-worker")["containers"]
    assert container[kind]["grpc"] == {"port": 99}
    (container,) = pod_of(SMALL.manifests(), "digits-worker")["containers"]
    words = container[kind]["exec"]["command"]
    found = environment(container, "digits-worker-1", "research", SECRETS)
    said = subprocess.run(
        [*words[:2], words[2].replace("exec grpc_health_probe", "echo")],
        env=found | {"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "-addr=digits-worker-1.digits.research.svc.cluster.local:2222" in said
    assert "-tls-server-name=worker-1.jflow" in said
    assert "-tls-client-cert=/run/jflow/home/tls/worker-1.pem" in said
    limit = container[kind]["timeoutSeconds"]
    assert {f"-connect-timeout={limit}s", f"-rpc-timeout={limit}s"} < {*said}


def test_a_task_has_its_own_certificate_only_where_other_users_cannot_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume may be written to by all users, and so may the one with the secret."""
    from jflow.net.wire import load_tls  # noqa: PLC0415
    from jflow.net.wire.authority import write_certificates  # noqa: PLC0415

    write_certificates(tmp_path / "secret", SMALL.cluster_spec(), 1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    pod = pod_of(SMALL.manifests(), "digits-worker")
    here = {"/run/jflow": str(tmp_path / "run"), "/certificates/": f"{tmp_path}/secret/"}

    def placed(text: str) -> str:
        for path, other in here.items():
            text = text.replace(path, other)
        return text

    (copying,), (container,) = pod["initContainers"], pod["containers"]
    variables = environment(copying, "digits-worker-1", "research", SECRETS)
    command = [placed(word) for word in copying["command"]]
    subprocess.run(command, env=variables | {"PATH": os.environ["PATH"]}, check=True)
    assert {path.name for path in (tmp_path / "run/home/tls").iterdir()} == {
        "ca.crt",
        "worker-1.pem",
    }
    for name, value in environment(container, "digits-worker-1", "research", SECRETS).items():
        monkeypatch.setenv(name, placed(value))
    tls = load_tls(Task("worker", 1))
    assert tls is not None
    assert "certificates" not in {mount["name"] for mount in container["volumeMounts"]}


def test_secrets_have_the_token_and_all_certificates_but_not_the_authority_s_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("x" * 64 + "\n")
    (tmp_path / "token").chmod(0o600)
    assert main(["k8s", "cluster", "--name", "digits", "--namespace", "research"]) == 0
    cluster = capsys.readouterr().out
    assert json.loads(cluster)["ps"] == ["digits-ps-0.digits.research.svc.cluster.local:2222"]
    assert main(["certs", "init", str(tmp_path / "certs"), "--cluster", cluster]) == 0
    capsys.readouterr()
    given = ["--token", str(tmp_path / "token"), "--certificates", str(tmp_path / "certs")]
    manifests = rendered("--name", "digits", "--namespace", "research", *given, capsys=capsys)
    token, certificates = objects_of(manifests, "Secret")
    assert token["stringData"] == {"token": "x" * 64}
    assert set(certificates["data"]) == {
        "ca.crt",
        "client.pem",
        "ps-0.pem",
        "worker-0.pem",
        "worker-1.pem",
    }
    assert set(certificates["data"]) == set(certificate_files(SMALL.cluster_spec()))
    assert "x" * 64 not in repr(KubernetesCluster("i", token="x" * 64))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "Digits"], "lower-case letters"),
        (["--name", "1st"], "begin with a letter"),
        (["--namespace", "a_b"], "not the name of a namespace"),
        (["--ps", "0", "--workers", "0"], "at least one task"),
        (["--workers", "-1"], "at least one task"),
        (["--port", "70000"], "from 1 to 65535"),
        (["--gpus", "-1"], "must not be negative"),
        (["--insecure", "--certificates", "x"], "contradict each other"),
        (["--certificates", "/nowhere"], "ca.crt cannot be read"),
    ],
)
def test_what_cannot_be_rendered_is_a_usage_error_that_says_what_is_wrong(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["k8s", "render", "--image", "i", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": [1, "2", True, None, [], {}, ["x", ["y"]], [{"c": 1, "d": [2]}]]}},
        {"yes": "no", "odd key: #": "- a\n\tb\u2028\u00e9", "": "", "1": "~", "n": "0x1"},
        [],
        "text",
    ],
    ids=["nested", "odd texts", "empty list", "text"],
)
def test_yaml_is_read_as_what_was_written(value: Any) -> None:
    text = to_yaml([value, value])
    assert [*yaml.safe_load_all(text)] == [value, value]


def test_workers_and_no_parameter_servers_are_started_again_when_they_are_stuck(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--restart-when-stuck", "--abandoned-limit-s", "2.5")
    for given, expected in ((options, [options[0], "--abandoned-limit-s=2.5"]), ((), [])):
        manifests = rendered("--insecure", *given, capsys=capsys)
        (worker,) = pod_of(manifests, "jflow-worker")["containers"]
        (server,) = pod_of(manifests, "jflow-ps")["containers"]
        assert worker["command"] == ["jflow", "server", *expected]
        assert server["command"] == ["jflow", "server"]
