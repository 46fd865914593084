"""Transports of the protocol's frames; the only package of jflow that imports gRPC."""

import os

# gRPC reads this when it is imported; by default it logs each connection that a stop ends.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# So that a name has the same addresses for gRPC, which dials them, as for servers, which bind them
# by the system's resolver: no other process can listen at one more.
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")

from jflow.net.wire.machine import file_system_id as file_system_id
from jflow.net.wire.machine import machine_id as machine_id
from jflow.net.wire.tls import load_tls as load_tls
from jflow.net.wire.transports import TRANSPORTS as TRANSPORTS
from jflow.net.wire.transports import cluster_name as cluster_name
from jflow.net.wire.transports import connect as connect
from jflow.net.wire.transports import load_secret as load_secret
from jflow.net.wire.transports import load_users as load_users
from jflow.net.wire.unix_sockets import remove_own_sockets as remove_own_sockets
