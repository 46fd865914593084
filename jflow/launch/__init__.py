"""Starting clusters."""

from jflow.launch.cluster import LocalCluster as LocalCluster
