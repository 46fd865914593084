"""Cluster resolvers, under the names of tf.distribute.cluster_resolver."""

from jflow import tracebacks as _tracebacks
from jflow.cluster import ClusterResolver as ClusterResolver
from jflow.cluster import KubernetesClusterResolver as KubernetesClusterResolver
from jflow.cluster import OpenMPIClusterResolver as OpenMPIClusterResolver
from jflow.cluster import SimpleClusterResolver as SimpleClusterResolver
from jflow.cluster import SlurmClusterResolver as SlurmClusterResolver
from jflow.cluster import TFConfigClusterResolver as TFConfigClusterResolver
from jflow.cluster import UnionResolver as UnionResolver

_tracebacks.end_here(globals())
