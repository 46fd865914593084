"""Cluster resolvers, under the names of tf.distribute.cluster_resolver."""

from jflow import tracebacks as _tracebacks
from jflow.cluster import ClusterResolver as ClusterResolver
from jflow.cluster import SimpleClusterResolver as SimpleClusterResolver
from jflow.cluster import TFConfigClusterResolver as TFConfigClusterResolver

_tracebacks.end_here(globals())
