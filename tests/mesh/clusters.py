"""A cluster whose tasks have four devices each; its client needs none of them."""

from collections.abc import Iterator

import pytest

import jflow as tf


@pytest.fixture(scope="package")
def cluster() -> Iterator[tf.LocalCluster]:
    """Two workers with four CPU devices each."""
    resources = tf.TaskResources(cpu_devices=4)
    with tf.LocalCluster(ps=0, workers=2, resources=resources) as started:
        yield started
