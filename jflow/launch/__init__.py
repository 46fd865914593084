"""Starting clusters."""

from jflow.launch.cluster import LocalCluster as LocalCluster
from jflow.launch.ray import RayCluster as RayCluster
