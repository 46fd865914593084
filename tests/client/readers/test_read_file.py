"""`read_file`: a whole file in a step, from the allowed directories of a task."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import jflow as tf
from tests.clusters import Backend


def test_each_step_reads_the_file_anew(backend: Backend, directory: Path) -> None:
    path = directory / "whole"
    name = tf.placeholder(tf.string, ())
    contents = tf.read_file(name)
    assert (contents.dtype.name, contents.shape.as_list()) == ("string", [])
    both = tf.string_join([tf.read_file(str(path)), tf.read_file(str(path))])
    with backend.session() as session:
        for data in (b"", b"\0\xff\n" * 5, b"x" * (1 << 20)):
            path.write_bytes(data)
            assert session.run([contents, both], {name: str(path)}) == [data, data + data]


def test_what_cannot_be_read_is_refused(backend: Backend, directory: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    link = directory / "link"
    link.symlink_to(outside)
    name = tf.placeholder(tf.string, None)
    contents = tf.read_file(name)
    with backend.session() as session:
        with pytest.raises(tf.errors.NotFoundError, match="absent"):
            session.run(contents, {name: str(directory / "absent")})
        with pytest.raises(tf.errors.FailedPreconditionError, match="is a directory"):
            session.run(contents, {name: str(directory)})
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected one file name"):
            session.run(contents, {name: ["a", "b"]})
        if backend.shared:
            for path in (outside, link, os.path.join(directory, "..", "outside")):
                with pytest.raises(tf.errors.PermissionDeniedError, match="cannot be read"):
                    session.run(contents, {name: str(path)})
        else:
            assert session.run(contents, {name: str(link)}) == b"secret"


def test_a_file_name_is_one_string() -> None:
    with pytest.raises(ValueError, match="expected one file name"):
        tf.read_file(["a", "b"])
    with pytest.raises(TypeError, match="string"):
        tf.read_file(tf.constant(1))
