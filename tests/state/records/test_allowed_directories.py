import os
import socket

import pytest

from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
)
from jflow.state.records.allowed_directories import AllowedDirectories


@pytest.fixture
def tree(tmp_path):
    """A root with a file and a directory, and a secret beside it."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"a")
    (root / "inner" / "b.txt").write_bytes(b"b")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "rooted").mkdir()
    (tmp_path / "rooted" / "c.txt").write_bytes(b"secret")
    return root


def _read(roots, name):
    with roots.open(name) as file:
        return file.read()


def test_files_below_a_root_are_read_by_relative_and_absolute_names(tree):
    roots = AllowedDirectories([str(tree)])
    assert _read(roots, "a.txt") == _read(roots, str(tree / "a.txt").encode()) == b"a"
    assert _read(roots, b"inner/b.txt") == _read(roots, "./inner//b.txt") == b"b"


def test_a_relative_name_is_looked_for_below_each_root_in_turn(tree, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_bytes(b"other")
    (other / "only.txt").write_bytes(b"only")
    assert _read(AllowedDirectories([str(tree), str(other)]), "a.txt") == b"a"
    assert _read(AllowedDirectories([str(other), str(tree)]), "a.txt") == b"other"
    assert _read(AllowedDirectories([str(tree), str(other)]), "only.txt") == b"only"


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "inner/../../secret",
        "inner/../a.txt",
        "{tmp}/secret",
        "{tmp}/rooted/c.txt",
        "{tmp}/root/../secret",
        "{tmp}",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "/dev/null",
        "/nowhere/at/all",
    ],
)
def test_what_lies_outside_is_refused_with_how_to_declare_a_root(tree, tmp_path, name):
    roots = AllowedDirectories([str(tree)])
    name = name.format(tmp=tmp_path)
    for use in (roots.open, roots.directory):
        with pytest.raises(PermissionDeniedError) as raised:
            use(name)
        for part in (name, str(tree), "--data-root", "JFLOW_DATA_ROOTS"):
            assert part in str(raised.value)


def test_without_roots_nothing_is_read(tree):
    with pytest.raises(PermissionDeniedError, match="no data roots"):
        AllowedDirectories([]).open(str(tree / "a.txt"))


def test_links_that_leave_a_root_are_refused_at_the_end_and_in_the_middle(tree, tmp_path):
    (tree / "out").symlink_to(tmp_path / "secret")
    (tree / "relative").symlink_to("../secret")
    (tree / "middle").symlink_to(tmp_path / "rooted")
    (tree / "twice").symlink_to("middle")
    roots = AllowedDirectories([str(tree)])
    for name in ("out", "relative", "middle/c.txt", "twice/c.txt", "middle/missing"):
        with pytest.raises(PermissionDeniedError):
            roots.open(name)


def test_links_within_the_roots_are_followed(tree, tmp_path):
    (tree / "link").symlink_to("inner/b.txt")
    (tree / "directory").symlink_to(tree / "inner")
    (tree / "across").symlink_to(tmp_path / "rooted" / "c.txt")
    assert _read(AllowedDirectories([str(tree)]), "link") == b"b"
    assert _read(AllowedDirectories([str(tree)]), "directory/b.txt") == b"b"
    assert _read(AllowedDirectories([str(tree), str(tmp_path / "rooted")]), "across") == b"secret"


def test_a_root_may_itself_be_a_link(tree, tmp_path):
    (tmp_path / "alias").symlink_to(tree)
    roots = AllowedDirectories([str(tmp_path / "alias")])
    assert _read(roots, "a.txt") == _read(roots, str(tmp_path / "alias" / "a.txt")) == b"a"


def test_a_link_that_is_put_in_between_is_refused(tree, tmp_path, monkeypatch):
    roots = AllowedDirectories([str(tree)])
    resolve = os.path.realpath

    def swap(path):
        """Replaces a file between its check and its opening, as an attacker would."""
        found = resolve(path)
        if found.endswith("inner/b.txt"):
            (tree / "inner").rename(tree / "was")
            (tree / "inner").symlink_to(tmp_path / "rooted")
            (tmp_path / "rooted" / "b.txt").write_bytes(b"secret")
        return found

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(OpError, match=r"inner/b\.txt"):
        roots.open("inner/b.txt")


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket", "root"])
def test_only_regular_files_are_opened_and_nothing_waits(tree, kind, monkeypatch):
    path = tree / kind
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            monkeypatch.chdir(tree)
            server.bind("socket")
        else:
            path = tree
        for roots in (AllowedDirectories([str(tree)]), AllowedDirectories.anywhere()):
            with pytest.raises(FailedPreconditionError, match="regular files"):
                roots.open(str(path))


def test_a_device_is_not_read_even_where_everything_may_be():
    with pytest.raises(FailedPreconditionError, match="/dev/zero"):
        AllowedDirectories.anywhere().open("/dev/zero")
    with pytest.raises(FailedPreconditionError, match="zero"):
        AllowedDirectories(["/dev"]).open("zero")


def test_a_missing_file_is_not_found(tree):
    for name in ("missing", "inner/missing", "a.txt/below", str(tree / "missing"), "x" * 5000):
        with pytest.raises(NotFoundError, match=name[:50]):
            AllowedDirectories([str(tree)]).open(name)
    with pytest.raises(NotFoundError, match="missing"):
        AllowedDirectories.anywhere().open(str(tree / "missing"))


def test_names_that_are_no_names_are_refused(tree):
    for roots in (AllowedDirectories([str(tree)]), AllowedDirectories.anywhere()):
        for name in (b"a\0.txt", "", b""):
            with pytest.raises(InvalidArgumentError, match="not a valid file name"):
                roots.open(name)


def test_a_name_that_is_not_utf8_works_and_can_be_shown(tree):
    name = b"caf\xe9"
    (tree / os.fsdecode(name)).write_bytes(b"coffee")
    assert _read(AllowedDirectories([str(tree)]), name) == b"coffee"
    with pytest.raises(NotFoundError) as raised:
        AllowedDirectories([str(tree)]).open(name + b"!")
    str(raised.value).encode()
    assert "xe9" in str(raised.value)


def test_a_root_that_is_no_directory_is_not_found(tree):
    for path in (tree / "a.txt", tree / "nowhere"):
        with pytest.raises(NotFoundError, match=path.name):
            AllowedDirectories([str(path)])


def test_anywhere_goes_by_the_current_directory(tree, monkeypatch):
    monkeypatch.chdir(tree / "inner")
    assert _read(AllowedDirectories.anywhere(), "b.txt") == b"b"
    assert _read(AllowedDirectories.anywhere(), "../a.txt") == b"a"


def test_refusals_leave_no_file_open(tree):
    roots, before = AllowedDirectories([str(tree)]), len(os.listdir("/dev/fd"))
    for name in ("inner", "missing", "inner/missing", "a.txt/b", "/etc/passwd") * 5:
        with pytest.raises(OpError):
            roots.open(name)
    assert len(os.listdir("/dev/fd")) == before
