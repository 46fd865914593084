"""`get_variable`: finds a variable of a graph by name, or makes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jflow.base.suggestions import did_you_mean
from jflow.base.values import SaveSliceInfo, as_array, as_dtype, as_shape, is_compatible, is_static
from jflow.client.ops import Variable
from jflow.client.variables import initializers
from jflow.client.variables.initializers import PartitionInfo
from jflow.client.variables.partitioned import PartitionedVariable
from jflow.client.variables.partitioners import Partitioner, partition_of, slices_of
from jflow.client.variables.scope import Reuse, VariableScope, chained, get_variable_scope, of_graph
from jflow.compiler.graph import Graph, GraphKeys, Symbolic, colocate_with, name_scope, owners
from jflow.compiler.graph import get_default_graph as _default_graph


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A request to `get_variable`, with the scope's defaults filled in."""

    name: str
    shape: tuple[int, ...] | None
    dtype: Any
    initializer: Any
    regularizer: Callable[[Any], Any] | None
    reuse: Reuse
    options: dict[str, Any]
    partition_info: PartitionInfo | None = None


class VariableStore:
    """The variables that `get_variable` has made in a graph.

    Attributes:
      single: by name, the parts of partitioned variables among them.
      partitioned: the partitioned variables, by name.
      lock: held while one is made.
    """

    def __init__(self) -> None:
        self.single: dict[str, Variable] = {}
        self.partitioned: dict[str, PartitionedVariable] = {}
        self.lock = threading.RLock()


def store_of(graph: Graph) -> VariableStore:
    """Returns the variables that `get_variable` has made in a graph."""
    return of_graph(VariableStore, graph)


def no_regularizer(_: Any) -> None:
    """Returns None: a regularizer that overrides the default of the variable scope."""


def get_variable(  # noqa: PLR0913, PLR0917 - TensorFlow's arguments
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    trainable: bool | None = None,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Partitioner | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[[Any], Any] | None = None,
) -> Any:
    """Returns the variable with this name in the current variable scope; makes it if necessary.

    The scope's `reuse` determines whether the variable may or must exist already. Its name begins
    with that of the variable scope, whatever the name scope is. Arguments that are None default to
    those of the scope. Inside `jflow.connect` the variable is eager, and keeps the value that its
    container has, if any.

    Args:
      name: the name.
      shape: the shape; None if the initializer has one.
      dtype: the dtype; None for that of the scope, float32 unless it was given another, or for that
        of a value as initializer.
      initializer: an array, tensor or number, which is the initial value; or an initializer of
        jflow; or any function of a shape and a dtype, of a key, a shape and a dtype as JAX's, or
        without arguments. None for Glorot's uniform one, or for zeros unless the dtype is of
        floats.
      regularizer: a function from the variable to a loss or None; a loss is added to the collection
        `REGULARIZATION_LOSSES`.
      trainable: whether optimizers train it; None for True.
      collections, caching_device, validate_shape, constraint: as for `Variable`.
      partitioner: a function as `fixed_size_partitioner` returns it; the variable is then a
        `PartitionedVariable`.
      use_resource: without effect.
      custom_getter: a function that is called instead, with a `getter` that does what this function
        does, and with the arguments by name.

    Raises:
      ValueError: if the variable exists but may not, or does not but must; if it has another shape,
        dtype or partition; if there is neither a shape nor a value; or as the partitioner raises.
      TypeError: if the name is not text, or the initial value has another dtype.
    """
    arguments = {**locals()}  # by name, as custom getters take them
    del arguments["name"], arguments["custom_getter"]
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a variable, got {name!r:.80}")
    scope = get_variable_scope()
    arguments_in_scope = _with_defaults(scope, arguments)
    getter = chained(custom_getter, scope.custom_getter)
    with name_scope(None):
        if getter is None:
            return _get(scope.full_name(name), **arguments_in_scope)
        return getter(_get, scope.full_name(name), **arguments_in_scope)


def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    collections: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Like `get_variable`, but makes a local variable: not trainable, and not in checkpoints."""
    keys = [*dict.fromkeys((*(collections or ()), GraphKeys.LOCAL_VARIABLES))]
    options |= {"collections": keys, "trainable": False}
    return get_variable(name, shape, dtype, initializer, **options)


def _with_defaults(scope: VariableScope, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `get_variable` with None replaced by the scope's defaults."""
    completed_arguments = {**arguments, "reuse": scope.reuse}
    for key in ("initializer", "regularizer", "caching_device", "partitioner", "constraint"):
        if completed_arguments[key] is None:
            completed_arguments[key] = getattr(scope, key)
    if _is_value(completed_arguments["initializer"]):
        _check_value(completed_arguments["initializer"], arguments["dtype"])
    elif completed_arguments["dtype"] is None:
        completed_arguments["dtype"] = scope.dtype
    return completed_arguments


def _get(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    partitioner: Partitioner | None = None,
    reuse: Reuse = False,
    **options: Any,
) -> Any:
    """Finds or makes a variable by its full name; the innermost getter of custom getters."""
    options.pop("use_resource", None)
    trainable = options.pop("trainable", None)
    if isinstance(initializer, type):
        initializer = initializer()
    options["trainable"] = trainable is None or trainable
    wanted = _Request(
        name=name,
        shape=as_shape(shape),
        dtype=None if dtype is None else as_dtype(dtype),
        initializer=initializer,
        regularizer=regularizer,
        reuse=reuse,
        options=options,
    )
    if owners.current() is not None:
        return _eager(wanted, partitioner)
    store = store_of(_default_graph())
    with store.lock:
        if partitioner is not None and wanted.shape != ():
            return _partitioned(store, wanted, partitioner)
        if reuse and name in store.partitioned:
            return _partitioned(store, wanted, None)
        if name in store.partitioned:
            raise ValueError(
                "No partitioner was provided, but a partitioned version of the variable was found: "
                f"{name}/part_0. {_first_creation(store.partitioned[name])}"
            )
        return _single(store, wanted)


# One variable -------------------------------------------------------------------------------------


def _single(store: VariableStore, wanted: _Request) -> Variable:
    name = wanted.name
    existing = store.single.get(name)
    if existing is not None:
        if wanted.reuse is False or wanted.reuse is None:
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or "
                f"reuse=jflow.AUTO_REUSE in VarScope? {_first_creation(existing)}"
            )
        _check_same("share variable", existing, wanted)
        return existing
    if wanted.reuse is True:
        advice = did_you_mean(name, store.single) or "."
        raise ValueError(
            f"Variable {name} does not exist, or was not created with jflow.get_variable(){advice} "
            "Did you mean to set reuse=jflow.AUTO_REUSE in VarScope?"
        )
    variable = store.single[name] = _create(wanted)
    if wanted.regularizer is not None:
        _regularize(variable, wanted)
    return variable


def _create(wanted: _Request) -> Variable:
    """Makes a variable in the graph, or an eager one."""
    name, initializer, shape = wanted.name, wanted.initializer, wanted.shape
    if _is_value(initializer):
        if shape is not None and wanted.partition_info is None:
            raise ValueError(
                f"variable {name!r}: If initializer is a constant, do not specify shape; got the "
                f"shape {shape} and {initializer!r:.80}"
            )
        return Variable(initializer, name=name, dtype=wanted.dtype, **wanted.options)
    if initializer is None and shape is None:
        raise ValueError(
            f"Variable {name} did not get an initializer, so its `shape` argument must be "
            "specified."
        )
    if initializer is None:
        initializer = initializers.default_initializer(name, wanted.dtype)
    if not callable(initializer):
        raise TypeError(f"variable {name!r}: expected an initializer, got {initializer!r:.80}")
    if shape is not None and not is_static(shape):
        raise ValueError(
            f"Shape of a new variable ({name}) must be fully defined, but instead was {shape}."
        )

    def initial() -> Any:
        return _initial_value(wanted, initializer, shape, wanted.partition_info)

    def initial_of_shard(partition_shape: Any = None, partition_offset: Any = None) -> Any:
        if partition_shape is None:
            return initial()
        assert shape is not None
        part = PartitionInfo(shape, partition_offset)
        return _initial_value(wanted, initializer, partition_shape, part)

    # The dtype of a function without a shape is its own.
    dtype = None if shape is None else wanted.dtype
    # A strategy that cuts the variable asks for each shard, if the initializer knows shards.
    knows_shards = isinstance(initializer, initializers.Initializer)
    value = initial_of_shard if knows_shards else initial
    return Variable(value, name=name, dtype=dtype, **wanted.options)


def _initial_value(
    wanted: _Request, initializer: Any, shape: Any, part: PartitionInfo | None
) -> Any:
    with _initializer_scope(wanted.name):
        value = initializers.initial_value(initializer, shape, wanted.dtype, part)
    actual = np.shape(value)
    if shape is not None and not is_compatible(shape, actual):
        raise ValueError(
            f"the initializer of variable {wanted.name!r} returned a value of shape {actual}, "
            f"expected {shape}"
        )
    return value


def _initializer_scope(name: str) -> Any:
    return name_scope(f"{name}/Initializer/")


def _regularize(variable: Variable, wanted: _Request) -> None:
    assert wanted.regularizer is not None
    with colocate_with(variable), name_scope(f"{wanted.name}/Regularizer/"):
        loss = wanted.regularizer(variable)
    if loss is not None:
        variable.graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _eager(wanted: _Request, partitioner: Partitioner | None) -> Variable:
    if partitioner is not None:
        raise ValueError(
            f"variable {wanted.name!r} is eager and cannot be partitioned; make it in graph code, "
            "with `jflow.Graph().as_default()`"
        )
    if wanted.regularizer is not None and wanted.regularizer is not no_regularizer:
        raise ValueError(
            f"variable {wanted.name!r} is eager and has no collection of regularization losses; "
            "compute the loss in the function that trains"
        )
    if wanted.reuse is True:
        raise ValueError(
            f"variable {wanted.name!r} is eager: its container keeps its value by its name, so "
            "make it with reuse=jflow.AUTO_REUSE, which gives a variable of the same value"
        )
    return _create(wanted)


# Parts --------------------------------------------------------------------------------------------


def _partitioned(
    store: VariableStore, wanted: _Request, partitioner: Partitioner | None
) -> PartitionedVariable:
    name, shape = wanted.name, wanted.shape
    value = wanted.initializer
    if shape is None and _is_value(value):
        shape = value.graph_element().shape if isinstance(value, Symbolic) else np.shape(value)
    if name in store.single:
        raise ValueError(
            "A partitioner was provided, but an unpartitioned version of the variable was found: "
            f"{name}. {_first_creation(store.single[name])}"
        )
    existing = store.partitioned.get(name)
    partition = None
    if partitioner is not None:
        if not callable(partitioner):
            raise ValueError(f"Partitioner must be callable, but received: {partitioner!r:.80}")
        if shape is None or not is_static(shape):
            raise ValueError(
                f"Shape of a new partitioned variable ({name}) must be fully defined, but instead "
                f"was {shape}."
            )
        partition = partition_of(partitioner, shape, _dtype_of(wanted))
    if existing is not None:
        return _reused(existing, wanted, partition)
    if wanted.reuse is True:
        raise ValueError(
            f"PartitionedVariable {name} does not exist, or was not created with "
            "jflow.get_variable(). Did you mean to set reuse=False or reuse=jflow.AUTO_REUSE in "
            "VarScope?"
        )
    assert shape is not None
    assert partition is not None
    parts = [
        _part(store, wanted, f"{name}/part_{number}", shape, offset, sizes)
        for number, (offset, sizes) in enumerate(slices_of(shape, partition))
    ]
    variable = PartitionedVariable(name, shape, parts[0].dtype, parts, partition)
    store.partitioned[name] = variable
    return variable


def _part(
    store: VariableStore,
    wanted: _Request,
    name: str,
    shape: tuple[int, ...],
    offset: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Variable:
    initializer = wanted.initializer
    if _is_value(initializer):
        if not isinstance(initializer, Symbolic):
            initializer = as_array(initializer, wanted.dtype)
        bounds = zip(offset, sizes, strict=True)
        with _initializer_scope(name):
            initializer = initializer[tuple(slice(start, start + size) for start, size in bounds)]
    own = {"name": name, "shape": sizes, "initializer": initializer, "reuse": False}
    part = _single(store, replace(wanted, **own, partition_info=PartitionInfo(shape, offset)))
    part.save_slice_info = SaveSliceInfo(wanted.name, shape, offset, sizes)
    return part


def _reused(
    existing: PartitionedVariable, wanted: _Request, partition: tuple[int, ...] | None
) -> PartitionedVariable:
    if not wanted.reuse:
        raise ValueError(
            f"Partitioned variable with name {wanted.name} already exists. Did you mean to set "
            f"reuse=True or reuse=jflow.AUTO_REUSE in VarScope? {_first_creation(existing)}"
        )
    _check_same("reuse partitioned variable", existing, wanted)
    if partition is not None and partition != existing.partitions:
        raise ValueError(
            f"Trying to reuse partitioned variable {wanted.name}, but specified partitions "
            f"{list(partition)} and found partitions {list(existing.partitions)}. "
            f"{_first_creation(existing)}"
        )
    return existing


# What is wanted -----------------------------------------------------------------------------------


def _check_same(doing: str, existing: Variable | PartitionedVariable, wanted: _Request) -> None:
    if wanted.shape is not None and not is_compatible(wanted.shape, existing.shape):
        raise ValueError(
            f"Trying to {doing} {wanted.name}, but specified shape {wanted.shape} and found shape "
            f"{existing.shape}. {_first_creation(existing)}"
        )
    if wanted.dtype is not None and wanted.dtype != existing.dtype:
        raise ValueError(
            f"Trying to {doing} {wanted.name}, but specified dtype {wanted.dtype.name} and found "
            f"dtype {existing.dtype.name}. {_first_creation(existing)}"
        )


def _first_creation(existing: Variable | PartitionedVariable) -> str:
    first = next(iter(existing)) if isinstance(existing, PartitionedVariable) else existing
    return f"Originally defined at: {first.op.origin}"


def _is_value(initializer: Any) -> bool:
    """Whether an initializer is the initial value itself rather than a callable."""
    return initializer is not None and not callable(initializer)


def _check_value(value: Any, dtype: Any) -> None:
    """Raises ValueError if an initial value's dtype differs from the requested one."""
    actual = getattr(value, "dtype", None)
    if dtype is not None and actual is not None and as_dtype(dtype) != actual:
        raise ValueError(
            f"Initializer type {actual.name!r} and explicit dtype {as_dtype(dtype).name!r} don't "
            "match."
        )


def _dtype_of(wanted: _Request) -> Any:
    if wanted.dtype is not None:
        return wanted.dtype
    value = wanted.initializer
    return value.dtype if isinstance(value, Symbolic) else as_array(value).dtype
