"""A server: master and worker of one task of a cluster, put together."""

from jflow.server.server import Server as Server
