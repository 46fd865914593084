"""Cluster resolvers, under the names of tf.distribute.cluster_resolver."""

from jflow.base import tracebacks as _tracebacks
from jflow.base.cluster import ClusterResolver as ClusterResolver
from jflow.base.cluster import KubernetesClusterResolver as KubernetesClusterResolver
from jflow.base.cluster import OpenMPIClusterResolver as OpenMPIClusterResolver
from jflow.base.cluster import SimpleClusterResolver as SimpleClusterResolver
from jflow.base.cluster import SlurmClusterResolver as SlurmClusterResolver
from jflow.base.cluster import TFConfigClusterResolver as TFConfigClusterResolver
from jflow.base.cluster import UnionResolver as UnionResolver

_tracebacks.end_here(globals())
