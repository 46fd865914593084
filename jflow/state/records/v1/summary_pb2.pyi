from jflow.state.records.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Summary(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedCompositeFieldContainer[SummaryValue]
    def __init__(self, value: _Optional[_Iterable[_Union[SummaryValue, _Mapping]]] = ...) -> None: ...

class SummaryValue(_message.Message):
    __slots__ = ("tag", "simple_value", "image", "histo", "tensor", "metadata")
    TAG_FIELD_NUMBER: _ClassVar[int]
    SIMPLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    HISTO_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    tag: str
    simple_value: float
    image: SummaryImage
    histo: Histogram
    tensor: _tensor_pb2.TensorProto
    metadata: SummaryMetadata
    def __init__(self, tag: _Optional[str] = ..., simple_value: _Optional[float] = ..., image: _Optional[_Union[SummaryImage, _Mapping]] = ..., histo: _Optional[_Union[Histogram, _Mapping]] = ..., tensor: _Optional[_Union[_tensor_pb2.TensorProto, _Mapping]] = ..., metadata: _Optional[_Union[SummaryMetadata, _Mapping]] = ...) -> None: ...

class SummaryImage(_message.Message):
    __slots__ = ("height", "width", "colorspace", "encoded_image_string")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    COLORSPACE_FIELD_NUMBER: _ClassVar[int]
    ENCODED_IMAGE_STRING_FIELD_NUMBER: _ClassVar[int]
    height: int
    width: int
    colorspace: int
    encoded_image_string: bytes
    def __init__(self, height: _Optional[int] = ..., width: _Optional[int] = ..., colorspace: _Optional[int] = ..., encoded_image_string: _Optional[bytes] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("min", "max", "num", "sum", "sum_squares", "bucket_limit", "bucket")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    SUM_SQUARES_FIELD_NUMBER: _ClassVar[int]
    BUCKET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    bucket_limit: _containers.RepeatedScalarFieldContainer[float]
    bucket: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ..., num: _Optional[float] = ..., sum: _Optional[float] = ..., sum_squares: _Optional[float] = ..., bucket_limit: _Optional[_Iterable[float]] = ..., bucket: _Optional[_Iterable[float]] = ...) -> None: ...

class SummaryMetadata(_message.Message):
    __slots__ = ("plugin_data",)
    PLUGIN_DATA_FIELD_NUMBER: _ClassVar[int]
    plugin_data: Plugin
    def __init__(self, plugin_data: _Optional[_Union[Plugin, _Mapping]] = ...) -> None: ...

class Plugin(_message.Message):
    __slots__ = ("plugin_name", "content")
    PLUGIN_NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    plugin_name: str
    content: bytes
    def __init__(self, plugin_name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...
