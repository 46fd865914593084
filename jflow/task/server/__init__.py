"""`Server`: the master and worker of one task of a cluster."""

from jflow.task.server.definition import ServerDef as ServerDef
from jflow.task.server.server import Server as Server
