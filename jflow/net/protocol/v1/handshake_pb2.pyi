from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("nonce", "cluster", "task", "incarnation", "address", "caller", "caller_address", "machine", "token")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CALLER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    cluster: str
    task: str
    incarnation: int
    address: str
    caller: str
    caller_address: str
    machine: str
    token: str
    def __init__(self, nonce: _Optional[bytes] = ..., cluster: _Optional[str] = ..., task: _Optional[str] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., caller: _Optional[str] = ..., caller_address: _Optional[str] = ..., machine: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...
