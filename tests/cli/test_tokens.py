"""`jflow token`: what it prints, writes and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from jflow.cli.main import main
from jflow.net.protocol import Secret
from jflow.net.wire import load_secret
from jflow.net.wire.users import UsersFile, users_path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("JFLOW_TOKEN", "JFLOW_TOKEN_FILE", "JFLOW_USERS_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["token", *arguments]) == code
    written = capsys.readouterr()
    return written.err if code else written.out


def test_tokens_are_made_listed_rotated_and_revoked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Secret(shown(capsys, "make", "ann").strip()).id
    assert shown(capsys, "make", "bob", "-o", str(folder / "bob")) == ""
    assert (folder / "bob").stat().st_mode & 0o777 == 0o600
    bob = Secret((folder / "bob").read_text().strip())
    second = Secret(shown(capsys, "rotate", "ann", "--keep-hours", "1").strip()).id
    users = UsersFile(users_path())
    assert first is not None
    assert second is not None
    assert bob.id is not None
    assert all(map(users.accept, (first, second, bob.id)))
    assert bob.key("x") == Secret(load_secret().token_of(bob.id)).key("x")
    lines = shown(capsys, "list").splitlines()
    assert lines[0].split() == ["USER", "ROLE", "TOKEN", "MADE", "ACCEPTED"]
    assert [line.split()[::2][:2] for line in lines[1:]] == [[*first], [*second], [*bob.id]]
    assert [line.split()[5] for line in lines[1:]] == ["until", "yes", "yes"]
    assert shown(capsys, "revoke", "ann") == ""
    assert [users.accept(one) for one in (first, second, bob.id)] == [False, False, True]


def test_a_user_has_a_role_which_is_listed_and_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def roles() -> list[list[str]]:
        return [line.split()[:2] for line in shown(capsys, "list").splitlines()[1:]]

    shown(capsys, "make", "ann")
    shown(capsys, "make", "bob", "--role", "read")
    assert roles() == [["ann", "operate"], ["bob", "read"]]
    assert shown(capsys, "role", "bob", "use") == ""
    assert roles() == [["ann", "operate"], ["bob", "use"]]
    shown(capsys, "revoke", "bob")
    assert shown(capsys, "list").splitlines()[2].split() == ["bob", "use", "none", "no", "longer"]
    assert "no user 'carl'" in shown(capsys, "role", "carl", "use", code=2)
    for wrong in ("cluster", "admin", ""):
        with pytest.raises(SystemExit):
            main(["token", "role", "bob", wrong])
        assert "expected read, use, operate" in capsys.readouterr().err


def test_what_cannot_be_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = shown(capsys, "make", "ann").strip()
    assert "rotate ann" in shown(capsys, "make", "ann", code=2)
    assert "no user 'bob'" in shown(capsys, "revoke", "bob", code=2)
    assert "from 0 to" in shown(capsys, "rotate", "ann", "--keep-hours", "-1", code=2)
    assert "from 0 to" in shown(capsys, "rotate", "ann", "--keep-hours", "1e308", code=2)
    assert "cannot be written" in shown(
        capsys, "rotate", "ann", "-o", str(folder / "no" / "file"), code=2
    )
    monkeypatch.setenv("JFLOW_TOKEN", token)
    assert "has the token of the user 'ann'" in shown(capsys, "make", "bob", code=2)
    assert main(["metrics-token"]) == 2  # servers would refuse what it is made of
    assert "has the token of the user 'ann'" in capsys.readouterr().err
    monkeypatch.setenv("JFLOW_TOKEN", token[:-5])
    assert "perhaps only a part of it" in shown(capsys, "make", "bob", code=2)
