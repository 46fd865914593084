"""Tensors, dtypes and shapes as TensorFlow's messages."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.base.values import Array, Dtype
from jflow.state.records.v1 import tensor_pb2 as pb

_NUMBERS: dict[str, pb.DataType] = {
    name.removeprefix("DT_"): getattr(pb, name) for name, _ in pb.DataType.items()
}
_RENAMED = {"float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE"}

_INTEGERS = ("int2", "int4", "int8", "int16", "int32", "uint2", "uint4", "uint8", "uint16")

_FIELDS = {
    "bool": "bool_val",
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "string": "string_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    **dict.fromkeys(_INTEGERS, "int_val"),
}
"""The field of the values, by dtype; those of other dtypes are bytes."""


def dtype_number(dtype: Dtype) -> pb.DataType:
    """Returns TensorFlow's number of a dtype; DT_INVALID, which is 0, if it has none."""
    return _NUMBERS.get(_RENAMED.get(dtype.name, dtype.name.upper()), pb.DT_INVALID)


def shape_proto(shape: Sequence[int | None] | None) -> pb.TensorShapeProto:
    """Returns the message of a shape, in which None is an unknown size, or an unknown rank."""
    if shape is None:
        return pb.TensorShapeProto(unknown_rank=True)
    sizes = (-1 if size is None else size for size in shape)
    return pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in sizes])


def tensor_proto(values: Array, dtype: Dtype) -> pb.TensorProto:
    """Returns the message of a tensor.

    Args:
      values: its physical form, of its own shape.
      dtype: its dtype, which TensorFlow has too.
    """
    tensor = pb.TensorProto(dtype=dtype_number(dtype), tensor_shape=shape_proto(values.shape))
    field = _FIELDS.get(dtype.name)
    if field is None:
        tensor.tensor_content = values.tobytes()
    else:
        getattr(tensor, field).extend(values.reshape(-1).tolist())
    return tensor
