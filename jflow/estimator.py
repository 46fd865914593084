"""Configuration of a process in a cluster, under TensorFlow's name tf.estimator."""

from jflow.cluster.estimator import RunConfig as RunConfig
