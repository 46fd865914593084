"""The token: made once, for its user only, and hard to guess."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jflow
from jflow.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from jflow.net.wire import token as token_module
from jflow.net.wire.token import load_token

SECRET = "a secret of many more letters"

# Loads the one module without the rest of jflow, so that the processes start at once.
RACER = """
import sys, types
for name in ("jflow", "jflow.net", "jflow.net.wire", "jflow.net.protocol"):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = ["/".join([sys.argv[1], *name.split(".")])]
from jflow.net.wire.token import load_token
print("ready", flush=True)
sys.stdin.readline()
print(load_token())
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Where the token is by default, in a home directory of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JFLOW_TOKEN", raising=False)
    monkeypatch.delenv("JFLOW_TOKEN_FILE", raising=False)
    return tmp_path / ".jflow" / "token"


def _mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_first_use_makes_a_token_that_only_its_user_can_read(path, umask):
    before = os.umask(umask)
    try:
        made = load_token()
    finally:
        os.umask(before)
    assert path.read_text() == made
    assert (_mode(path), _mode(path.parent)) == (0o600, 0o700)
    assert list(path.parent.iterdir()) == [path], "nothing else is left behind"
    assert len(bytes.fromhex(made)) == 32


def test_later_uses_give_the_same_token(path):
    assert load_token() == load_token() == path.read_text()


def test_two_users_get_two_tokens(path, tmp_path, monkeypatch):
    first = load_token()
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    assert load_token() != first


def test_processes_that_come_first_at_the_same_time_get_one_token(path):
    command = [sys.executable, "-c", RACER, str(Path(jflow.__file__).parents[1])]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    tokens = {racer.communicate()[0].strip() for racer in racers}
    assert tokens == {path.read_text()}


def test_a_process_that_finds_no_token_but_comes_second_takes_that_of_the_first(path, monkeypatch):
    first = load_token()
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert load_token() == first == path.read_text()
    assert list(path.parent.iterdir()) == [path]


def test_a_token_in_the_environment_comes_before_every_file(path):
    environ = {"JFLOW_TOKEN": SECRET, "JFLOW_TOKEN_FILE": "/nowhere"}
    assert load_token(environ) == SECRET
    assert not path.exists()


def test_an_empty_variable_is_as_good_as_none(path):
    assert load_token({"JFLOW_TOKEN": "", "JFLOW_TOKEN_FILE": ""}) == path.read_text()


def test_the_file_may_be_elsewhere(path, tmp_path):
    elsewhere = tmp_path / "secret"
    elsewhere.write_text(SECRET)
    elsewhere.chmod(0o600)
    assert load_token({"JFLOW_TOKEN_FILE": str(elsewhere)}) == SECRET
    assert not path.exists()


def test_a_named_file_that_does_not_exist_is_an_error_and_is_not_made(path, tmp_path):
    elsewhere = tmp_path / "secret"
    with pytest.raises(NotFoundError, match=f"^JFLOW_TOKEN_FILE names '{elsewhere}'.*secrets"):
        load_token({"JFLOW_TOKEN_FILE": str(elsewhere)})
    assert not elsewhere.exists()
    assert not path.exists()


def test_space_around_the_token_does_not_count(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"  {SECRET}\n")
    file.chmod(0o600)
    assert load_token({"JFLOW_TOKEN_FILE": str(file)}) == SECRET
    assert load_token({"JFLOW_TOKEN": f" {SECRET}\n"}) == SECRET


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("x", "has a token of 1 characters; at least 22"),
        ("twenty-one characters", "has a token of 21 characters; at least 22"),
        ("a token with an \u00e4 in it", "not printable ASCII"),
        ("a token of\nseveral lines", "not printable ASCII"),
    ],
)
def test_a_token_that_is_short_or_no_header_is_refused_and_not_shown(tmp_path, token, words):
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    for source, environ in (
        ("JFLOW_TOKEN", {"JFLOW_TOKEN": token}),
        (f"the token file {file}", {"JFLOW_TOKEN_FILE": str(file)}),
    ):
        with pytest.raises(InvalidArgumentError, match=f"^{source} .*{words}.*secrets") as raised:
            load_token(environ)
        assert f"'{token}'" not in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601, 0o660, 0o777])
def test_a_file_that_others_may_use_is_refused_with_its_repair(path, mode):
    load_token()
    path.chmod(mode)
    with pytest.raises(PermissionDeniedError, match=f"chmod 600 {path}"):
        load_token()


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_file_in_a_directory_that_others_may_write_to_is_refused_with_its_repair(path, mode):
    load_token()
    path.parent.chmod(mode)
    with pytest.raises(PermissionDeniedError, match=f"chmod go-w {path.parent}"):
        load_token()


@pytest.mark.parametrize("how", ["a name", "a link"])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_further_up_that_others_may_write_to_is_refused(tmp_path, how, mode):
    """They could put another directory, with a token of theirs, in the place of the inner one."""
    file = tmp_path / "shared" / "own" / "token"
    file.parent.mkdir(parents=True)
    file.write_text(SECRET)
    file.chmod(0o600)
    named = file
    if how == "a link":
        # Through a directory that neither the name nor the file's own has.
        (tmp_path / "link").symlink_to(file.parent)
        named = tmp_path / "link" / ".." / "own" / "token"
    assert load_token({"JFLOW_TOKEN_FILE": str(named)}) == SECRET
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(PermissionDeniedError, match=f"chmod go-w {tmp_path / 'shared'}`"):
        load_token({"JFLOW_TOKEN_FILE": str(named)})
    (tmp_path / "shared").chmod(mode | 0o1000)
    assert load_token({"JFLOW_TOKEN_FILE": str(named)}) == SECRET


def test_links_are_checked_where_they_are(tmp_path):
    """Not only what they lead to: a user that replaces one of them replaces the token."""
    made = tmp_path / "own" / "token"
    loose = tmp_path / "loose"
    for directory in (made.parent, loose):
        directory.mkdir()
    made.write_text(SECRET)
    made.chmod(0o600)
    (loose / "second").symlink_to("../own/token")
    (tmp_path / "first").symlink_to(loose / "second")
    environ = {"JFLOW_TOKEN_FILE": str(tmp_path / "first")}
    assert load_token(environ) == SECRET
    loose.chmod(0o777)
    with pytest.raises(PermissionDeniedError, match=f"chmod go-w {loose}`"):
        load_token(environ)


def test_the_home_directory_is_checked_and_those_above_it_are_not(path, tmp_path, monkeypatch):
    own = tmp_path / "homes" / "own"
    own.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(own))
    made = load_token()
    own.parent.chmod(0o777)
    assert load_token() == made
    own.chmod(0o775)
    with pytest.raises(PermissionDeniedError, match=f"chmod go-w {own}`"):
        load_token()


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_directory_in_which_others_cannot_replace_the_file_is_taken(path, mode):
    made = load_token()
    path.parent.chmod(mode)
    assert load_token() == made


def test_a_link_in_a_safe_directory_to_a_file_in_a_loose_one_is_refused(path, tmp_path):
    made = load_token()
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    path.rename(loose / "token")
    path.symlink_to(loose / "token")
    with pytest.raises(PermissionDeniedError, match=f"chmod go-w {loose}"):
        load_token()
    loose.chmod(0o700)
    assert load_token() == made


@pytest.mark.parametrize("of", ["the file", "its directory"])
@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can give files to another user")
def test_a_file_of_another_user_is_refused(path, of):
    load_token()
    os.chown(path if of == "the file" else path.parent, 12345, -1)
    with pytest.raises(PermissionDeniedError, match=r"another user may|other users may replace"):
        load_token()


def test_a_file_with_another_owner_is_refused_on_behalf_of_any_user(path, monkeypatch):
    load_token()
    own = os.geteuid()
    monkeypatch.setattr(token_module.os, "geteuid", lambda: own + 1)
    with pytest.raises(PermissionDeniedError, match=f"belongs to the user with the number {own}"):
        load_token()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_only_its_user_may_use_is_taken(path, mode):
    made = load_token()
    path.chmod(mode)
    assert load_token() == made


def _directory(path):
    path.mkdir(mode=0o700)


def _in_a_file(path):
    path.parent.rmdir()
    path.parent.write_text("in the way")


def _empty(path):
    path.touch(mode=0o600)


def _spaces(path):
    path.touch(mode=0o600)
    path.write_text(" \n")


def _no_text(path):
    path.touch(mode=0o600)
    path.write_bytes(b"\xff\xfe\x80")


def _eight_gibibytes(path):
    path.touch(mode=0o600)
    os.truncate(path, 8 << 30)


def _dangling_link(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    "make",
    [_directory, _in_a_file, _empty, _spaces, _no_text, _eight_gibibytes, _dangling_link],
)
def test_a_file_that_cannot_be_read_is_an_error_and_never_means_no_token(path, make):
    path.parent.mkdir(mode=0o700)
    make(path)
    with pytest.raises(PermissionDeniedError, match=str(path)):
        load_token()


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may read everything")
def test_a_file_without_any_permission_is_an_error(path):
    load_token()
    path.chmod(0)
    with pytest.raises(PermissionDeniedError, match=str(path)):
        load_token()


def test_a_directory_that_cannot_be_written_is_an_error(path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(token_module.os, "open", refuse)
    with pytest.raises(PermissionDeniedError, match="Permission denied"):
        load_token()
