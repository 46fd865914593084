"""Operations on strings, and conversions of numbers, which run on the host of a task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import (
    AbstractValue,
    HostArray,
    abstract,
    as_dtype,
    host_abstract,
    host_dtype,
    is_known,
    is_static,
    is_unranked,
    string,
    unknown_dim,
)
from jflow.client.ops.host_calls import (
    dtype_of_numbers,
    graph_for,
    host_array,
    invoke,
    is_symbolic,
    on_host,
    shape_of,
    sparse_avals,
    stays_on_host,
    strings_of,
    text_of,
)
from jflow.client.ops.slices import SparseTensor
from jflow.client.stateful.queue import as_integer
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.graph.calls import on_any_rank

_BOOL = np.dtype(bool)


def cast(x: Any, dtype: Any, name: str = "Cast") -> Tensor:
    """Converts numbers to another dtype, on the host if the tensor is there.

    Args:
      x: a tensor or array of numbers or booleans.
      dtype: dtype of the result.
      name: name of the operation.

    Returns:
      dtype[*x.shape].

    Raises:
      TypeError: if either dtype is string.
    """
    if isinstance(x, jax.core.Tracer):
        traced: Any = jnp.asarray(x, as_dtype(dtype))
        return traced  # type: ignore[no-any-return]
    graph = graph_for(x)
    if graph is None:
        array: Tensor = _cast_array(x, dtype)
        return array
    tensor = graph.as_tensor(x)
    target_dtype = as_dtype(dtype)
    if string in (tensor.dtype, target_dtype):
        raise TypeError(
            f"cast is for numbers, got {tensor!r} and {target_dtype.name}; "
            "use string_to_number or as_string"
        )
    if not isinstance(tensor.aval, HostArray):
        cast_: Tensor = graph.apply(
            lambda value: jnp.asarray(value, target_dtype), (tensor,), name=name
        )
        return cast_
    if is_unranked(tensor.aval):
        fun, attributes = partial(jnp.asarray, dtype=target_dtype), {"dtype": target_dtype.name}
        return on_any_rank(graph, fun, tensor, name, "cast", attributes)
    avals = [abstract(tensor.aval.shape, target_dtype)]
    return invoke("cast", [tensor], lambda: avals, name, dtype=target_dtype.name)[0]


def string_split(
    source: Any, delimiter: str = " ", skip_empty: bool = True, name: str = "StringSplit"
) -> SparseTensor:
    """Splits each string of a vector into a row of a sparse matrix.

    Args:
      source: string[n].
      delimiter: delimiters, one per byte; "" splits into single bytes.
      skip_empty: whether to leave out empty parts.
      name: name of the operation.

    Returns:
      A sparse string[n, longest].
    """
    strings = strings_of(graph_for(source), source)
    attributes = {"delimiter": text_of(delimiter, "delimiter"), "skip_empty": skip_empty}
    parts = invoke("string_split", [strings], lambda: sparse_avals(string), name, **attributes)
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
    strings = strings_of(graph_for(string_tensor), string_tensor)
    dtype = dtype_of_numbers(out_type)

    def avals() -> list[AbstractValue]:
        return [host_abstract(strings.aval.shape, dtype)]

    return invoke("string_to_number", [strings], avals, name, out_type=dtype.name)[0]


def string_to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Tensor:  # noqa: A002 - TensorFlow's name
    """Returns the bucket of each string: its FarmHash Fingerprint64 modulo the number of buckets.

    The task that computes it needs `jflow[hash]`.

    Args:
      input: string[...].
      num_buckets: how many buckets there are.
      name: name of the operation.

    Returns:
      i64[*input.shape], from 0 to `num_buckets` - 1, on the host.

    Raises:
      TypeError: if the input is not of strings, or `num_buckets` not an integer.
      ValueError: if there is no bucket.
      UnimplementedError: in the step, if the package with the hash is not installed.
    """
    n_buckets = as_integer(num_buckets, "num_buckets")
    if n_buckets < 1:
        raise ValueError(f"expected at least one bucket, got {num_buckets}")
    strings = strings_of(graph_for(input), input)

    def avals() -> list[AbstractValue]:
        return [host_abstract(strings.aval.shape, np.dtype(np.int64))]

    name = name or "StringToHashBucketFast"
    function = string_to_hash_bucket_fast.__name__
    return invoke(function, [strings], avals, name, num_buckets=n_buckets)[0]


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
    attributes = {"separator": text_of(separator, "separator")}
    strings = [strings_of(graph, value) for value in inputs]
    shape = next((shape_of(one) for one in strings if shape_of(one) != ()), ())

    def avals() -> list[AbstractValue]:
        return [abstract(shape, string)]

    return invoke("string_join", strings, avals, name, **attributes)[0]


def string_strip(input: Any, name: str = "StringStrip") -> Tensor:  # noqa: A002 - TensorFlow's name
    """Removes white space from both ends of strings, string[...]."""
    strings = strings_of(graph_for(input), input)
    return invoke("string_strip", [strings], lambda: [strings.aval], name)[0]


def substr(input: Any, pos: Any, len: Any, name: str = "Substr", unit: str = "BYTE") -> Tensor:  # noqa: A002
    """Returns substrings, each given by a position and a length.

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
    unit = text_of(unit, "unit")
    places = [on_host(graph, value) for value in (pos, len)]
    return invoke("substr", [strings, *places], lambda: [strings.aval], name, unit=unit)[0]


def host_shape(input: Any, dtype: np.dtype[Any], name: str) -> Tensor:  # noqa: A002
    """Returns the shape of a host tensor as a tensor, dtype[rank]; see `jflow.shape`."""
    graph = graph_for(input)
    tensor = on_host(graph, input)
    shape = shape_of(tensor)
    if graph is not None and is_static(shape):
        return graph.constant(np.array(shape, dtype), name=name)

    def avals() -> list[AbstractValue]:
        return [abstract((unknown_dim() if shape is None else len(shape),), dtype)]

    return invoke("shape", [tensor], avals, name, out_type=dtype.name)[0]


def compare_on_host(function: str, x: Any, y: Any, name: str) -> Tensor:
    """Compares host tensors elementwise, with broadcasting.

    Args:
      function: "equal" or "not_equal".
      x, y: tensors, arrays or texts; at least one is on the host.
      name: name of the operation.

    Returns:
      bool[*shape], the shape to which both broadcast.

    Raises:
      TypeError: if the dtypes differ.
      ValueError: if the shapes do not fit.
      InvalidArgumentError: in the step, if shapes that were unknown do not fit.
    """
    graph = graph_for(x, y)
    if graph is None:
        return invoke(function, [host_array(x), host_array(y)], lambda: (), name)[0]
    dtype = on_host(graph, x if stays_on_host(x) else y).dtype
    left, right = (_of_dtype(graph, value, dtype) for value in (x, y))
    shape = _broadcast(left, right)
    return invoke(function, [left, right], lambda: [abstract(shape, _BOOL)], name)[0]


def _of_dtype(graph: Graph, value: Any, dtype: Any) -> Tensor:
    if not is_symbolic(value):
        return graph.constant(value, dtype, on_host=True)
    tensor = graph.as_tensor(value, dtype)
    if tensor.dtype != dtype:
        raise TypeError(f"expected a tensor of dtype {dtype.name} to compare with, got {tensor!r}")
    return tensor


def _broadcast(left: Tensor, right: Tensor) -> tuple[Any, ...] | None:
    """Returns the shape to which two tensors broadcast, as far as it is known."""
    one, other = left.aval.shape, right.aval.shape
    if one is None or other is None:
        return None
    rank = max(len(one), len(other))
    columns = zip(*((*[1] * (rank - len(x)), *x) for x in (one, other)), strict=True)
    sizes = [_broadcast_size(*column) for column in columns]
    if None in sizes:
        raise ValueError(f"cannot compare {left!r} and {right!r}, whose shapes do not fit")
    return tuple(sizes)


def _broadcast_size(one: Any, other: Any) -> Any:
    """Returns the size to which two sizes broadcast; None if there is none."""
    if other in (1, one):
        return one
    if one == 1 or not is_known(one):
        return other if one == 1 or is_known(other) else unknown_dim()
    return None if is_known(other) else one


def as_string(input: Any, name: str = "AsString") -> Tensor:  # noqa: A002 - TensorFlow's name
    """Formats numbers or booleans, T[...], as text, string[...]."""
    tensor = on_host(graph_for(input), input)
    aval = abstract(shape_of(tensor), string)
    return invoke("as_string", [tensor], lambda: [aval], name)[0]


def _cast_array(value: Any, dtype: Any) -> Any:
    array, target_dtype = host_array(value), host_dtype(dtype)
    if array.dtype == object or not isinstance(target_dtype, np.dtype):
        raise TypeError(
            f"cast is for numbers, got {array.dtype} and {target_dtype.name}; "
            "use string_to_number or as_string"
        )
    return array.astype(target_dtype)[()]
