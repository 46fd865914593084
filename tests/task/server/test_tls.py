"""Servers and sessions with certificates, as programs use them: JFLOW_TLS_DIR and nothing else."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

import pytest

import jflow as tf
from jflow.base.roles import AccessRole
from jflow.testing import start_servers
from tests.certificates import make_certificates

ELSEWHERE = "0.0.0.0:0"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Certificates of a cluster, in the environment of this process."""
    cluster = {"ps": ["127.0.0.1:0"], "worker": ["127.0.0.1:0"], "elsewhere": [ELSEWHERE]}
    made = make_certificates(tmp_path / "tls", cluster)
    monkeypatch.setenv("JFLOW_TLS_DIR", str(made))
    return made


def test_a_program_needs_no_change(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        _, worker = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        with tf.device("/job:ps/task:0"):
            x = tf.Variable(3.0)
        with tf.Session(worker.target) as session:
            session.run(x.initializer)
            assert session.run(x + 1.0) == 4.0
        monkeypatch.delenv("JFLOW_TLS_DIR")
        with pytest.raises(tf.errors.UnauthenticatedError, match=r"encrypts its streams"):
            tf.Session.reset(worker.target)


@pytest.mark.parametrize("transport", ["grpc", "tcp"])
def test_a_certificate_of_clients_may_have_a_role(
    directory: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """It is the highest one of its owner, whatever the token allows."""
    monkeypatch.setenv("JFLOW_TRANSPORT", transport)  # within a process nothing is encrypted
    cluster = {"ps": ["127.0.0.1:0"], "worker": ["127.0.0.1:0"]}
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(3.0)
    with ExitStack() as stack:
        _, worker = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        with tf.Session(worker.target) as session:
            session.run(x.initializer)
        make_certificates(directory, cluster, client_roles=[AccessRole.READ])
        (directory / "client-of-role-read.pem").replace(directory / "client.pem")
        with tf.Session(worker.target) as session:
            assert session.run(x + 1.0) == 4.0
            with pytest.raises(tf.errors.PermissionDeniedError) as refusal:
                session.run(x.assign_add(1.0))
        assert "the certificate of this client has the role 'read'" in refusal.value.message
        with pytest.raises(tf.errors.PermissionDeniedError, match="resetting containers needs"):
            tf.Session.reset(worker.target)


def test_a_server_in_another_process_is_encrypted(directory: Path) -> None:
    with tf.LocalCluster(ps=1, workers=0) as cluster, tf.Graph().as_default():
        x = tf.constant(1.0) + 1.0
        with tf.Session(cluster.target("ps")) as session:
            assert session.run(x) == 2.0
        (directory / "client.pem").write_bytes((directory / "worker-0.pem").read_bytes())
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"expected the name client\.jflow"
        ):
            tf.Session.reset(cluster.target("ps"))


def test_other_addresses_than_loopback_need_certificates_and_no_consent(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("JFLOW_INSECURE", raising=False)
    with caplog.at_level(logging.WARNING), tf.train.Server({"elsewhere": [ELSEWHERE]}) as server:
        assert server.target.startswith("grpc://0.0.0.0:")
    assert "without encryption" not in caplog.text
    monkeypatch.delenv("JFLOW_TLS_DIR")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"certs init.*JFLOW_TLS_DIR"):
        tf.train.Server({"elsewhere": [ELSEWHERE]})


def test_a_task_without_a_certificate_does_not_start(directory: Path) -> None:
    (directory / "ps-0.pem").unlink()
    with pytest.raises(tf.errors.NotFoundError, match=r"ps-0\.pem.*/job:ps/task:0.*certs init"):
        tf.train.Server({"ps": ["127.0.0.1:0"]})
