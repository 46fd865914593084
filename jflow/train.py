"""Clusters and servers under the names that TensorFlow gives them."""

from jflow.cluster import ClusterSpec as ClusterSpec
from jflow.server import Server as Server
