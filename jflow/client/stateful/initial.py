"""Initial values of variables: checks them, and replaces reads of other variables in them."""

from __future__ import annotations

from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from jflow.base.cluster import MESH, DeviceSpec
from jflow.base.values import as_dtype, is_static, is_string_tensor, string
from jflow.compiler.graph import Graph, Operation, Symbolic, Tensor, VariableRef, colocate_with
from jflow.compiler.graph.packing import has_tensors, packed
from jflow.compiler.graph.primitives import (
    SOURCES,
    assign_p,
    constant_p,
    host_p,
    is_on_host,
    read_p,
    recorded_p,
    value_or_p,
)
from jflow.plan.xla import jaxprs
from jflow.plan.xla.shardings import text_of_spec
from jflow.state.saves import READ_TENSOR

INITIALIZER = "Assign"
"""The name, after that of the variable, of the operation that initializes it."""


def initial_tensor(graph: Graph, value: Any, dtype: Any, name: str, validate_shape: bool) -> Tensor:
    """Returns the initial value of a variable as a tensor.

    Args:
      graph: the graph.
      value: a number, array, tensor or variable; or lists of them.
      dtype: the requested dtype of the variable, or None.
      name: the name of the variable.
      validate_shape: whether all sizes must be known; otherwise only the rank must be.

    Raises:
      TypeError: if the value is of strings or has a different dtype.
      ValueError: if it is None, or its shape, or rank, is unknown.
    """
    if value is None:
        raise ValueError(f"variable {name!r} needs an initial value")
    if has_tensors(value):
        tensor: Tensor = packed(graph, value, dtype, f"{name}/initial_value")
    elif not isinstance(value, Symbolic):
        tensor = graph.constant(value, dtype, name=f"{name}/initial_value")
    else:
        tensor = graph.as_tensor(value)
    check_initial(tensor, dtype, name)
    if tensor.aval.shape is None or (validate_shape and not is_static(tensor.aval.shape)):
        what = "shape" if validate_shape else "rank"
        advice = "set the sizes with jflow.ensure_shape or in the placeholder"
        if tensor.aval.shape is None:
            advice += "; None stands for a size that is not known"
        elif validate_shape:
            advice += ", or allow them to change with validate_shape=False"
        raise ValueError(
            f"variable {name!r} needs an initial value of known {what}, got {tensor!r} (made at "
            f"{tensor.op.origin}); {advice}"
        )
    return tensor


def check_initial(value: Any, dtype: Any, name: str) -> None:
    """Raises TypeError if an initial value is of strings or its dtype is not the requested one."""
    if is_string_tensor(value) or value.dtype is string:
        raise TypeError(
            f"variable {name!r} cannot hold strings; variables hold numbers and random keys"
        )
    if dtype is not None and value.dtype != as_dtype(dtype):
        raise TypeError(
            f"variable {name!r} is requested with dtype {as_dtype(dtype)}, but its initial value "
            f"has dtype {value.dtype}"
        )


def declared_sharding(
    sharding: PartitionSpec | NamedSharding | None,
    shape: tuple[Any, ...],
    device: DeviceSpec,
    name: str,
) -> str:
    """Returns the sharding of a new variable as text; "" for None.

    Args:
      sharding: as for `Variable`.
      shape: the sizes of the variable.
      device: its device.
      name: its name, for errors.

    Raises:
      TypeError: if the sharding is of another type.
      ValueError: if the device is not a mesh, or the sharding does not fit the mesh or the shape.
    """
    if sharding is None:
        return ""
    if not isinstance(sharding, PartitionSpec | NamedSharding):
        raise TypeError(
            f"variable {name!r}: expected a jax.sharding.PartitionSpec as its sharding, got "
            f"{type(sharding).__name__}"
        )
    if device.type != MESH:
        raise ValueError(
            f"variable {name!r} has the sharding {sharding}, but is not on a mesh; make it in a "
            'block such as jflow.device("/job:worker/task:0", mesh={"model": 2})'
        )
    if not is_static(shape):
        raise ValueError(f"variable {name!r} has a sharding, and so needs sizes that are known")
    if isinstance(sharding, NamedSharding):
        axes = tuple(sharding.mesh.shape.items())
        if axes != device.axes:
            raise ValueError(
                f"variable {name!r} has a sharding on a mesh with the axes {dict(axes)}, but is on "
                f"{device}"
            )
        sharding = sharding.spec
    try:
        return text_of_spec(sharding, shape, device.axes)
    except ValueError as error:
        raise ValueError(f"variable {name!r}: {error}") from None


def initialized_value(ref: VariableRef, initial: Tensor, name: str) -> Tensor:
    """Adds an operation that returns a variable's value if it is initialized, else `initial`."""
    graph = initial.graph
    with colocate_with(graph.handle_of(ref), ignore_existing=True):
        return graph.add(value_or_p, [initial.var], [ref.aval], name=name, variable=ref).outputs[0]


def guarded(tensor: Tensor, name: str) -> Tensor:
    """Returns an initial value that can be computed before other variables are initialized.

    What was computed from the values of variables is computed again from their initialized values.
    The initial value stays as it is where the program orders it by control dependencies, or where
    its computation has effects, such as a write, which would be done twice.

    Args:
      tensor: the initial value.
      name: the name of its variable.
    """
    defaults: dict[Tensor, Tensor] = {}
    changed: set[Tensor] = set()
    path: list[Operation] = []
    for op in _ancestors(tensor):
        if op.eqn.primitive is read_p and (default := _default_of(op)) is not None:
            defaults[op.outputs[0]] = default
            changed.update(op.outputs)
        elif not changed.isdisjoint(op.inputs):
            if not _is_pure(op):
                return tensor
            changed.update(op.outputs)
            path.append(op)
    if tensor not in changed:
        return tensor
    name = f"{name}/initial_value"
    values = [
        initialized_value(read.op.eqn.params["variable"], default, name)
        for read, default in defaults.items()
    ]
    others = list(dict.fromkeys(t for op in path for t in op.inputs if t not in changed))
    inputs = [t.var for t in (*defaults, *others)]
    again = jaxprs.close(inputs, [tensor.var], [op.eqn for op in path])
    return tensor.graph.inline(again, [t.var for t in (*values, *others)], lambda _: name)[0]


def _ancestors(tensor: Tensor) -> list[Operation]:
    """Returns the operations that compute a tensor, in topological order."""
    operations: dict[Operation, None] = {}
    pending = [(tensor.op, False)]
    while pending:
        op, is_after_inputs = pending.pop()
        if is_after_inputs:
            operations[op] = None
        elif op not in operations:
            pending.append((op, True))
            pending.extend((one.op, False) for one in op.inputs)
    return list(operations)


def _default_of(read: Operation) -> Tensor | None:
    """Returns the initial value of the variable that is read; None if it is not pure."""
    ref, graph = read.eqn.params["variable"], read.graph
    if read.control_inputs or ref.owner is not graph or not is_static(ref.shape):
        return None
    initializer = graph.initializer_of(ref)
    if initializer is None or initializer.eqn.primitive is not assign_p:
        return None
    (default,) = initializer.inputs
    return default if all(map(_is_pure, _ancestors(default))) else None


def _is_pure(op: Operation) -> bool:
    """Whether an operation has no effects and the same result in every step."""
    if op.control_inputs or op.eqn.effects:
        return False
    if op.eqn.primitive in (constant_p, value_or_p):
        return True
    if op.eqn.primitive is host_p and op.eqn.params["function"] == READ_TENSOR:
        return True  # a file that does not change
    return op.eqn.primitive not in SOURCES | {recorded_p} and not is_on_host(op.eqn)
