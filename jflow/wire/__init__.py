"""Transports of the protocol's frames. Only this room knows gRPC."""

import os

# gRPC reads this when it is imported; its default tells of every connection that a stop ends.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from jflow.wire.transports import TRANSPORTS as TRANSPORTS
from jflow.wire.transports import connect as connect
from jflow.wire.transports import transport_of as transport_of
