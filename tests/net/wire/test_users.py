"""The file of users: what is written to it, and what a server accepts while it changes."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jflow.base.roles import AccessRole
from jflow.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from jflow.net.protocol.tokens import TokenId
from jflow.net.wire import users as users_module
from jflow.net.wire.users import (
    UsersFile,
    make_token,
    read_users,
    revoke_tokens,
    rotate_token,
    set_role,
    users_path,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "private" / "users.json"


def test_a_server_accepts_what_the_file_has_at_that_moment(path):
    users = UsersFile(path)
    ann = make_token(path, "ann")
    bob = make_token(path, "bob")
    assert users.accept(ann)
    assert not users.accept(TokenId("bob", ann.serial))
    later = rotate_token(path, "ann")
    assert [users.accept(one) for one in (ann, later, bob)] == [False, True, True]
    revoke_tokens(path, "ann")
    assert [users.accept(one) for one in (ann, later, bob)] == [False, False, True]
    again = make_token(path, "ann")
    assert [users.accept(one) for one in (ann, later, again)] == [False, False, True]
    path.unlink()
    assert not users.accept(bob)


def test_a_former_token_is_accepted_for_the_time_that_is_given(path, monkeypatch):
    users, former = UsersFile(path), make_token(path, "ann")
    second = rotate_token(path, "ann", keep_s=3600)
    third = rotate_token(path, "ann", keep_s=7200)
    assert all(map(users.accept, (former, second, third)))
    start = time.time()
    monkeypatch.setattr(users_module.time, "time", lambda: start + 3700)
    assert [users.accept(one) for one in (former, second, third)] == [False, True, True]
    monkeypatch.setattr(users_module.time, "time", lambda: start + 7300)
    assert [users.accept(one) for one in (former, second, third)] == [False, False, True]
    rotate_token(path, "ann")
    assert {*read_users(path)["ann"].tokens}.isdisjoint({former.serial, second.serial})


def test_roles_are_those_of_the_file_at_that_moment(path):
    users = UsersFile(path)
    assert users.roles() == {}
    make_token(path, "ann")
    make_token(path, "bob", AccessRole.USE)
    roles = users.roles()
    assert roles == {"ann": AccessRole.OPERATE, "bob": AccessRole.USE}
    assert users.roles() is roles
    set_role(path, "ann", AccessRole.READ)
    assert users.roles() == {"ann": AccessRole.READ, "bob": AccessRole.USE}
    rotate_token(path, "ann")
    assert users.roles()["ann"] == AccessRole.READ
    with pytest.raises(NotFoundError, match="no user 'carl'"):
        set_role(path, "carl", AccessRole.READ)


def test_a_user_without_tokens_stays_and_keeps_the_role(path):
    users, ann = UsersFile(path), make_token(path, "ann", AccessRole.USE)
    revoke_tokens(path, "ann")
    assert not users.accept(ann)
    assert users.roles() == {"ann": AccessRole.USE}
    assert users.accept(make_token(path, "ann"))
    assert users.roles() == {"ann": AccessRole.USE}
    revoke_tokens(path, "ann")
    make_token(path, "ann", AccessRole.OPERATE)
    assert users.roles() == {"ann": AccessRole.OPERATE}


def test_names_that_cannot_be_are_refused_and_known_ones_are_not_made_again(path):
    for name in ("", "Ann", "a b", "a" * 64, "ä", "-a", "../a", "a\n"):
        with pytest.raises(InvalidArgumentError, match="cannot be the name of a user"):
            make_token(path, name)
    assert not path.exists()
    make_token(path, "ann")
    with pytest.raises(AlreadyExistsError, match="jflow token rotate ann"):
        make_token(path, "ann")
    for change in (rotate_token, revoke_tokens):
        with pytest.raises(NotFoundError, match=r"no user 'bob' in .*; there are ann"):
            change(path, "bob")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"user": {}}',
        '{"users": {"b\xff": {}}}',
        '{"users": {"Ann": {"tokens": {}}}}',
        '{"users": {"ann": {"tokens": {"12": {"made": 0}}}}}',
        '{"users": {"ann": {"tokens": {"0123456789abcdef": {}}}}}',
        '{"users": {"ann": {"tokens": {"0123456789abcdef": {"made": 0, "role": "all"}}}}}',
        '{"users": {"ann": {"role": "all"}}}',
        '{"users": {"ann": {"role": "cluster"}}}',
        '{"users": {"ann": {"role": "Use"}}}',
        '{"users": {"ann": {"role": 3}}}',
        '{"users": {"ann": {"role": null}}}',
    ],
)
def test_a_malformed_file_is_an_error_and_accepts_no_user(path, content, caplog):
    ann = make_token(path, "ann")
    users = UsersFile(path)
    assert users.accept(ann)
    path.write_bytes(content.encode("latin-1"))
    assert not users.accept(ann)
    assert users.roles() is None
    assert [one.msg for one in caplog.records] == ["users_unreadable"]
    for act in (read_users, UsersFile, lambda one: make_token(one, "bob")):
        with pytest.raises(InvalidArgumentError, match=rf"{path} is malformed"):
            act(path)
    assert path.read_bytes() == content.encode("latin-1")


def test_a_file_that_others_may_replace_is_refused(path):
    ann = make_token(path, "ann")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    users = UsersFile(path)
    path.chmod(0o644)
    assert users.accept(ann)
    path.chmod(0o666)
    with pytest.raises(PermissionDeniedError):
        read_users(path)


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionDeniedError, match=r"file/users.json"):
        make_token(tmp_path / "file" / "users.json", "ann")


def test_two_that_change_it_at_once_lose_nothing(path):
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda i: make_token(path, f"user-{i}"), range(40))]
    users = UsersFile(path)
    assert all(map(users.accept, made))
    assert [*path.parent.iterdir()] == [path]


def test_the_file_has_no_token(path):
    ann = make_token(path, "ann")
    (entry,) = json.loads(path.read_text())["users"]["ann"]["tokens"].items()
    assert entry[0] == ann.serial
    assert [*entry[1]] == ["made"]


def test_which_file_it_is(tmp_path):
    assert users_path({"JFLOW_USERS_FILE": "/a/b"}) == users_path({"JFLOW_USERS_FILE": "/a/b"})
    assert str(users_path({"JFLOW_USERS_FILE": "/a/b"})) == "/a/b"
    assert users_path({}).parts[-2:] == (".jflow", "users.json")


def test_changes_of_permissions_count_and_can_be_taken_back(path, monkeypatch):
    ann = make_token(path, "ann")
    users = UsersFile(path)
    path.chmod(0o666)
    assert not users.accept(ann)
    path.chmod(0o600)
    monkeypatch.setattr(users_module, "RETRY_S", 0.0)
    assert users.accept(ann)


def test_an_error_that_passes_by_itself_locks_out_for_a_short_time(path, monkeypatch):
    ann = make_token(path, "ann")
    users, read = UsersFile(path), users_module.read_private
    reads = []

    def failing(*arguments):
        reads.append(arguments)
        raise OSError(24, "too many open files")

    monkeypatch.setattr(users_module, "read_private", failing)
    path.touch()
    assert not users.accept(ann)
    assert not users.accept(ann)
    assert len(reads) == 1  # no caller without a token makes a server read it again and again
    monkeypatch.setattr(users_module, "read_private", read)
    monkeypatch.setattr(users_module, "RETRY_S", 0.0)
    assert users.accept(ann)


def test_a_server_without_a_file_does_not_mind_where_one_could_be(tmp_path):
    folder = tmp_path / "loose"
    folder.mkdir()
    folder.chmod(0o777)
    users = UsersFile(folder / "users.json")
    ann = make_token(tmp_path / "own" / "users.json", "ann")
    (folder / "users.json").write_bytes((tmp_path / "own" / "users.json").read_bytes())
    assert not users.accept(ann)


def test_a_link_stays_one_and_what_it_leads_to_is_changed(path, tmp_path):
    ann = make_token(path, "ann")
    link = tmp_path / "link.json"
    link.symlink_to(path)
    users = UsersFile(path)
    assert users.accept(ann)
    revoke_tokens(link, "ann")
    assert link.is_symlink()
    assert not users.accept(ann)


def test_no_file_is_written_that_is_too_large_to_be_read(path, monkeypatch):
    make_token(path, "ann")
    former = path.read_bytes()
    monkeypatch.setattr(users_module, "MAX_BYTES", len(former))
    with pytest.raises(ResourceExhaustedError, match="revoke users"):
        make_token(path, "bob")
    assert path.read_bytes() == former
