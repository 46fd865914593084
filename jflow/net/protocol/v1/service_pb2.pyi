from jflow.net.protocol.v1 import plan_pb2 as _plan_pb2
from jflow.net.protocol.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("id", "incarnation", "status", "tensors", "timeout_s", "remaining_s", "server_info", "register_step", "register_plans", "registered", "run_step", "run_plans", "send_tensors", "cancel", "release", "call_back", "called_back", "traced", "ping", "ran_plans", "method_call", "method_result")
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    SERVER_INFO_FIELD_NUMBER: _ClassVar[int]
    REGISTER_STEP_FIELD_NUMBER: _ClassVar[int]
    REGISTER_PLANS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    RUN_STEP_FIELD_NUMBER: _ClassVar[int]
    RUN_PLANS_FIELD_NUMBER: _ClassVar[int]
    SEND_TENSORS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CALL_BACK_FIELD_NUMBER: _ClassVar[int]
    CALLED_BACK_FIELD_NUMBER: _ClassVar[int]
    TRACED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    RAN_PLANS_FIELD_NUMBER: _ClassVar[int]
    METHOD_CALL_FIELD_NUMBER: _ClassVar[int]
    METHOD_RESULT_FIELD_NUMBER: _ClassVar[int]
    id: int
    incarnation: int
    status: _tensor_pb2.Status
    tensors: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.TensorMeta]
    timeout_s: float
    remaining_s: float
    server_info: ServerInfo
    register_step: RegisterStep
    register_plans: RegisterPlans
    registered: Registered
    run_step: RunStep
    run_plans: RunPlans
    send_tensors: SendTensors
    cancel: Cancel
    release: Release
    call_back: CallBack
    called_back: CalledBack
    traced: Traced
    ping: Ping
    ran_plans: RanPlans
    method_call: MethodCall
    method_result: MethodResult
    def __init__(self, id: _Optional[int] = ..., incarnation: _Optional[int] = ..., status: _Optional[_Union[_tensor_pb2.Status, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[_tensor_pb2.TensorMeta, _Mapping]]] = ..., timeout_s: _Optional[float] = ..., remaining_s: _Optional[float] = ..., server_info: _Optional[_Union[ServerInfo, _Mapping]] = ..., register_step: _Optional[_Union[RegisterStep, _Mapping]] = ..., register_plans: _Optional[_Union[RegisterPlans, _Mapping]] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., run_step: _Optional[_Union[RunStep, _Mapping]] = ..., run_plans: _Optional[_Union[RunPlans, _Mapping]] = ..., send_tensors: _Optional[_Union[SendTensors, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., call_back: _Optional[_Union[CallBack, _Mapping]] = ..., called_back: _Optional[_Union[CalledBack, _Mapping]] = ..., traced: _Optional[_Union[Traced, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., ran_plans: _Optional[_Union[RanPlans, _Mapping]] = ..., method_call: _Optional[_Union[MethodCall, _Mapping]] = ..., method_result: _Optional[_Union[MethodResult, _Mapping]] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("task", "incarnation", "cluster", "devices", "n_compiled", "session_defaults", "newest_version", "data_offer")
    class ClusterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    N_COMPILED_FIELD_NUMBER: _ClassVar[int]
    SESSION_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    DATA_OFFER_FIELD_NUMBER: _ClassVar[int]
    task: str
    incarnation: int
    cluster: _containers.ScalarMap[str, str]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    n_compiled: int
    session_defaults: bytes
    newest_version: int
    data_offer: DataOffer
    def __init__(self, task: _Optional[str] = ..., incarnation: _Optional[int] = ..., cluster: _Optional[_Mapping[str, str]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., n_compiled: _Optional[int] = ..., session_defaults: _Optional[bytes] = ..., newest_version: _Optional[int] = ..., data_offer: _Optional[_Union[DataOffer, _Mapping]] = ...) -> None: ...

class DataOffer(_message.Message):
    __slots__ = ("path", "boot_id", "nonce", "port")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    path: str
    boot_id: str
    nonce: bytes
    port: int
    def __init__(self, path: _Optional[str] = ..., boot_id: _Optional[str] = ..., nonce: _Optional[bytes] = ..., port: _Optional[int] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("name", "platform", "incarnation", "transport", "memory_limit_bytes", "file_system")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    platform: str
    incarnation: int
    transport: str
    memory_limit_bytes: int
    file_system: str
    def __init__(self, name: _Optional[str] = ..., platform: _Optional[str] = ..., incarnation: _Optional[int] = ..., transport: _Optional[str] = ..., memory_limit_bytes: _Optional[int] = ..., file_system: _Optional[str] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class RegisterStep(_message.Message):
    __slots__ = ("plans", "n_fetches", "artifacts", "connect_timeout_s", "restarted")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    N_FETCHES_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    RESTARTED_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[_plan_pb2.Plan]
    n_fetches: int
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    connect_timeout_s: float
    restarted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, plans: _Optional[_Iterable[_Union[_plan_pb2.Plan, _Mapping]]] = ..., n_fetches: _Optional[int] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., connect_timeout_s: _Optional[float] = ..., restarted: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterPlans(_message.Message):
    __slots__ = ("plans", "artifacts", "is_restartable", "claim", "owner")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    IS_RESTARTABLE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[_plan_pb2.Plan]
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    is_restartable: bool
    claim: Claim
    owner: StepOwner
    def __init__(self, plans: _Optional[_Iterable[_Union[_plan_pb2.Plan, _Mapping]]] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., is_restartable: bool = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., owner: _Optional[_Union[StepOwner, _Mapping]] = ...) -> None: ...

class StepOwner(_message.Message):
    __slots__ = ("session", "user")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    session: int
    user: str
    def __init__(self, session: _Optional[int] = ..., user: _Optional[str] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("handle", "missing", "n_bytes")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    N_BYTES_FIELD_NUMBER: _ClassVar[int]
    handle: int
    missing: _containers.RepeatedScalarFieldContainer[str]
    n_bytes: int
    def __init__(self, handle: _Optional[int] = ..., missing: _Optional[_Iterable[str]] = ..., n_bytes: _Optional[int] = ...) -> None: ...

class RunStep(_message.Message):
    __slots__ = ("handle", "calls_back", "is_traced", "effect", "step")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CALLS_BACK_FIELD_NUMBER: _ClassVar[int]
    IS_TRACED_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    handle: int
    calls_back: bool
    is_traced: bool
    effect: Effect
    step: int
    def __init__(self, handle: _Optional[int] = ..., calls_back: bool = ..., is_traced: bool = ..., effect: _Optional[_Union[Effect, _Mapping]] = ..., step: _Optional[int] = ...) -> None: ...

class Effect(_message.Message):
    __slots__ = ("client", "epoch", "sequence", "attempt", "acknowledged", "is_saved")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    IS_SAVED_FIELD_NUMBER: _ClassVar[int]
    client: str
    epoch: int
    sequence: int
    attempt: int
    acknowledged: int
    is_saved: bool
    def __init__(self, client: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., attempt: _Optional[int] = ..., acknowledged: _Optional[int] = ..., is_saved: bool = ...) -> None: ...

class CallBack(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class CalledBack(_message.Message):
    __slots__ = ("call", "number")
    CALL_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    call: int
    number: int
    def __init__(self, call: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class RunPlans(_message.Message):
    __slots__ = ("step", "handle", "is_traced", "effect", "is_alone", "participants", "asker")
    STEP_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    IS_TRACED_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    IS_ALONE_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    ASKER_FIELD_NUMBER: _ClassVar[int]
    step: int
    handle: int
    is_traced: bool
    effect: Effect
    is_alone: bool
    participants: _containers.RepeatedScalarFieldContainer[str]
    asker: str
    def __init__(self, step: _Optional[int] = ..., handle: _Optional[int] = ..., is_traced: bool = ..., effect: _Optional[_Union[Effect, _Mapping]] = ..., is_alone: bool = ..., participants: _Optional[_Iterable[str]] = ..., asker: _Optional[str] = ...) -> None: ...

class RanPlans(_message.Message):
    __slots__ = ("edges", "signals")
    EDGES_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    edges: _containers.RepeatedScalarFieldContainer[int]
    signals: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, edges: _Optional[_Iterable[int]] = ..., signals: _Optional[_Iterable[int]] = ...) -> None: ...

class Traced(_message.Message):
    __slots__ = ("n_records", "begun_s", "ended_s", "clock", "ran")
    N_RECORDS_FIELD_NUMBER: _ClassVar[int]
    BEGUN_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_S_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    RAN_FIELD_NUMBER: _ClassVar[int]
    n_records: int
    begun_s: float
    ended_s: float
    clock: str
    ran: RanPlans
    def __init__(self, n_records: _Optional[int] = ..., begun_s: _Optional[float] = ..., ended_s: _Optional[float] = ..., clock: _Optional[str] = ..., ran: _Optional[_Union[RanPlans, _Mapping]] = ...) -> None: ...

class SendTensors(_message.Message):
    __slots__ = ("step", "edges", "signals")
    STEP_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    step: int
    edges: _containers.RepeatedScalarFieldContainer[int]
    signals: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step: _Optional[int] = ..., edges: _Optional[_Iterable[int]] = ..., signals: _Optional[_Iterable[int]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Release(_message.Message):
    __slots__ = ("handles",)
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handles: _Optional[_Iterable[int]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("name", "epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: int
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class MethodCall(_message.Message):
    __slots__ = ("name", "arguments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments: bytes
    def __init__(self, name: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class MethodResult(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...
