"""Starts clusters, and programs that run on them."""

from jflow.launch.cluster import LocalCluster as LocalCluster
from jflow.launch.program import run as run
from jflow.launch.ray import RayCluster as RayCluster
from jflow.launch.resources import TaskResources as TaskResources
from jflow.launch.role import ProgramRole as ProgramRole
