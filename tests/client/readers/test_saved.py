"""Readers that are saved with their positions, and go on in another session."""

from __future__ import annotations

from pathlib import Path

import jflow as tf
from tests.client.queues.helpers import session
from tests.client.readers.helpers import Driver, files, lines
from tests.clusters import Backend


def test_a_reader_goes_on_where_it_was_saved(backend: Backend, directory: Path) -> None:
    work = [lines(directory, name, *"123") for name in ("first", "second")]
    with session(backend) as sess:
        driver = Driver(sess, tf.TextLineReader())
        driver.give(*work)
        assert driver.values(2) == [b"1", b"2"]
        tf.checkpoint.save(directory / "saved", sess)
        following = driver.read(3)
        assert [value for _, value in following] == [b"3", b"1", b"2"]
        tf.checkpoint.restore(directory / "saved", sess)
        assert driver.counts == (2, 0)
        assert driver.read(3) == following


def test_another_cluster_life_goes_on_with_the_positions_of_shared_readers(
    cluster: Backend, directory: Path
) -> None:
    work = [lines(directory, name, *"123") for name in ("first", "second")]
    reader, queue = tf.TextLineReader(shared_name="reader"), files(shared_name="files")
    with session(cluster) as sess:
        driver = Driver(sess, reader, queue)
        driver.give(*work)
        driver.close()
        driver.values(4)
        tf.checkpoint.save(directory / "saved", sess)
    cluster.reset()
    with session(cluster, 1) as sess:
        driver = Driver(sess, reader, queue)
        tf.checkpoint.restore(directory / "saved", sess)
        assert driver.counts == (4, 1)
        assert driver.values(2) == [b"2", b"3"]
