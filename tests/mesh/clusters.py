"""A cluster whose tasks have eight devices each; its client needs none of them."""

from collections.abc import Iterator

import pytest

import jflow as tf


@pytest.fixture(scope="package")
def cluster() -> Iterator[tf.LocalCluster]:
    """Two workers with eight CPU devices each."""
    resources = tf.TaskResources(cpu_devices=8)
    with tf.LocalCluster(ps=0, workers=2, resources=resources) as started:
        yield started
