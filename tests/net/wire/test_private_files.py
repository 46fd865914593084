"""Files that are this user's alone: links and pipes of others, also in directories that all use."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from jflow.errors import PermissionDeniedError
from jflow.net.wire import private_files
from jflow.net.wire.private_files import loose_place, read_private
from jflow.net.wire.tls import load_tls
from jflow.net.wire.token import load_token

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="only the superuser can give files to another user"
)

OTHER = 12345
SECRET = b"a secret of many more letters"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like /tmp, to which all may write."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A directory of this user, with a file of theirs."""
    directory = tmp_path / "own"
    directory.mkdir()
    (directory / "secret").write_bytes(SECRET)
    (directory / "secret").chmod(0o600)
    return directory


def link(path: Path, target: Path | str, owner: int) -> Path:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


@pytest.mark.parametrize("owner", [OTHER, 0])
@pytest.mark.parametrize("of", ["the file", "a directory", "a link"])
def test_links_of_other_users_are_not_followed(
    shared: Path, own: Path, of: str, owner: int
) -> None:
    """What they lead to is this user's now; the others can change that at any time."""
    if of == "the file":
        path = found = link(shared / "link", own / "secret", owner)
    elif of == "a directory":
        found = link(shared / "link", own, owner)
        path = found / "secret"
    else:
        found = link(shared / "link", "../own/secret", owner)
        path = link(own / "first", found, 0)
    if owner == 0:
        assert loose_place(path) is None
        assert read_private(path) == SECRET
        return
    words = f"{found} belongs to the user with the number {OTHER}"
    assert words in (loose_place(path) or "")
    with pytest.raises(PermissionDeniedError, match=words):
        read_private(path)


def test_links_on_the_way_to_the_home_directory_may_be_of_any_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers they often belong to no known user, and their owner can replace all of it."""
    (tmp_path / "homes" / "me").mkdir(parents=True)
    file = tmp_path / "homes" / "me" / "secret"
    file.write_bytes(SECRET)
    file.chmod(0o600)
    named = link(tmp_path / "home", tmp_path / "homes", OTHER) / "me"
    monkeypatch.setenv("HOME", str(named))
    assert read_private(named / "secret") == SECRET
    link(named / "inner", "secret", OTHER)
    with pytest.raises(PermissionDeniedError, match=f"{OTHER}"):
        read_private(named / "inner")


def test_a_token_and_certificates_behind_a_link_of_another_user_are_refused(
    shared: Path, own: Path
) -> None:
    named = link(shared / "link", own, OTHER)
    with pytest.raises(PermissionDeniedError, match=f"{named} belongs to the user"):
        load_token({"JFLOW_TOKEN_FILE": str(named / "secret")})
    own.chmod(0o700)
    with pytest.raises(PermissionDeniedError, match=f"{named} belongs to the user"):
        load_tls(None, {"JFLOW_TLS_DIR": str(named)})


def test_a_pipe_is_refused_and_not_waited_for(shared: Path) -> None:
    os.mkfifo(shared / "secret", 0o600)
    os.chown(shared / "secret", OTHER, OTHER)
    with pytest.raises(OSError, match=f"not a regular file: '{shared / 'secret'}'"):
        read_private(shared / "secret")


@pytest.mark.parametrize("of", ["the file", "a directory"])
def test_what_takes_the_place_of_something_while_it_is_read_is_not_followed(
    shared: Path, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """It is looked at first, and is a link when it is opened."""
    foreign = tmp_path / "foreign"
    own.rename(foreign)
    path = shared / "inner" / "secret"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    replaced, by = (path, foreign / "secret") if of == "the file" else (path.parent, foreign)
    look = private_files._link

    def replacing(name: str, directory: int) -> os.stat_result | None:
        found = look(name, directory)
        if name == replaced.name and not replaced.is_symlink():
            replaced.rename(tmp_path / "aside")
            link(replaced, by, OTHER)
        return found

    monkeypatch.setattr(private_files, "_link", replacing)
    with pytest.raises(OSError, match=str(path)):
        read_private(path)


Names = Callable[[Path], Path]


@pytest.mark.parametrize(
    "named", [lambda path: path / ".." / "secret", lambda path: path.parent / "none" / "x"]
)
def test_a_name_that_does_not_lead_to_a_file_is_an_error_that_names_it(
    own: Path, named: Names
) -> None:
    path = named(own / "missing")
    with pytest.raises(FileNotFoundError, match=str(path)):
        read_private(path)


def test_links_that_lead_nowhere_but_to_each_other_are_an_error(own: Path) -> None:
    (own / "one").symlink_to("two")
    (own / "two").symlink_to("one")
    with pytest.raises(OSError, match=f"too many links: '{own / 'one'}'"):
        read_private(own / "one")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore:.*FileIO:pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_point_closes_no_descriptor_twice(own: Path) -> None:
    """Closed twice, it may be another thread's by then; here it would be an OSError."""
    path = own / "deep" / ".." / "secret"
    (own / "deep").mkdir()
    n_points = 0
    while _is_interrupted(path, n_points):
        n_points += 1
    assert n_points > 100


def _is_interrupted(path: Path, point: int) -> bool:
    """Reads a file, with an interrupt at one point; returns whether it was reached."""
    events = itertools.count()

    def trace(frame: FrameType, *_: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != private_files.__file__:
            return None
        if next(events) == point:
            raise KeyboardInterrupt
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        assert read_private(path) == SECRET
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(former)
    return False
