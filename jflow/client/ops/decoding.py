"""Decoders of CSV records, images and raw bytes, which run on a task's host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.base.values import (
    AbstractValue,
    Array,
    HostDtype,
    abstract,
    host_abstract,
    host_dtype,
    string,
    unknown_dim,
)
from jflow.client.ops.host_calls import (
    dtype_of_numbers,
    graph_for,
    invoke,
    on_host,
    shape_of,
    strings_of,
    text_of,
)
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.graph.calls import plain


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
        "field_delim": text_of(field_delim, "field_delim"),
        "use_quote_delim": use_quote_delim,
        "na_value": text_of(na_value, "na_value"),
    }
    if select_cols is not None:
        attributes["select_cols"] = [*select_cols]

    def avals() -> list[AbstractValue]:
        return [host_abstract(lines.shape, default.dtype) for default in defaults]

    return [*invoke("decode_csv", [lines, *defaults], avals, name, **attributes)]


def decode_raw(
    input_bytes: Any, out_type: Any, little_endian: bool = True, name: str = "DecodeRaw"
) -> Tensor:
    """Reinterprets the bytes of strings as numbers of a dtype.

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
    strings = strings_of(graph_for(input_bytes), input_bytes)
    dtype = dtype_of_numbers(out_type)
    attributes = {"out_type": dtype.name, "little_endian": little_endian}

    def avals() -> list[AbstractValue]:
        known_shape = shape_of(strings)
        shape = None if known_shape is None else (*known_shape, unknown_dim())
        return [host_abstract(shape, dtype)]

    return invoke("decode_raw", [strings], avals, name, **attributes)[0]


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
    """Decodes a JPEG file; arguments, result and errors are those of `decode_image`."""
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


def _decode(function: str, contents: Any, channels: int, name: str) -> Tensor:
    strings = strings_of(graph_for(contents), contents)
    channels = plain(function, "channels", channels)

    def avals() -> list[AbstractValue]:
        shape = (unknown_dim("h"), unknown_dim("w"), channels or unknown_dim("c"))
        return [abstract(shape, np.dtype(np.uint8))]

    return invoke(function, [strings], avals, name, channels=channels)[0]


def _encode(function: str, image: Any, name: str, **attributes: Any) -> Tensor:
    tensor = on_host(graph_for(image), image)
    return invoke(function, [tensor], lambda: [abstract((), string)], name, **attributes)[0]


def _default(graph: Graph | None, value: Any) -> Any:
    """Returns the default value of a column; an empty array if it has none."""
    if isinstance(value, type | np.dtype | HostDtype):
        dtype = host_dtype(value)
        empty = np.empty(0, object if dtype is string else dtype_of_numbers(dtype))
        return empty if graph is None else graph.constant(empty, dtype, on_host=True)
    return on_host(graph, value)


def default_of_column(value: Any) -> Array:
    """Converts an item of `record_defaults` of `decode_csv` to an array; a dtype to an empty one.

    Raises:
      TypeError: if it is neither a dtype nor a value.
    """
    default: Array = _default(None, value)
    return default
