"""Clusters, servers and training under the names that TensorFlow gives them."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use
from jflow.base import tracebacks as _tracebacks
from jflow.base.cluster import ClusterDef as ClusterDef
from jflow.base.cluster import ClusterDeviceFilters as ClusterDeviceFilters
from jflow.base.cluster import ClusterSpec as ClusterSpec
from jflow.base.cluster import JobDef as JobDef
from jflow.task.server import Server as Server
from jflow.task.server import ServerDef as ServerDef

if TYPE_CHECKING:
    from jflow.api.train import *
else:
    __getattr__, __dir__ = _on_first_use(globals(), "jflow.api.train")

_tracebacks.end_here(globals())
