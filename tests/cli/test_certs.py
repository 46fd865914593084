"""`jflow certs init`: the files that it makes, and what it says when it is used wrongly."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from jflow.base.cluster import Task
from jflow.cli.main import main
from jflow.net.wire import load_tls

CLUSTER = {"ps": ["10.0.0.1:2222"], "worker": ["localhost:1", "w.example.com:2"]}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("cryptography", reason="the extra jflow[tls] is not installed")
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return tmp_path / "made" / "tls"


def init(directory: Path, *arguments: str, cluster: object = CLUSTER) -> int:
    return main(["certs", "init", str(directory), "--cluster", json.dumps(cluster), *arguments])


def load_all(directory: Path) -> list[bytes]:
    """Checks the certificates of all tasks and of clients; returns the files."""
    tasks = [Task("ps", 0), Task("worker", 0), Task("worker", 1), None]
    found = [load_tls(task, {"JFLOW_TLS_DIR": str(directory)}) for task in tasks]
    return [tls.identity for tls in found if tls is not None]


def test_each_task_and_clients_get_a_file_that_only_the_user_can_read(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(directory) == 0
    names = {"ca.crt", "ca.key", "client.pem", "ps-0.pem", "worker-0.pem", "worker-1.pem"}
    assert {path.name for path in directory.iterdir()} == names
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert len(set(load_all(directory))) == 4
    assert str(directory / "worker-1.pem") in capsys.readouterr().out


def test_clients_get_a_file_of_each_role_that_is_requested(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(directory, "--client-role", "read", "--client-role", "use") == 0
    made = {path.name for path in directory.glob("client*")}
    assert made == {"client.pem", "client-of-role-read.pem", "client-of-role-use.pem"}
    of_user = tmp_path / "of user"
    of_user.mkdir(mode=0o700)
    (directory / "ca.crt").rename(of_user / "ca.crt")
    (directory / "client-of-role-read.pem").rename(of_user / "client.pem")
    assert load_tls(None, {"JFLOW_TLS_DIR": str(of_user)}) is not None
    with pytest.raises(SystemExit):
        init(directory, "--client-role", "cluster")
    assert "there is no role 'cluster'; expected read, use, operate" in capsys.readouterr().err


def test_a_second_run_renews_certificates_and_keeps_the_authority(directory: Path) -> None:
    init(directory)
    authority, before = (directory / "ca.crt").read_bytes(), load_all(directory)
    assert init(directory, "--days", "7") == 0
    assert (directory / "ca.crt").read_bytes() == authority
    assert not set(load_all(directory)) & set(before)


def test_the_cluster_may_be_in_a_file_or_in_the_environment(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(CLUSTER))
    assert main(["certs", "init", str(directory), "--cluster", str(file)]) == 0
    load_all(directory)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER}))
    assert main(["certs", "init", str(tmp_path / "second")]) == 0
    load_all(tmp_path / "second")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no cluster: give --cluster, or set TF_CONFIG"),
        (["--cluster", "{}"], "no cluster: give --cluster, or set TF_CONFIG"),
        (["--cluster", "nowhere.json"], "'nowhere.json' is neither JSON nor a file"),
        (["--cluster", '{"ps": ["a"], "PS": ["b"]}'], "cannot distinguish jobs by the case"),
        (["--cluster", '{"ps": ["a"]}', "--days", "0"], "--days must be at least 1, got 0"),
        (["--cluster", '{"ps": ["worker-0.jflow"]}'], "host 'worker-0.jflow': names that end in"),
        (["--cluster", '{"ps": ["Client.JFLOW.:1"]}'], "host 'Client.JFLOW.': names that end in"),
        (["--cluster", '{"ps": ["*.example.com"]}'], "a pattern would stand for other hosts"),
    ],
)
def test_a_wrong_use_is_one_line(
    directory: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["certs", "init", str(directory), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not directory.exists()


def test_a_directory_in_which_others_could_replace_the_authority_is_refused(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init(directory)
    before = load_all(directory)
    for loose in (directory, directory.parent):
        mode = loose.stat().st_mode
        loose.chmod(0o777)
        assert init(directory) == 2
        assert f"chmod go-w {loose}`" in capsys.readouterr().err
        loose.chmod(mode)
    assert load_all(directory) == before


def test_half_an_authority_is_refused(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(directory)
    (directory / "ca.key").unlink()
    before = load_all(directory)
    assert init(directory) == 2
    assert "has ca.crt and no ca.key" in capsys.readouterr().err
    assert load_all(directory) == before


def test_without_the_package_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jflow.net.wire.authority", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert init(tmp_path / "tls") == 2
    assert "pip install 'jflow[tls]'" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can give files to another user")
@pytest.mark.parametrize("planted", ["ca.key", "ca.crt"])
def test_an_authority_that_another_user_has_put_there_is_not_believed(
    directory: Path, capsys: pytest.CaptureFixture[str], planted: str
) -> None:
    """Into a directory like /tmp, where certificates are made for the first time."""
    init(directory)
    for path in directory.iterdir():
        if path.name not in ("ca.key", "ca.crt"):
            path.unlink()
    directory.chmod(0o1777)
    os.chown(directory / planted, 12345, 12345)
    assert init(directory) == 2
    words = f"{directory / planted} belongs to the user with the number 12345"
    assert words in capsys.readouterr().err
    assert {path.name for path in directory.iterdir()} == {"ca.key", "ca.crt"}


@pytest.mark.parametrize(("name", "mode"), [("ca.key", 0o640), ("ca.crt", 0o664)])
def test_an_authority_that_others_may_use_is_refused_with_its_repair(
    directory: Path, capsys: pytest.CaptureFixture[str], name: str, mode: int
) -> None:
    init(directory)
    (directory / name).chmod(mode)
    assert init(directory) == 2
    assert f"chmod 600 {directory / name}`" in capsys.readouterr().err
