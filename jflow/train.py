"""Clusters, servers and training under the names that TensorFlow gives them."""

from typing import TYPE_CHECKING

from jflow import tracebacks as _tracebacks
from jflow.api import on_first_use as _on_first_use
from jflow.cluster import ClusterDef as ClusterDef
from jflow.cluster import ClusterDeviceFilters as ClusterDeviceFilters
from jflow.cluster import ClusterSpec as ClusterSpec
from jflow.cluster import JobDef as JobDef
from jflow.server import Server as Server
from jflow.server import ServerDef as ServerDef

if TYPE_CHECKING:
    from jflow.api.train import *
else:
    __getattr__, __dir__ = _on_first_use(globals(), "jflow.api.train")

_tracebacks.end_here(globals())
