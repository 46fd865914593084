"""Constants, placeholders, and operations that only pass values through or order others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import (
    HostArray,
    abstract,
    as_array,
    as_dtype,
    as_shape,
    declared,
    is_compatible,
    is_known,
    is_symbol,
    is_unranked,
    plain_shape,
)
from jflow.compiler.graph import Graph, Operation, Symbolic, Tensor
from jflow.compiler.graph import control_dependencies as _after
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call, on_any_rank
from jflow.compiler.graph.packing import has_tensors, packed
from jflow.compiler.graph.primitives import group_p, placeholder_p, recorded_p, with_shape
from jflow.compiler.graph.recorded import RecordedCall
from jflow.compiler.graph.tracing import refuse_tracer


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const") -> Tensor:
    """Returns a tensor with a fixed value.

    Args:
      value: a number, text or bytes, nested lists of them, an array, or random keys of JAX.
      dtype: dtype of the tensor; None for the one that JAX gives the value (float32 for 1.0).
      shape: shape of the tensor, filled with the value's elements in order; the last element is
        repeated. None for the value's own shape.
      name: name of the operation.

    Raises:
      TypeError: if the value is of another type, or cannot be converted to the dtype.
      ValueError: if the value has more elements than the shape, or the dtype has 64 bits and
        `jax_enable_x64` is off.
    """
    array = as_array(value, dtype)
    if shape is not None:
        array = _fill_shape(array, _static_shape(shape))
    return _default_graph().constant(array, name=name)


def placeholder(dtype: Any, shape: Any = None, name: str = "Placeholder") -> Tensor:
    """Returns a tensor whose value must be fed by each step that needs it.

    Args:
      dtype: dtype of the values.
      shape: shape of the values, with None for each unknown size; programs are compiled once for
        each size that is fed. If the shape is None, a step becomes a program for each shape that it
        is fed, and uses that need the rank earlier, such as the shape of a variable, are refused.
      name: name of the operation.

    Raises:
      TypeError: if `shape` or `dtype` is not one.
    """
    aval = abstract(as_shape(shape), as_dtype(dtype))
    return _default_graph().add(placeholder_p, [], [aval], name=name).outputs[0]


def placeholder_with_default(
    input: Any,  # noqa: A002 - TensorFlow's name
    shape: Any,
    name: str = "PlaceholderWithDefault",
) -> Tensor:
    """Returns a tensor with the value of another one, unless a step feeds it.

    Args:
      input: the tensor that is the default, or what `constant` takes.
      shape: the shape of fed values, with None for sizes that differ; the default must fit. Through
        a size that is None here and known of the default no gradient flows.
      name: name of the operation.

    Raises:
      ValueError: if the default does not have that shape.
    """
    graph = _default_graph()
    tensor: Tensor = graph.as_tensor(input)
    dims = as_shape(shape)
    if not is_compatible(dims, tensor.aval.shape):
        raise ValueError(f"{tensor!r} cannot have the shape {shape}")
    if tensor.aval.shape is not None and declared(dims) == declared(tensor.aval.shape):
        if isinstance(tensor.aval, HostArray):
            return identity(tensor, name)
        # A shape does not follow from what a barrier returns, so it can be fed.
        fed: Tensor = graph.apply(jax.lax.optimization_barrier, [tensor], name=name)
        return fed
    attributes = {"shape": declared(dims)} if dims is not None else {}
    function = "identity" if dims is None else "ensure_shape"
    avals = [abstract(dims, tensor.dtype)]
    return call(graph, function, [tensor], avals, name=name, attributes=attributes).outputs[0]


def identity(value: Any, name: str = "Identity") -> Tensor:
    """Returns a tensor with the same value, made by an operation in the current scopes.

    Args:
      value: a tensor, or what `constant` takes.
      name: name of the operation.
    """
    graph = _default_graph()
    tensor = graph.as_tensor(value)
    if is_unranked(tensor.aval):
        return on_any_rank(graph, jnp.copy, tensor, name, "identity")
    if isinstance(tensor.aval, HostArray):
        return call(graph, "identity", [tensor], [tensor.aval], name=name).outputs[0]
    same: Tensor = graph.apply(jnp.copy, (tensor,), name=name)
    return same


def convert_to_tensor(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None
) -> Tensor:
    """Returns a tensor as it is, the value of a variable, or a constant of any other value.

    Args:
      value: a tensor, a variable, `IndexedSlices`, or what `constant` takes; or a list or tuple of
        all of these, which is packed along a new first dimension.
      dtype: the dtype that it must have; None for its own, of a list that of the tensors in it. In
        a list tensors of other dtypes are cast to it.
      name: name of the operation, if one is made.
      preferred_dtype: the dtype of a constant or list if it can have it, and `dtype` is None.

    Raises:
      ValueError: if it is a tensor of another dtype, or None, or shapes in a list differ.
      TypeError: if the value cannot have the dtype, or dtypes in a list differ.
    """
    if value is None:
        raise ValueError("None values not supported: expected a tensor or a value")
    if isinstance(value, Symbolic):
        tensor = _default_graph().as_tensor(value)
        if dtype is not None and as_dtype(dtype) != tensor.dtype:
            raise ValueError(
                f"expected a tensor of dtype {as_dtype(dtype)}, got {tensor!r}; jflow.cast it"
            )
        return tensor
    if dtype is None and preferred_dtype is not None:
        with suppress(TypeError, ValueError):
            return _converted(value, preferred_dtype, name)
    return _converted(value, dtype, name)


def _converted(value: Any, dtype: Any, name: str | None) -> Tensor:
    if not has_tensors(value):
        return constant(value, dtype, name=name or "Const")
    tensor: Tensor = packed(_default_graph(), value, dtype, name)
    return tensor


def ensure_shape(x: Any, shape: Any, name: str = "EnsureShape") -> Tensor:
    """Returns the tensor with a more precise shape, which is checked when a step runs.

    Gradients flow through the check, unless the tensor is fed or dequeued without a known rank.

    Args:
      x: a tensor of any shape, also of unknown rank; or a value in a function that JAX traces.
      shape: the shape, with None for each size that stays unknown. A size of another tensor, such
        as `y.shape[0]`, has to be equal to that one.
      name: name of the operation.

    Raises:
      ValueError: if the tensor cannot have that shape.
      InvalidArgumentError: in the step, if the value has another shape.
    """
    is_traced = isinstance(x, jax.core.Tracer)
    graph = _default_graph()
    tensor: Any = x if is_traced else graph.as_tensor(x)
    dims = as_shape(shape)
    if not is_compatible(dims, tensor.aval.shape):
        raise ValueError(f"{tensor!r} cannot have the shape {shape}")
    refined_sizes = (
        None if isinstance(tensor.aval, HostArray) else _refine_sizes(tensor.aval.shape, shape)
    )
    if refined_sizes is not None:
        check_shape = _shape_checker(refined_sizes)
        fitted: Tensor = (
            check_shape(x) if is_traced else graph.apply(check_shape, (tensor,), name=name)
        )
        return fitted
    refuse_tracer(x)
    aval, attributes = abstract(dims, tensor.dtype), {"shape": declared(dims)}

    def on_host(here: Graph, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        return call(here, "ensure_shape", inputs, [aval], name=name, attributes=attributes).outputs

    if dims is None or tensor.op.eqn.primitive is not recorded_p:
        return on_host(graph, [tensor])[0]

    def replay(here: Graph, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        return [here.apply(_shape_checker(dims), inputs, name=name)]

    recorded = RecordedCall((aval,), None, (), replay, on_host)
    return graph.add_recorded([tensor.var], recorded, name).outputs[0]


def _shape_checker(shape: Sequence[Any]) -> Callable[[Any], Any]:
    """Returns the JAX function that checks and refines the shape of a value of known rank."""

    def ensure_shape(value: Any) -> Any:
        if not is_compatible(shape, value.shape):
            raise ValueError(f"expected a value of shape {declared(shape)}, got {value.shape}")
        return jnp.copy(with_shape(value, shape))

    return ensure_shape


def _refine_sizes(known: Sequence[Any], shape: Any) -> Sequence[Any] | None:
    """Returns the known sizes, replaced by those that `shape` states.

    None if a program cannot be made for them, because one is computed from unknown sizes.
    """
    shape = plain_shape(shape)
    shapes = known if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    dims = [old if new in (None, -1) else new for old, new in zip(known, shapes, strict=True)]
    simple = all(is_known(dim) or is_symbol(dim) for dim in (*known, *dims))
    return dims if simple else None


def as_scalar(value: Any) -> Any:
    """Returns a tensor of unknown rank as a scalar, which the step checks; others unchanged.

    Raises:
      InvalidArgumentError: in the step, if the value is not a scalar.
    """
    if not isinstance(value, Symbolic):
        return value
    tensor: Tensor = value.to_tensor()
    return tensor if tensor.aval.shape is not None else tensor.graph.apply(_scalar, (tensor,))


def _scalar(value: Any) -> Any:
    if value.shape:
        raise ValueError(f"expected a scalar, got an array of shape {value.shape}")
    return value


def group(*inputs: Any, name: str = "group_deps") -> Operation:
    """Returns an operation that runs after all inputs.

    Args:
      inputs: operations, tensors or variables.
      name: name of the operation.
    """
    graph = graph_of(inputs)
    with graph.as_default(), _after(inputs):
        return graph.add(group_p, [], [], name=name)


def no_op(name: str = "NoOp") -> Operation:
    """Returns an operation that does nothing; it runs after its control inputs."""
    return _default_graph().add(group_p, [], [], name=name)


def graph_of(inputs: Sequence[Any]) -> Graph:
    """Returns the graph of the first of these that has one, else the default graph."""
    for value in inputs:
        graph = getattr(value, "graph", None)
        if isinstance(graph, Graph):
            return graph
    return _default_graph()


def _fill_shape(array: Any, shape: tuple[int, ...]) -> Any:
    """Reshapes an array, repeating its last element to fill the shape; also for random keys."""
    size = math.prod(shape)
    if array.size > size or (size and not array.size):
        raise ValueError(f"{array.size} elements do not fill the shape {shape}, which has {size}")
    elements = np.minimum(np.arange(size), array.size - 1)
    return array.reshape(-1)[elements.reshape(shape)]


def _static_shape(shape: Any) -> tuple[int, ...]:
    sizes = plain_shape(shape)
    dims = None if sizes is None else (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if dims is None or any(dim is None or int(dim) < 0 for dim in dims):
        raise ValueError(
            f"expected a shape of known sizes, got {shape!r}: XLA compiles for fixed shapes, "
            "so give each dimension a number (make one placeholder for each batch size)"
        )
    return tuple(int(dim) for dim in dims)
