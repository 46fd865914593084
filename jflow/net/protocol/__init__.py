"""The protocol: services, messages and calls over streams of frames, on any transport.

From the outside in:

* **Services** are what can be called: `services.py`, and classes of `jflow.state.core`. A method
  that is marked `remote` is an RPC, whose records follow from its signature (`signatures.py`);
  plans and steps, which are large or hot, have messages of protobuf (`rpcs.py`, `run_rpcs.py`,
  `plan_codec.py`), and what a step sends each time is a template (`templates.py`). A client calls
  its master by `MasterClient`, a server the worker of a task by a `TaskProxy` (`Peer`, `OwnTask`).
* **The envelope** is one protobuf message: the number of a call, what it asks or answers, what is
  left of its deadline. Tensors follow it in the same frame or in chunks (`frame.py`, `codec.py`);
  in shared memory they are named by segments (`segments.py`).
* **Records** are what services exchange (`records.py`), and typed structs over MessagePack for what
  signatures name. A record has one form only; any other is refused.
* **Streams** carry frames both ways. Each begins with a handshake (`handshake.py`, `admission.py`)
  that finds the version that both ends speak, and compares the token and the server that is meant;
  a heartbeat detects an end that does not answer. On a server's loop a stream is a
  `MessageStream`, which a `Dispatcher` serves; a client has no loop but threads, so its end is
  sans-I/O parts under locks (`receiver.py`, `outbox.py`, `readers.py`, `pending_calls.py`). The
  interface of transports is `transport.py`; they are in `jflow.net.wire`.

What the other end sends is bounded before it is kept: frames, replies (`credits.py`), streams
that are unauthenticated (`admission.py`).
"""

from jflow.net.protocol.client import MasterClient as MasterClient
from jflow.net.protocol.cluster_tasks import ClusterTasks as ClusterTasks
from jflow.net.protocol.credits import ReplySize as ReplySize
from jflow.net.protocol.endpoint import Endpoint as Endpoint
from jflow.net.protocol.handshake import OtherVersionError as OtherVersionError
from jflow.net.protocol.heartbeat import liveness_s as liveness_s
from jflow.net.protocol.identity import ServerLocation as ServerLocation
from jflow.net.protocol.peer import Arrivals as Arrivals
from jflow.net.protocol.peer import Peer as Peer
from jflow.net.protocol.peer import UnregisteredError as UnregisteredError
from jflow.net.protocol.plan_codec import plan_from_bytes as plan_from_bytes
from jflow.net.protocol.plan_codec import plan_to_bytes as plan_to_bytes
from jflow.net.protocol.proxy import OwnTask as OwnTask
from jflow.net.protocol.proxy import TaskProxy as TaskProxy
from jflow.net.protocol.records import UNKNOWN_OWNER as UNKNOWN_OWNER
from jflow.net.protocol.records import Artifacts as Artifacts
from jflow.net.protocol.records import Client as Client
from jflow.net.protocol.records import DeviceRecord as DeviceRecord
from jflow.net.protocol.records import Piggybacked as Piggybacked
from jflow.net.protocol.records import Registered as Registered
from jflow.net.protocol.records import ServerInfo as ServerInfo
from jflow.net.protocol.records import StepOwner as StepOwner
from jflow.net.protocol.rights import ALL_RIGHTS as ALL_RIGHTS
from jflow.net.protocol.rights import Rights as Rights
from jflow.net.protocol.services import MasterSession as MasterSession
from jflow.net.protocol.services import WatchedCluster as WatchedCluster
from jflow.net.protocol.services import WorkerService as WorkerService
from jflow.net.protocol.services import WorkerSession as WorkerSession
from jflow.net.protocol.tokens import Secret as Secret
from jflow.net.protocol.tokens import Users as Users
from jflow.net.protocol.transport import Transport as Transport
