from jflow.protocol.v1 import plan_pb2 as _plan_pb2
from jflow.protocol.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("id", "incarnation", "status", "tensors", "timeout_s", "remaining_s", "server_info", "list_devices", "device_list", "register_step", "register_plans", "registered", "run_step", "run_plans", "send_tensors", "cancel", "reset", "release", "call_back", "called_back", "traced", "ping", "claim", "claimed", "ran_plans", "move_state", "hold_state", "save_state", "saved_state", "put_state", "end_hold", "get_outcome", "outcome", "save_checkpoint", "restore_checkpoint", "save_report", "pause_steps", "resume_steps", "resumed", "take_snapshot", "sized", "write_shard", "shard_written", "commit_checkpoint", "end_save", "load_checkpoint", "put_loaded", "forget_loaded", "close_writes", "take_over_effect", "earlier_effect", "decide_effect", "inspect", "inspected", "inspect_tasks", "task_reports", "stop", "stop_tasks", "find_waits", "found_waits")
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    SERVER_INFO_FIELD_NUMBER: _ClassVar[int]
    LIST_DEVICES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_LIST_FIELD_NUMBER: _ClassVar[int]
    REGISTER_STEP_FIELD_NUMBER: _ClassVar[int]
    REGISTER_PLANS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    RUN_STEP_FIELD_NUMBER: _ClassVar[int]
    RUN_PLANS_FIELD_NUMBER: _ClassVar[int]
    SEND_TENSORS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CALL_BACK_FIELD_NUMBER: _ClassVar[int]
    CALLED_BACK_FIELD_NUMBER: _ClassVar[int]
    TRACED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    RAN_PLANS_FIELD_NUMBER: _ClassVar[int]
    MOVE_STATE_FIELD_NUMBER: _ClassVar[int]
    HOLD_STATE_FIELD_NUMBER: _ClassVar[int]
    SAVE_STATE_FIELD_NUMBER: _ClassVar[int]
    SAVED_STATE_FIELD_NUMBER: _ClassVar[int]
    PUT_STATE_FIELD_NUMBER: _ClassVar[int]
    END_HOLD_FIELD_NUMBER: _ClassVar[int]
    GET_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SAVE_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SAVE_REPORT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_STEPS_FIELD_NUMBER: _ClassVar[int]
    RESUME_STEPS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    TAKE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SIZED_FIELD_NUMBER: _ClassVar[int]
    WRITE_SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARD_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    END_SAVE_FIELD_NUMBER: _ClassVar[int]
    LOAD_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PUT_LOADED_FIELD_NUMBER: _ClassVar[int]
    FORGET_LOADED_FIELD_NUMBER: _ClassVar[int]
    CLOSE_WRITES_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVER_EFFECT_FIELD_NUMBER: _ClassVar[int]
    EARLIER_EFFECT_FIELD_NUMBER: _ClassVar[int]
    DECIDE_EFFECT_FIELD_NUMBER: _ClassVar[int]
    INSPECT_FIELD_NUMBER: _ClassVar[int]
    INSPECTED_FIELD_NUMBER: _ClassVar[int]
    INSPECT_TASKS_FIELD_NUMBER: _ClassVar[int]
    TASK_REPORTS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TASKS_FIELD_NUMBER: _ClassVar[int]
    FIND_WAITS_FIELD_NUMBER: _ClassVar[int]
    FOUND_WAITS_FIELD_NUMBER: _ClassVar[int]
    id: int
    incarnation: int
    status: _tensor_pb2.Status
    tensors: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.TensorMeta]
    timeout_s: float
    remaining_s: float
    server_info: ServerInfo
    list_devices: ListDevices
    device_list: DeviceList
    register_step: RegisterStep
    register_plans: RegisterPlans
    registered: Registered
    run_step: RunStep
    run_plans: RunPlans
    send_tensors: SendTensors
    cancel: Cancel
    reset: Reset
    release: Release
    call_back: CallBack
    called_back: CalledBack
    traced: Traced
    ping: Ping
    claim: Claim
    claimed: Claimed
    ran_plans: RanPlans
    move_state: MoveState
    hold_state: HoldState
    save_state: SaveState
    saved_state: SavedState
    put_state: PutState
    end_hold: EndHold
    get_outcome: GetOutcome
    outcome: Outcome
    save_checkpoint: SaveCheckpoint
    restore_checkpoint: RestoreCheckpoint
    save_report: SaveReport
    pause_steps: PauseSteps
    resume_steps: ResumeSteps
    resumed: Resumed
    take_snapshot: TakeSnapshot
    sized: Sized
    write_shard: WriteShard
    shard_written: ShardWritten
    commit_checkpoint: CommitCheckpoint
    end_save: EndSave
    load_checkpoint: LoadCheckpoint
    put_loaded: PutLoaded
    forget_loaded: ForgetLoaded
    close_writes: CloseWrites
    take_over_effect: TakeOverEffect
    earlier_effect: EarlierEffect
    decide_effect: DecideEffect
    inspect: Inspect
    inspected: Inspected
    inspect_tasks: InspectTasks
    task_reports: TaskReports
    stop: Stop
    stop_tasks: StopTasks
    find_waits: FindWaits
    found_waits: FoundWaits
    def __init__(self, id: _Optional[int] = ..., incarnation: _Optional[int] = ..., status: _Optional[_Union[_tensor_pb2.Status, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[_tensor_pb2.TensorMeta, _Mapping]]] = ..., timeout_s: _Optional[float] = ..., remaining_s: _Optional[float] = ..., server_info: _Optional[_Union[ServerInfo, _Mapping]] = ..., list_devices: _Optional[_Union[ListDevices, _Mapping]] = ..., device_list: _Optional[_Union[DeviceList, _Mapping]] = ..., register_step: _Optional[_Union[RegisterStep, _Mapping]] = ..., register_plans: _Optional[_Union[RegisterPlans, _Mapping]] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., run_step: _Optional[_Union[RunStep, _Mapping]] = ..., run_plans: _Optional[_Union[RunPlans, _Mapping]] = ..., send_tensors: _Optional[_Union[SendTensors, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., call_back: _Optional[_Union[CallBack, _Mapping]] = ..., called_back: _Optional[_Union[CalledBack, _Mapping]] = ..., traced: _Optional[_Union[Traced, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., claimed: _Optional[_Union[Claimed, _Mapping]] = ..., ran_plans: _Optional[_Union[RanPlans, _Mapping]] = ..., move_state: _Optional[_Union[MoveState, _Mapping]] = ..., hold_state: _Optional[_Union[HoldState, _Mapping]] = ..., save_state: _Optional[_Union[SaveState, _Mapping]] = ..., saved_state: _Optional[_Union[SavedState, _Mapping]] = ..., put_state: _Optional[_Union[PutState, _Mapping]] = ..., end_hold: _Optional[_Union[EndHold, _Mapping]] = ..., get_outcome: _Optional[_Union[GetOutcome, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., save_checkpoint: _Optional[_Union[SaveCheckpoint, _Mapping]] = ..., restore_checkpoint: _Optional[_Union[RestoreCheckpoint, _Mapping]] = ..., save_report: _Optional[_Union[SaveReport, _Mapping]] = ..., pause_steps: _Optional[_Union[PauseSteps, _Mapping]] = ..., resume_steps: _Optional[_Union[ResumeSteps, _Mapping]] = ..., resumed: _Optional[_Union[Resumed, _Mapping]] = ..., take_snapshot: _Optional[_Union[TakeSnapshot, _Mapping]] = ..., sized: _Optional[_Union[Sized, _Mapping]] = ..., write_shard: _Optional[_Union[WriteShard, _Mapping]] = ..., shard_written: _Optional[_Union[ShardWritten, _Mapping]] = ..., commit_checkpoint: _Optional[_Union[CommitCheckpoint, _Mapping]] = ..., end_save: _Optional[_Union[EndSave, _Mapping]] = ..., load_checkpoint: _Optional[_Union[LoadCheckpoint, _Mapping]] = ..., put_loaded: _Optional[_Union[PutLoaded, _Mapping]] = ..., forget_loaded: _Optional[_Union[ForgetLoaded, _Mapping]] = ..., close_writes: _Optional[_Union[CloseWrites, _Mapping]] = ..., take_over_effect: _Optional[_Union[TakeOverEffect, _Mapping]] = ..., earlier_effect: _Optional[_Union[EarlierEffect, _Mapping]] = ..., decide_effect: _Optional[_Union[DecideEffect, _Mapping]] = ..., inspect: _Optional[_Union[Inspect, _Mapping]] = ..., inspected: _Optional[_Union[Inspected, _Mapping]] = ..., inspect_tasks: _Optional[_Union[InspectTasks, _Mapping]] = ..., task_reports: _Optional[_Union[TaskReports, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., stop_tasks: _Optional[_Union[StopTasks, _Mapping]] = ..., find_waits: _Optional[_Union[FindWaits, _Mapping]] = ..., found_waits: _Optional[_Union[FoundWaits, _Mapping]] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("task", "incarnation", "cluster", "devices", "n_compiled", "session_defaults", "data_offer")
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
    DATA_OFFER_FIELD_NUMBER: _ClassVar[int]
    task: str
    incarnation: int
    cluster: _containers.ScalarMap[str, str]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    n_compiled: int
    session_defaults: bytes
    data_offer: DataOffer
    def __init__(self, task: _Optional[str] = ..., incarnation: _Optional[int] = ..., cluster: _Optional[_Mapping[str, str]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., n_compiled: _Optional[int] = ..., session_defaults: _Optional[bytes] = ..., data_offer: _Optional[_Union[DataOffer, _Mapping]] = ...) -> None: ...

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

class ListDevices(_message.Message):
    __slots__ = ("tasks", "connect_timeout_s", "only_up")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    ONLY_UP_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    connect_timeout_s: float
    only_up: bool
    def __init__(self, tasks: _Optional[_Iterable[str]] = ..., connect_timeout_s: _Optional[float] = ..., only_up: bool = ...) -> None: ...

class DeviceList(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("plans", "artifacts", "is_restartable", "claim")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    IS_RESTARTABLE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[_plan_pb2.Plan]
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    is_restartable: bool
    claim: Claim
    def __init__(self, plans: _Optional[_Iterable[_Union[_plan_pb2.Plan, _Mapping]]] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., is_restartable: bool = ..., claim: _Optional[_Union[Claim, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("handle", "calls_back", "is_traced", "effect")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CALLS_BACK_FIELD_NUMBER: _ClassVar[int]
    IS_TRACED_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    handle: int
    calls_back: bool
    is_traced: bool
    effect: Effect
    def __init__(self, handle: _Optional[int] = ..., calls_back: bool = ..., is_traced: bool = ..., effect: _Optional[_Union[Effect, _Mapping]] = ...) -> None: ...

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

class TakeOverEffect(_message.Message):
    __slots__ = ("effect",)
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    effect: Effect
    def __init__(self, effect: _Optional[_Union[Effect, _Mapping]] = ...) -> None: ...

class EarlierEffect(_message.Message):
    __slots__ = ("phase", "attempt", "participants", "has_results", "error")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    HAS_RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    phase: int
    attempt: int
    participants: _containers.RepeatedScalarFieldContainer[str]
    has_results: bool
    error: _tensor_pb2.Status
    def __init__(self, phase: _Optional[int] = ..., attempt: _Optional[int] = ..., participants: _Optional[_Iterable[str]] = ..., has_results: bool = ..., error: _Optional[_Union[_tensor_pb2.Status, _Mapping]] = ...) -> None: ...

class DecideEffect(_message.Message):
    __slots__ = ("effect", "by", "is_commit", "has_results")
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    IS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    HAS_RESULTS_FIELD_NUMBER: _ClassVar[int]
    effect: Effect
    by: int
    is_commit: bool
    has_results: bool
    def __init__(self, effect: _Optional[_Union[Effect, _Mapping]] = ..., by: _Optional[int] = ..., is_commit: bool = ..., has_results: bool = ...) -> None: ...

class Traced(_message.Message):
    __slots__ = ("n_records", "begun_s", "ended_s", "clock")
    N_RECORDS_FIELD_NUMBER: _ClassVar[int]
    BEGUN_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_S_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    n_records: int
    begun_s: float
    ended_s: float
    clock: str
    def __init__(self, n_records: _Optional[int] = ..., begun_s: _Optional[float] = ..., ended_s: _Optional[float] = ..., clock: _Optional[str] = ...) -> None: ...

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

class Claim(_message.Message):
    __slots__ = ("name", "epoch", "connect_timeout_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: int
    connect_timeout_s: float
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[int] = ..., connect_timeout_s: _Optional[float] = ...) -> None: ...

class Claimed(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("containers", "connect_timeout_s", "tasks")
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    containers: _containers.RepeatedScalarFieldContainer[str]
    connect_timeout_s: float
    tasks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, containers: _Optional[_Iterable[str]] = ..., connect_timeout_s: _Optional[float] = ..., tasks: _Optional[_Iterable[str]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("handles",)
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handles: _Optional[_Iterable[int]] = ...) -> None: ...

class MoveState(_message.Message):
    __slots__ = ("states", "target", "hold_s", "connect_timeout_s")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    HOLD_S_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.StateId]
    target: str
    hold_s: float
    connect_timeout_s: float
    def __init__(self, states: _Optional[_Iterable[_Union[_tensor_pb2.StateId, _Mapping]]] = ..., target: _Optional[str] = ..., hold_s: _Optional[float] = ..., connect_timeout_s: _Optional[float] = ...) -> None: ...

class HoldState(_message.Message):
    __slots__ = ("hold", "states", "target", "seconds")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    hold: str
    states: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.StateId]
    target: str
    seconds: float
    def __init__(self, hold: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_tensor_pb2.StateId, _Mapping]]] = ..., target: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class SaveState(_message.Message):
    __slots__ = ("hold",)
    HOLD_FIELD_NUMBER: _ClassVar[int]
    hold: str
    def __init__(self, hold: _Optional[str] = ...) -> None: ...

class SavedState(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    def __init__(self, record: _Optional[bytes] = ...) -> None: ...

class PutState(_message.Message):
    __slots__ = ("hold", "record")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    hold: str
    record: bytes
    def __init__(self, hold: _Optional[str] = ..., record: _Optional[bytes] = ...) -> None: ...

class EndHold(_message.Message):
    __slots__ = ("hold", "end")
    class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KEPT: _ClassVar[EndHold.End]
        MOVED: _ClassVar[EndHold.End]
        UNKNOWN: _ClassVar[EndHold.End]
    KEPT: EndHold.End
    MOVED: EndHold.End
    UNKNOWN: EndHold.End
    HOLD_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    hold: str
    end: EndHold.End
    def __init__(self, hold: _Optional[str] = ..., end: _Optional[_Union[EndHold.End, str]] = ...) -> None: ...

class GetOutcome(_message.Message):
    __slots__ = ("hold",)
    HOLD_FIELD_NUMBER: _ClassVar[int]
    hold: str
    def __init__(self, hold: _Optional[str] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("has_moved",)
    HAS_MOVED_FIELD_NUMBER: _ClassVar[int]
    has_moved: bool
    def __init__(self, has_moved: bool = ...) -> None: ...

class SaveCheckpoint(_message.Message):
    __slots__ = ("prefix", "items", "is_consistent", "about", "connect_timeout_s")
    class AboutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    IS_CONSISTENT_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    items: bytes
    is_consistent: bool
    about: _containers.ScalarMap[str, str]
    connect_timeout_s: float
    def __init__(self, prefix: _Optional[str] = ..., items: _Optional[bytes] = ..., is_consistent: bool = ..., about: _Optional[_Mapping[str, str]] = ..., connect_timeout_s: _Optional[float] = ...) -> None: ...

class RestoreCheckpoint(_message.Message):
    __slots__ = ("prefix", "items", "connect_timeout_s")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    items: bytes
    connect_timeout_s: float
    def __init__(self, prefix: _Optional[str] = ..., items: _Optional[bytes] = ..., connect_timeout_s: _Optional[float] = ...) -> None: ...

class SaveReport(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    def __init__(self, record: _Optional[bytes] = ...) -> None: ...

class PauseSteps(_message.Message):
    __slots__ = ("name", "states", "seconds", "is_exclusive", "masters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    IS_EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    MASTERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    states: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.StateId]
    seconds: float
    is_exclusive: bool
    masters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_tensor_pb2.StateId, _Mapping]]] = ..., seconds: _Optional[float] = ..., is_exclusive: bool = ..., masters: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeSteps(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Resumed(_message.Message):
    __slots__ = ("has_lasted",)
    HAS_LASTED_FIELD_NUMBER: _ClassVar[int]
    has_lasted: bool
    def __init__(self, has_lasted: bool = ...) -> None: ...

class TakeSnapshot(_message.Message):
    __slots__ = ("name", "items", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    items: bytes
    seconds: float
    def __init__(self, name: _Optional[str] = ..., items: _Optional[bytes] = ..., seconds: _Optional[float] = ...) -> None: ...

class Sized(_message.Message):
    __slots__ = ("n_bytes",)
    N_BYTES_FIELD_NUMBER: _ClassVar[int]
    n_bytes: int
    def __init__(self, n_bytes: _Optional[int] = ...) -> None: ...

class WriteShard(_message.Message):
    __slots__ = ("name", "prefix")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    name: str
    prefix: str
    def __init__(self, name: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class ShardWritten(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    def __init__(self, record: _Optional[bytes] = ...) -> None: ...

class CommitCheckpoint(_message.Message):
    __slots__ = ("name", "prefix", "shards", "about")
    class AboutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    prefix: str
    shards: _containers.RepeatedScalarFieldContainer[bytes]
    about: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., prefix: _Optional[str] = ..., shards: _Optional[_Iterable[bytes]] = ..., about: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EndSave(_message.Message):
    __slots__ = ("name", "is_committed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    is_committed: bool
    def __init__(self, name: _Optional[str] = ..., is_committed: bool = ...) -> None: ...

class LoadCheckpoint(_message.Message):
    __slots__ = ("name", "prefix", "items")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    prefix: str
    items: bytes
    def __init__(self, name: _Optional[str] = ..., prefix: _Optional[str] = ..., items: _Optional[bytes] = ...) -> None: ...

class CloseWrites(_message.Message):
    __slots__ = ("name", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    seconds: float
    def __init__(self, name: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class PutLoaded(_message.Message):
    __slots__ = ("name", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    seconds: float
    def __init__(self, name: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class ForgetLoaded(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Inspect(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class Inspected(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: bytes
    def __init__(self, status: _Optional[bytes] = ...) -> None: ...

class InspectTasks(_message.Message):
    __slots__ = ("request", "tasks", "seconds")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    tasks: _containers.RepeatedScalarFieldContainer[str]
    seconds: float
    def __init__(self, request: _Optional[bytes] = ..., tasks: _Optional[_Iterable[str]] = ..., seconds: _Optional[float] = ...) -> None: ...

class TaskReports(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    def __init__(self, reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("task", "address", "state", "reason")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task: str
    address: str
    state: str
    reason: str
    def __init__(self, task: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopTasks(_message.Message):
    __slots__ = ("tasks", "seconds")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedScalarFieldContainer[str]
    seconds: float
    def __init__(self, tasks: _Optional[_Iterable[str]] = ..., seconds: _Optional[float] = ...) -> None: ...

class FindWaits(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FoundWaits(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bytes
    def __init__(self, found: _Optional[bytes] = ...) -> None: ...
