from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TensorMeta(_message.Message):
    __slots__ = ("dtype", "shape")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "op", "task", "error_class", "moved", "devices", "is_rolled_back")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    IS_ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    op: str
    task: str
    error_class: str
    moved: _containers.RepeatedCompositeFieldContainer[StateId]
    devices: _containers.RepeatedScalarFieldContainer[str]
    is_rolled_back: bool
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., op: _Optional[str] = ..., task: _Optional[str] = ..., error_class: _Optional[str] = ..., moved: _Optional[_Iterable[_Union[StateId, _Mapping]]] = ..., devices: _Optional[_Iterable[str]] = ..., is_rolled_back: bool = ...) -> None: ...

class StateId(_message.Message):
    __slots__ = ("device", "kind", "container", "name", "owner")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    device: str
    kind: str
    container: str
    name: str
    owner: str
    def __init__(self, device: _Optional[str] = ..., kind: _Optional[str] = ..., container: _Optional[str] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...
