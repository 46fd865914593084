"""`ServerView`: the cluster view of a server's master."""

from __future__ import annotations

from jflow.net.protocol import ClusterTasks, ServerInfo
from jflow.state.core import ClusterView

ServerView = ClusterView[ServerInfo, ClusterTasks]
