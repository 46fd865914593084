"""The protocol: services, messages and calls over streams of frames, on any transport."""

from jflow.protocol.client import MasterClient as MasterClient
from jflow.protocol.coroutines import Waited as Waited
from jflow.protocol.coroutines import begin as begin
from jflow.protocol.credits import ReplySize as ReplySize
from jflow.protocol.endpoint import Endpoint as Endpoint
from jflow.protocol.handshake import Secret as Secret
from jflow.protocol.heartbeat import liveness_s as liveness_s
from jflow.protocol.peer import Peer as Peer
from jflow.protocol.peer import UnregisteredError as UnregisteredError
from jflow.protocol.peers import Peers as Peers
from jflow.protocol.records import Artifacts as Artifacts
from jflow.protocol.records import Client as Client
from jflow.protocol.records import DeviceRecord as DeviceRecord
from jflow.protocol.records import Registered as Registered
from jflow.protocol.records import SavedState as SavedState
from jflow.protocol.records import ServerInfo as ServerInfo
from jflow.protocol.records import Staging as Staging
from jflow.protocol.services import MasterSession as MasterSession
from jflow.protocol.services import SaveService as SaveService
from jflow.protocol.services import ServerRoles as ServerRoles
from jflow.protocol.services import WorkerService as WorkerService
from jflow.protocol.services import WorkerSession as WorkerSession
from jflow.protocol.settings import RECONNECT_TIMEOUT_S as RECONNECT_TIMEOUT_S
from jflow.protocol.tasks import TaskSet as TaskSet
from jflow.protocol.transport import Transport as Transport
from jflow.values import Array as Array
