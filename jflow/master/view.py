"""`ServerView`: what the master of a server knows of its cluster."""

from __future__ import annotations

from jflow.core import ClusterView
from jflow.protocol import ClusterTasks, ServerInfo

ServerView = ClusterView[ServerInfo, ClusterTasks]
