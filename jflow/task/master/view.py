"""`ServerView`: what the master of a server knows of its cluster."""

from __future__ import annotations

from jflow.net.protocol import ClusterTasks, ServerInfo
from jflow.state.core import ClusterView

ServerView = ClusterView[ServerInfo, ClusterTasks]
