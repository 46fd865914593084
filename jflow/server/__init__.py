"""`Server`: the master and worker of one task of a cluster."""

from jflow.server.definition import ServerDef as ServerDef
from jflow.server.server import Server as Server
