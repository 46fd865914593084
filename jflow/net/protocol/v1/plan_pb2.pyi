from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VariableSpec(_message.Message):
    __slots__ = ("container", "name", "dtype", "shape", "sharding")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHARDING_FIELD_NUMBER: _ClassVar[int]
    container: str
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    sharding: str
    def __init__(self, container: _Optional[str] = ..., name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., sharding: _Optional[str] = ...) -> None: ...

class Feed(_message.Message):
    __slots__ = ("index", "slot")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    index: int
    slot: int
    def __init__(self, index: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class Recv(_message.Message):
    __slots__ = ("edge", "source", "slot")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    edge: int
    source: str
    slot: int
    def __init__(self, edge: _Optional[int] = ..., source: _Optional[str] = ..., slot: _Optional[int] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("digest", "constants", "donated")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    DONATED_FIELD_NUMBER: _ClassVar[int]
    digest: str
    constants: _containers.RepeatedScalarFieldContainer[str]
    donated: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, digest: _Optional[str] = ..., constants: _Optional[_Iterable[str]] = ..., donated: _Optional[_Iterable[int]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("variable", "slot")
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    variable: int
    slot: int
    def __init__(self, variable: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class Defaulted(_message.Message):
    __slots__ = ("variable", "slot", "default")
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    variable: int
    slot: int
    default: int
    def __init__(self, variable: _Optional[int] = ..., slot: _Optional[int] = ..., default: _Optional[int] = ...) -> None: ...

class InputSize(_message.Message):
    __slots__ = ("input", "dimension", "tensor")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    input: int
    dimension: int
    tensor: str
    def __init__(self, input: _Optional[int] = ..., dimension: _Optional[int] = ..., tensor: _Optional[str] = ...) -> None: ...

class EqualSizes(_message.Message):
    __slots__ = ("op", "first", "second", "size")
    OP_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    op: str
    first: InputSize
    second: InputSize
    size: int
    def __init__(self, op: _Optional[str] = ..., first: _Optional[_Union[InputSize, _Mapping]] = ..., second: _Optional[_Union[InputSize, _Mapping]] = ..., size: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("program", "reads", "inputs", "writes", "outputs", "before", "after", "initializes", "op", "defaults", "sizes")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    INITIALIZES_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    program: Program
    reads: _containers.RepeatedScalarFieldContainer[int]
    inputs: _containers.RepeatedScalarFieldContainer[int]
    writes: _containers.RepeatedScalarFieldContainer[int]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    before: _containers.RepeatedCompositeFieldContainer[Held]
    after: _containers.RepeatedCompositeFieldContainer[Held]
    initializes: _containers.RepeatedScalarFieldContainer[int]
    op: str
    defaults: _containers.RepeatedCompositeFieldContainer[Defaulted]
    sizes: _containers.RepeatedCompositeFieldContainer[EqualSizes]
    def __init__(self, program: _Optional[_Union[Program, _Mapping]] = ..., reads: _Optional[_Iterable[int]] = ..., inputs: _Optional[_Iterable[int]] = ..., writes: _Optional[_Iterable[int]] = ..., outputs: _Optional[_Iterable[int]] = ..., before: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., initializes: _Optional[_Iterable[int]] = ..., op: _Optional[str] = ..., defaults: _Optional[_Iterable[_Union[Defaulted, _Mapping]]] = ..., sizes: _Optional[_Iterable[_Union[EqualSizes, _Mapping]]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("function", "inputs", "outputs", "constants", "resources", "attributes", "op", "variables")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    function: str
    inputs: _containers.RepeatedScalarFieldContainer[int]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    constants: _containers.RepeatedScalarFieldContainer[str]
    resources: _containers.RepeatedScalarFieldContainer[int]
    attributes: bytes
    op: str
    variables: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, function: _Optional[str] = ..., inputs: _Optional[_Iterable[int]] = ..., outputs: _Optional[_Iterable[int]] = ..., constants: _Optional[_Iterable[str]] = ..., resources: _Optional[_Iterable[int]] = ..., attributes: _Optional[bytes] = ..., op: _Optional[str] = ..., variables: _Optional[_Iterable[int]] = ...) -> None: ...

class Send(_message.Message):
    __slots__ = ("edge", "target", "slot")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    edge: int
    target: str
    slot: int
    def __init__(self, edge: _Optional[int] = ..., target: _Optional[str] = ..., slot: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("slot", "index")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    slot: int
    index: int
    def __init__(self, slot: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class Carry(_message.Message):
    __slots__ = ("init", "feed", "fetch", "final")
    INIT_FIELD_NUMBER: _ClassVar[int]
    FEED_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    init: int
    feed: int
    fetch: int
    final: int
    def __init__(self, init: _Optional[int] = ..., feed: _Optional[int] = ..., fetch: _Optional[int] = ..., final: _Optional[int] = ...) -> None: ...

class Const(_message.Message):
    __slots__ = ("slot", "feed")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    FEED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    feed: int
    def __init__(self, slot: _Optional[int] = ..., feed: _Optional[int] = ...) -> None: ...

class Loop(_message.Message):
    __slots__ = ("number", "body", "trips", "window", "stride", "consts", "carries", "index", "is_reversed", "op", "predicate", "cycle")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TRIPS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    CONSTS_FIELD_NUMBER: _ClassVar[int]
    CARRIES_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IS_REVERSED_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    number: int
    body: Plan
    trips: int
    window: int
    stride: int
    consts: _containers.RepeatedCompositeFieldContainer[Const]
    carries: _containers.RepeatedCompositeFieldContainer[Carry]
    index: int
    is_reversed: bool
    op: str
    predicate: int
    cycle: int
    def __init__(self, number: _Optional[int] = ..., body: _Optional[_Union[Plan, _Mapping]] = ..., trips: _Optional[int] = ..., window: _Optional[int] = ..., stride: _Optional[int] = ..., consts: _Optional[_Iterable[_Union[Const, _Mapping]]] = ..., carries: _Optional[_Iterable[_Union[Carry, _Mapping]]] = ..., index: _Optional[int] = ..., is_reversed: bool = ..., op: _Optional[str] = ..., predicate: _Optional[int] = ..., cycle: _Optional[int] = ...) -> None: ...

class Instruction(_message.Message):
    __slots__ = ("feed", "recv", "run", "send", "fetch", "call", "loop")
    FEED_FIELD_NUMBER: _ClassVar[int]
    RECV_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    feed: Feed
    recv: Recv
    run: Run
    send: Send
    fetch: Fetch
    call: Call
    loop: Loop
    def __init__(self, feed: _Optional[_Union[Feed, _Mapping]] = ..., recv: _Optional[_Union[Recv, _Mapping]] = ..., run: _Optional[_Union[Run, _Mapping]] = ..., send: _Optional[_Union[Send, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., loop: _Optional[_Union[Loop, _Mapping]] = ...) -> None: ...

class ResourceSpec(_message.Message):
    __slots__ = ("kind", "container", "name", "owner", "definition")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    container: str
    name: str
    owner: str
    definition: bytes
    def __init__(self, kind: _Optional[str] = ..., container: _Optional[str] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., definition: _Optional[bytes] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("instructions", "after")
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    instructions: _containers.RepeatedCompositeFieldContainer[Instruction]
    after: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, instructions: _Optional[_Iterable[_Union[Instruction, _Mapping]]] = ..., after: _Optional[_Iterable[int]] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("device", "n_slots", "variables", "stages", "resources", "unordered")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    N_SLOTS_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    UNORDERED_FIELD_NUMBER: _ClassVar[int]
    device: str
    n_slots: int
    variables: _containers.RepeatedCompositeFieldContainer[VariableSpec]
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceSpec]
    unordered: bool
    def __init__(self, device: _Optional[str] = ..., n_slots: _Optional[int] = ..., variables: _Optional[_Iterable[_Union[VariableSpec, _Mapping]]] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[ResourceSpec, _Mapping]]] = ..., unordered: bool = ...) -> None: ...
