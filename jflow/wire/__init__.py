"""The wire: frames, codecs, connections. gRPC and generated code are known here only."""

import os

# gRPC reads this when it is imported; its default tells of every connection that a stop ends.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from jflow.wire.background import Background as Background
from jflow.wire.client import MasterClient as MasterClient
from jflow.wire.eager import begin as begin
from jflow.wire.frame import SMALL_BYTES as SMALL_BYTES
from jflow.wire.frame import Array as Array
from jflow.wire.peer import REDIAL_TIMEOUT_S as REDIAL_TIMEOUT_S
from jflow.wire.peer import GrpcPeer as GrpcPeer
from jflow.wire.peers import Peers as Peers
from jflow.wire.server import GrpcServer as GrpcServer
from jflow.wire.services import Artifacts as Artifacts
from jflow.wire.services import Client as Client
from jflow.wire.services import DeviceRecord as DeviceRecord
from jflow.wire.services import Host as Host
from jflow.wire.services import MasterSession as MasterSession
from jflow.wire.services import Registered as Registered
from jflow.wire.services import Welcome as Welcome
from jflow.wire.services import WorkerService as WorkerService
from jflow.wire.services import WorkerSession as WorkerSession
from jflow.wire.token import load_token as load_token
