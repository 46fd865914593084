"""Operations on strings and from strings to numbers, which run on the host of a task.

Inside a function of a `jflow.data.Dataset` they are plain functions: they take arrays, text or
bytes and return NumPy arrays; a scalar result is a NumPy scalar or `bytes`. They keep 64-bit
dtypes there, because no value goes to a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from jflow.base.values import (
    AbstractValue,
    Array,
    Dtype,
    HostArray,
    HostDtype,
    abstract,
    as_dtype,
    host_abstract,
    host_dtype,
    is_unranked,
    string,
    unknown_dim,
)
from jflow.client.ops.decoder_calls import graph_for, host_array, invoke, on_host, strings_of
from jflow.client.ops.slices import SparseTensor
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.graph.calls import on_any_rank, plain
from jflow.state.records import Column, Feature, VarLenFeature, as_columns

_INT64 = np.dtype(np.int64)


def _shape_of(value: Any) -> Any:
    """The shape of a tensor or of an array, which functions of a dataset have; None if unknown."""
    return value.aval.shape if isinstance(value, Tensor) else value.shape


def cast(x: Any, dtype: Any, name: str = "Cast") -> Tensor:
    """Converts numbers to another dtype, also those of tensors on the host.

    Args:
      x: a tensor or array of numbers or booleans.
      dtype: dtype of the result.
      name: name of the operation.

    Returns:
      dtype[*x.shape].

    Raises:
      TypeError: if either dtype is string.
    """
    graph = graph_for(x)
    if graph is None:
        array: Tensor = _cast_array(x, dtype)
        return array
    tensor = graph.as_tensor(x)
    wanted = as_dtype(dtype)
    if string in (tensor.dtype, wanted):
        raise TypeError(
            f"cast is for numbers, got {tensor!r} and {wanted.name}; "
            "use string_to_number or as_string"
        )
    if not isinstance(tensor.aval, HostArray):
        cast_: Tensor = graph.apply(lambda value: jnp.asarray(value, wanted), (tensor,), name=name)
        return cast_
    if is_unranked(tensor.aval):
        fun, attributes = partial(jnp.asarray, dtype=wanted), {"dtype": wanted.name}
        return on_any_rank(graph, fun, tensor, name, "cast", attributes)
    avals = [abstract(tensor.aval.shape, wanted)]
    return invoke(graph, "cast", [tensor], lambda: avals, name, dtype=wanted.name)[0]


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str = "DecodeCSV",
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[Tensor]:
    """Parses records of comma-separated values (RFC 4180) into columns.

    Args:
      records: string[...], one record each.
      record_defaults: for each column the value of an empty field, which also sets the dtype; a
        dtype, or an empty list or array, for a column whose fields must not be empty.
      field_delim: delimiter of the fields, one byte.
      use_quote_delim: whether fields may be enclosed in double quotes.
      name: name of the operation.
      na_value: text of a field that counts as empty.
      select_cols: indices of the columns to return, in ascending order; None for all.

    Returns:
      dtype[*records.shape] for each column.

    Raises:
      InvalidArgumentError: in the step, if a record has another number of fields or a field cannot
        be parsed; it names record, column and value.
    """
    graph = graph_for(records, *record_defaults)
    lines = strings_of(graph, records)
    defaults = [_default(graph, value) for value in record_defaults]
    attributes: dict[str, Any] = {
        "field_delim": _text(field_delim, "field_delim"),
        "use_quote_delim": use_quote_delim,
        "na_value": _text(na_value, "na_value"),
    }
    if select_cols is not None:
        attributes["select_cols"] = [*select_cols]

    def avals() -> list[AbstractValue]:
        return [host_abstract(lines.shape, default.dtype) for default in defaults]

    return [*invoke(graph, "decode_csv", [lines, *defaults], avals, name, **attributes)]


def decode_raw(
    input_bytes: Any, out_type: Any, little_endian: bool = True, name: str = "DecodeRaw"
) -> Tensor:
    """Reinterprets the bytes of strings as numbers.

    Args:
      input_bytes: string[...], all of one length.
      out_type: dtype of the numbers.
      little_endian: byte order of the numbers.
      name: name of the operation.

    Returns:
      out_type[..., n].

    Raises:
      TypeError: if `out_type` is not a dtype of numbers.
      InvalidArgumentError: in the step, if lengths differ or are not multiples of the dtype's size.
    """
    graph = graph_for(input_bytes)
    strings = strings_of(graph, input_bytes)
    dtype = _number(out_type)
    attributes = {"out_type": dtype.name, "little_endian": little_endian}

    def avals() -> list[AbstractValue]:
        known = _shape_of(strings)
        shape = None if known is None else (*known, unknown_dim())
        return [host_abstract(shape, dtype)]

    return invoke(graph, "decode_raw", [strings], avals, name, **attributes)[0]


def string_split(
    source: Any, delimiter: str = " ", skip_empty: bool = True, name: str = "StringSplit"
) -> SparseTensor:
    """Splits each string of a vector into the elements of a row of a sparse matrix.

    Args:
      source: string[n].
      delimiter: delimiters, one per byte; "" splits into single bytes.
      skip_empty: whether to leave out empty parts.
      name: name of the operation.

    Returns:
      A sparse string[n, longest].
    """
    graph = graph_for(source)
    strings = strings_of(graph, source)
    attributes = {"delimiter": _text(delimiter, "delimiter"), "skip_empty": skip_empty}
    parts = invoke(graph, "string_split", [strings], lambda: _sparse(string), name, **attributes)
    return SparseTensor(*parts)


def string_to_number(
    string_tensor: Any, out_type: Any = "float32", name: str = "StringToNumber"
) -> Tensor:
    """Parses strings as numbers in decimal notation.

    Args:
      string_tensor: string[...].
      out_type: dtype of the numbers.
      name: name of the operation.

    Returns:
      out_type[*string_tensor.shape].

    Raises:
      TypeError: if `out_type` is not a dtype of numbers.
      InvalidArgumentError: in the step, if a string is not a number of the dtype.
    """
    graph = graph_for(string_tensor)
    strings = strings_of(graph, string_tensor)
    dtype = _number(out_type)

    def avals() -> list[AbstractValue]:
        return [host_abstract(strings.aval.shape, dtype)]

    return invoke(graph, "string_to_number", [strings], avals, name, out_type=dtype.name)[0]


def string_join(inputs: Sequence[Any], separator: str = "", name: str = "StringJoin") -> Tensor:
    """Joins the strings of several tensors element by element.

    Args:
      inputs: at least one tensor, string[*shape] or string[] each.
      separator: text between the strings.
      name: name of the operation.

    Returns:
      string[*shape].

    Raises:
      ValueError: if `inputs` is empty.
      InvalidArgumentError: in the step, if shapes differ.
    """
    if not inputs:
        raise ValueError("expected at least one tensor of strings to join, got none")
    graph = graph_for(*inputs)
    attributes = {"separator": _text(separator, "separator")}
    strings = [strings_of(graph, value) for value in inputs]
    shape = next((_shape_of(one) for one in strings if _shape_of(one) != ()), ())

    def avals() -> list[AbstractValue]:
        return [abstract(shape, string)]

    return invoke(graph, "string_join", strings, avals, name, **attributes)[0]


def string_strip(input: Any, name: str = "StringStrip") -> Tensor:  # noqa: A002 - TensorFlow's name
    """Removes white space from both ends of strings, string[...]."""
    graph = graph_for(input)
    strings = strings_of(graph, input)
    return invoke(graph, "string_strip", [strings], lambda: [strings.aval], name)[0]


def substr(input: Any, pos: Any, len: Any, name: str = "Substr", unit: str = "BYTE") -> Tensor:  # noqa: A002
    """Returns substrings.

    Args:
      input: string[...].
      pos: integer scalar or i[*input.shape], start of a substring; from the end if negative.
      len: as `pos`, length of a substring, which ends earlier at the end of the string.
      name: name of the operation.
      unit: unit of `pos` and `len`, "BYTE" or "UTF8_CHAR".

    Returns:
      string[*input.shape].

    Raises:
      InvalidArgumentError: in the step, if a position is out of range.
    """
    graph = graph_for(input, pos, len)
    strings = strings_of(graph, input)
    unit = _text(unit, "unit")
    places = [on_host(graph, value) for value in (pos, len)]
    return invoke(graph, "substr", [strings, *places], lambda: [strings.aval], name, unit=unit)[0]


def as_string(input: Any, name: str = "AsString") -> Tensor:  # noqa: A002 - TensorFlow's name
    """Formats numbers or booleans, T[...], as text, string[...]."""
    graph = graph_for(input)
    tensor = on_host(graph, input)
    aval = abstract(_shape_of(tensor), string)
    return invoke(graph, "as_string", [tensor], lambda: [aval], name)[0]


def decode_image(contents: Any, channels: int = 0, name: str = "DecodeImage") -> Tensor:
    """Decodes an image file. Requires `jflow[image]`.

    Args:
      contents: string[], the bytes of a BMP, GIF, JPEG, PNG or WebP file.
      channels: 1, 3 or 4; 0 for the number that the file has.
      name: name of the operation.

    Returns:
      u8[height, width, channels].

    Raises:
      InvalidArgumentError: in the step, if the bytes are not such a file.
    """
    return _decode("decode_image", contents, channels, name)


def decode_jpeg(contents: Any, channels: int = 0, name: str = "DecodeJpeg") -> Tensor:
    """Decodes a JPEG file; takes, returns and raises as `decode_image`."""
    return _decode("decode_jpeg", contents, channels, name)


def decode_png(contents: Any, channels: int = 0, name: str = "DecodePng") -> Tensor:
    """Decodes a PNG file; takes, returns and raises as `decode_image`."""
    return _decode("decode_png", contents, channels, name)


def encode_jpeg(image: Any, quality: int = 95, name: str = "EncodeJpeg") -> Tensor:
    """Encodes an image as a JPEG file. Requires `jflow[image]`.

    Args:
      image: u8[height, width, 1 or 3].
      quality: 1 to 100; a higher one gives a larger file.
      name: name of the operation.

    Returns:
      string[], the bytes of the file.
    """
    return _encode("encode_jpeg", image, name, quality=quality)


def encode_png(image: Any, name: str = "EncodePng") -> Tensor:
    """Encodes an image as a PNG file. Requires `jflow[image]`.

    Args:
      image: u8[height, width, 1 to 4].
      name: name of the operation.

    Returns:
      string[], the bytes of the file.
    """
    return _encode("encode_png", image, name)


def parse_example(
    serialized: Any, features: Mapping[str, Feature], name: str = "ParseExample"
) -> dict[str, Any]:
    """Parses a batch of serialized `tf.train.Example` messages.

    Args:
      serialized: string[batch].
      features: declarations of the features to read, by their keys in the Examples.
      name: name of the operation.

    Returns:
      By key, dtype[batch, *shape] for a `FixedLenFeature`, dtype[batch, longest, *shape] for a
      `FixedLenSequenceFeature`, a `SparseTensor` of shape [batch, longest] for a `VarLenFeature`.
      Tensors of int64 stay on the host while JAX's 64-bit types are off: declare them as int32, or
      `cast` them.

    Raises:
      InvalidArgumentError: if a declaration has an unsupported dtype or a default value that does
        not fit; in the step, if an Example is malformed, lacks a feature without a default value,
        or has a feature that is not as declared.
    """
    return _parse("parse_example", serialized, features, name)


def parse_single_example(
    serialized: Any, features: Mapping[str, Feature], name: str = "ParseSingleExample"
) -> dict[str, Any]:
    """Parses one serialized `tf.train.Example`.

    Args:
      serialized: string[].
      features: declarations of the features to read, by their keys in the Example.
      name: name of the operation.

    Returns:
      By key, as `parse_example` without the batch dimension: dtype[*shape], dtype[n, *shape] or a
      `SparseTensor` of shape [n].

    Raises:
      InvalidArgumentError: as `parse_example`.
    """
    return _parse("parse_single_example", serialized, features, name)


def _parse(
    function: str, serialized: Any, features: Mapping[str, Feature], name: str
) -> dict[str, Any]:
    graph = graph_for(serialized)
    strings = strings_of(graph, serialized)
    defaults: Sequence[Any]
    defaults, columns = as_columns(features)
    if graph is not None:
        defaults = [graph.constant(default, on_host=True) for default in defaults]

    def avals() -> list[AbstractValue]:
        batch = () if function == "parse_single_example" else strings.aval.shape or (unknown_dim(),)
        return [aval for column in columns for aval in _column_avals(batch, column)]

    outputs = iter(invoke(graph, function, [strings, *defaults], avals, name, columns=columns))
    return {
        key: SparseTensor(next(outputs), next(outputs), next(outputs))
        if isinstance(feature, VarLenFeature)
        else next(outputs)
        for key, feature in features.items()
    }


def _column_avals(batch: Sequence[Any], column: Column) -> list[AbstractValue]:
    """The abstract values of the results for a column."""
    _, kind, dtype, shape = column
    element = string if dtype == string.name else np.dtype(dtype)
    if kind == "sparse":
        return _sparse(element, 2 if batch else 1)
    length = (unknown_dim(),) if kind == "sequence" else ()
    return [host_abstract((*batch, *length, *shape), element)]


def _decode(function: str, contents: Any, channels: int, name: str) -> Tensor:
    graph = graph_for(contents)
    strings = strings_of(graph, contents)
    channels = plain(function, "channels", channels)

    def avals() -> list[AbstractValue]:
        shape = (unknown_dim("h"), unknown_dim("w"), channels or unknown_dim("c"))
        return [abstract(shape, np.dtype(np.uint8))]

    return invoke(graph, function, [strings], avals, name, channels=channels)[0]


def _encode(function: str, image: Any, name: str, **attributes: Any) -> Tensor:
    graph = graph_for(image)
    tensor = on_host(graph, image)
    return invoke(graph, function, [tensor], lambda: [abstract((), string)], name, **attributes)[0]


def _sparse(dtype: Dtype, rank: int = 2) -> list[AbstractValue]:
    """The abstract values of a sparse tensor."""
    n_values = unknown_dim()
    return [
        host_abstract((n_values, rank), _INT64),
        host_abstract((n_values,), dtype),
        host_abstract((rank,), _INT64),
    ]


def _text(value: Any, what: str) -> str:
    """An argument that must be text when the graph is built. Raises TypeError otherwise."""
    if isinstance(value, str | bytes):
        return value if isinstance(value, str) else value.decode()
    raise TypeError(f"{what} is text that is known when the graph is built, got {value!r:.80}")


def _number(dtype: Any) -> np.dtype[Any]:
    """A dtype of numbers; of 64 bits also, because the values stay on the host."""
    number_dtype = host_dtype(dtype)
    if not isinstance(number_dtype, np.dtype):
        raise TypeError(f"expected a dtype of numbers, got {dtype!r}")
    return number_dtype


def _cast_array(value: Any, dtype: Any) -> Any:
    array, wanted = host_array(value), host_dtype(dtype)
    if array.dtype == object or not isinstance(wanted, np.dtype):
        raise TypeError(
            f"cast is for numbers, got {array.dtype} and {wanted.name}; "
            "use string_to_number or as_string"
        )
    return array.astype(wanted)[()]


def _default(graph: Graph | None, value: Any) -> Any:
    """The default value of a column; an empty array for none."""
    if isinstance(value, type | np.dtype | HostDtype):
        dtype = host_dtype(value)
        empty = np.empty(0, object if dtype is string else _number(dtype))
        return empty if graph is None else graph.constant(empty, dtype, on_host=True)
    return on_host(graph, value)


def default_of_column(value: Any) -> Array:
    """Converts an item of the `record_defaults` of `decode_csv` to an array, empty for a dtype.

    Raises:
      TypeError: if it is neither a dtype nor a value.
    """
    default: Array = _default(None, value)
    return default
