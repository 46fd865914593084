"""Configuration of a process in a cluster, under TensorFlow's name tf.contrib.learn."""

from jflow.cluster.learn import RunConfig as RunConfig
