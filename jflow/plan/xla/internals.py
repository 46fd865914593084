"""The only file that uses non-public names of JAX; each says why.

`tests/plan/xla/test_internals.py` checks each of them against the installed version of JAX.
"""

from __future__ import annotations

import enum
import functools
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Collection, Hashable
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import attrgetter
from typing import Any

import jax
import jax.export
import numpy as np
from jax._src import array, config, core, dtypes, traceback_util, xla_bridge
from jax._src.export import shape_poly
from jax._src.interpreters import mlir, pxla
from jax._src.lax import linalg
from jax._src.lib import _jax as jaxlib
from jax._src.lib.mlir import dialects, ir, passmanager
from jax._src.numpy import array_methods
from jax._src.random import prng
from jax._src.state import discharge, types

from jflow.base.values import symbols_in

NEEDED: Any = (
    *(config.traceback_in_locations_limit, core.ShapedArray, core.eval_trace, core.trace_ctx),
    *(
        ir.ArrayAttr,
        ir.Context,
        ir.DictAttr,
        ir.FlatSymbolRefAttr,
        ir.IntegerAttr,
        ir.Module,
        ir.RankedTensorType,
    ),
    *(ir.StringAttr, ir.WalkResult),
    *(dialects.sdy, dtypes.register_canonicalize_value_handler, jaxlib.mlir),
    passmanager.PassManager,
    *(mlir.make_ir_context, mlir.refine_polymorphic_shapes, prng.PRNGKeyArray),
    shape_poly.ShapeEvaluator,
    *(pxla.batched_device_put, traceback_util._exclude_paths),
    linalg.initialize_lapack,
    *(core.internal_mutable_array_effect, types.AbstractRef, discharge.discharge_state),
    xla_bridge.backends_are_initialized,
)
"""What functions of this file use, so that a name that JAX lacks is missed at once."""

ConcreteArray = array.ArrayImpl
"""The type of concrete arrays; `isinstance(x, jax.Array)` takes ten times as long."""


def has_started() -> bool:
    """Whether JAX has initialized its backends in this process; device settings are then fixed.

    `jax.distributed.is_initialized()` does not tell this.
    """
    return xla_bridge.backends_are_initialized()


def no_source_locations() -> AbstractContextManager[Any]:
    """Returns a context manager in which this thread lowers programs without source locations.

    `jax.config.update("jax_traceback_in_locations_limit", 0)` is the public form, but changes the
    setting for the whole process, user code included.
    """
    limit: Any = config.traceback_in_locations_limit
    context: AbstractContextManager[Any] = limit(0)
    return context


MLIR: Any = ir
"""MLIR's Python API; JAX has no public name for it."""

output_operand_alias: Callable[[Any], Any] = dialects.hlo.OutputOperandAlias
"""Returns an attribute as an alias of a result and an operand of a native call."""


def mesh_size(mesh: Any) -> int:
    """Returns the number of devices of a mesh in a program; 0 if it lists devices, not axes."""
    listed: Any = dialects.sdy.MeshAttr(mesh).device_ids
    return 0 if len(listed) else math.prod(size for _, size in axes_of(mesh))


def axes_of(mesh: Any) -> list[tuple[str, int]]:
    """Returns the axes of a mesh in a program."""
    axes: Any = map(dialects.sdy.MeshAxisAttr, dialects.sdy.MeshAttr(mesh).axes)
    return [(axis.name, axis.size) for axis in axes]


def axes_in(attribute: Any) -> list[tuple[str, int]]:
    """Returns the axes of a mesh in the form of StableHLO."""
    axes = map(ir.DictAttr, ir.ArrayAttr(ir.DictAttr(attribute)["axes"]))
    return [(ir.StringAttr(x["name"]).value, ir.IntegerAttr(x["size"]).value) for x in axes]


def axes_of_groups(groups: Any) -> tuple[str, list[str]] | None:
    """Returns the name of a mesh and the axes by which a collective names its groups.

    Returns:
      None if it names them in another way, or by parts of axes.
    """
    hlo: Any = dialects.hlo
    if not hlo.ReplicaGroupMeshAxesAttr.isinstance(groups):
        return None
    named = hlo.ReplicaGroupMeshAxesAttr(groups)
    axes = [*map(hlo.AxisRefAttr, named.axes)]
    if any(axis.sub_axis_info is not None for axis in axes):
        return None
    return ir.FlatSymbolRefAttr(named.mesh).value, [axis.name for axis in axes]


def meshes_in(sharding: Any) -> list[Any]:
    """Returns the meshes that an attribute of a program spells out; most refer to one by name."""
    sdy: Any = dialects.sdy
    if sdy.TensorShardingPerValueAttr.isinstance(sharding):
        shardings = list(sdy.TensorShardingPerValueAttr(sharding).shardings)
    elif sdy.TensorShardingAttr.isinstance(sharding):
        shardings = [sharding]
    else:
        return []
    meshes = [sdy.TensorShardingAttr(one).mesh_or_ref for one in shardings]
    return [mesh for mesh in meshes if sdy.MeshAttr.isinstance(mesh)]


def on_devices(exported: jax.export.Exported, n_devices: int) -> jax.export.Exported:
    """Returns an exported program that is for so many devices, however its arguments are sharded.

    JAX finds the number in shardings of arguments and results only. A program without arguments is
    lowered for one device, which makes no other difference.
    """
    no_inputs, no_outputs = (None,) * len(exported.in_avals), (None,) * len(exported.out_avals)
    return replace(
        exported,
        nr_devices=n_devices,
        _in_named_shardings=no_inputs,
        _out_named_shardings=no_outputs,
    )


def program_context() -> Any:
    """Returns an MLIR context with only the dialects that programs use.

    JAX's own, which knows all dialects, takes ten times as long.
    """
    context = ir.Context()
    context.enable_multithreading(False)
    dialects.hlo.register_dialect(context)
    dialects.sdy.register_dialect(context)
    return context


def parsed_program(data: bytes) -> Any:
    """Parses the bytes in a `jax.export.Exported` as a StableHLO module, in the current context.

    MLIR crashes the process on some malformed bytes.
    """
    return jaxlib.mlir.deserialize_portable_artifact(data)


def serialized_program(module: Any) -> bytes:
    """Serializes a StableHLO module, for this version of JAX only.

    The module and the bytes lose their source locations.
    """
    passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
    version = dialects.hlo.get_current_version()
    # As JAX does, which has attributes beside those of StableHLO: shardings, sizes of segments.
    data: bytes = jaxlib.mlir.serialize_portable_artifact(module, version, True)
    return data


def refined_program(lowered: Any) -> Any:
    """Returns the module of a lowered program, its symbolic sizes refined to concrete ones.

    JAX refines the sizes only when it compiles.
    """
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        return mlir.refine_polymorphic_shapes(module)


load_lapack: Callable[[], None] = linalg.initialize_lapack
"""Finds the functions of LAPACK that programs call; JAX does so when it lowers the first of them.

A program that was compiled in another process is not lowered here, and would call a null pointer.
"""


ARGUMENT_ERRORS: Any = (TypeError, ValueError, ir.MLIRError)
"""What a compiled program raises for arguments that it does not accept; MLIR for sizes below 0."""


def with_smaller_symbols(names: Collection[str] | None) -> Callable[[Any], Any]:
    """Returns a function that puts `a - 1` in the place of symbols `a` of these names in a size.

    Args:
      names: the names; None for all symbols.

    Raises (the function):
      InconclusiveDimensionOperation: if the size was at least 0, and may be less now.
    """
    known: dict[str, Any] = {}

    def smaller(dim: Any) -> Any:
        if isinstance(dim, int):
            return dim
        if (text := str(dim)) not in known:
            env = {str(x): x - (names is None or str(x) in names) for x in symbols_in(dim)}
            known[text] = size = shape_poly.ShapeEvaluator(env).evaluate(dim)
            if _is_size(dim):
                _ = size >= 0  # it raises
        return known[text]

    return smaller


def _is_size(dim: Any) -> bool:
    """Whether an expression of symbols is at least 0, whatever they are."""
    try:
        return bool(dim >= 0)
    except jax.errors.InconclusiveDimensionOperation:
        return False


trace_context: Callable[[], Hashable] = config.trace_context
"""Returns all settings and scopes of this thread that affect tracing, metadata included.

JAX uses it as the key of its own caches of traced functions.
"""


def mesh_around(eqn: Any) -> Any:
    """Returns the abstract mesh of the `jax.set_mesh` or `shard_map` around an equation."""
    return eqn.ctx.cur_abstract_mesh


debug_nans: Any = config.debug_nans
"""`jax.config.jax_debug_nans`; reading its `value` takes a quarter of the time."""


def is_tracing() -> bool:
    """Whether JAX is tracing or transforming a function on this thread.

    `jax.core.trace_state_clean` was the public name until it was removed.
    """
    return core.trace_ctx.trace is not core.eval_trace


def current_trace() -> Any:
    """Returns the identity of the innermost trace or transformation on this thread."""
    return core.trace_ctx.trace


key_data: Callable[[Any], Any] = attrgetter("_base_array")
"""Returns the integers of a concrete random key; `jax.random.key_data` takes 4 µs more."""


is_committed: Callable[[Any], Any] = attrgetter("_committed")
"""Whether a concrete array is committed to its device; `committed` takes three times as long."""


def key_maker(dtype: Any) -> Callable[[Any], Any]:
    """Returns a function from an array of integers to a concrete random key.

    `jax.random.wrap_key_data` takes 5 µs more.
    """
    return functools.partial(prng.PRNGKeyArray, dtype._impl)


default_device: Callable[[], jax.Device] = pxla.get_default_device
"""Returns the device of `jax.default_device`, or the first one of this process."""


def to_device(value: np.ndarray[Any, Any], device: jax.Device | None = None) -> jax.Array:
    """Returns a NumPy array as a JAX array on a device.

    On a CPU it shares the array's memory where that is aligned for XLA, so nothing may write to it
    afterwards; elsewhere nothing may until it is copied. The dtype stays, also if it has 64 bits
    and JAX's present settings do not allow them. `jax.device_put` does the rest in 37 µs for a
    scalar; this takes 5 µs.

    Args:
      value: the array.
      device: where the result is committed to; an uncommitted one is on JAX's default device.
    """
    on = device or default_device()
    aval, sharding = _aval_of(value.shape, value.dtype), _sharding_on(on)
    array: jax.Array = pxla.batched_device_put(
        aval, sharding, [value], [on], committed=device is not None, enable_x64=True
    )
    return array


@functools.lru_cache(maxsize=4096)
def _aval_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> core.ShapedArray:
    return core.ShapedArray(shape, dtype)


@functools.lru_cache(maxsize=64)
def _sharding_on(device: jax.Device) -> jax.sharding.SingleDeviceSharding:
    return jax.sharding.SingleDeviceSharding(device)


release_host_memory: Callable[[], None] = jaxlib.collect_garbage
"""Releases the NumPy arrays whose memory freed JAX arrays have shared, in 0.1 µs.

JAX does so itself when it next puts an array on a device, or when Python collects garbage.
"""


_TREES: Any = (
    importlib.import_module("jax._src.flattree")
    if importlib.util.find_spec("jax._src.flattree")
    else None
)


def is_structure(value: Any) -> bool:
    """Whether a parameter of an equation is only the structure of its arguments or results.

    Such parameters exist since JAX 0.12; equal ones are equal and have equal hashes.
    """
    return _TREES is not None and isinstance(value, _TREES.FlatTree)


def scan_sizes(params: dict[str, Any]) -> tuple[int, int]:
    """Returns the numbers of constants and of carried values of a `scan`."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()
    return len(constants), len(carry)


def scan_with_constants(params: dict[str, Any], n: int) -> dict[str, Any]:
    """Returns the parameters of a `scan` with `n` more constants before the others.

    JAX 0.10 stores their number; JAX 0.12 stores the structure of all arguments as a tree.
    """
    if "num_consts" in params:
        return params | {"num_consts": params["num_consts"] + n}
    constants, carry, xs = params["ft_in"].unpack()
    return params | {"ft_in": _TREES.pack(((_TREES.nones(n), constants), carry, xs))}


def scan_by_numbers(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a `scan` with the sizes of `scan_sizes`, as in JAX 0.10."""
    n_constants, n_carry = scan_sizes(params)
    others = {key: value for key, value in params.items() if key not in ("ft_in", "ft_out")}
    return others | {"num_consts": n_constants, "num_carry": n_carry}


def scan_of_numbers(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a `scan` in this version of JAX from those of `scan_by_numbers`.

    Raises:
      ValueError: if the sizes do not fit the body.
    """
    if _TREES is None:
        return params
    others = dict(params)
    n_constants, n_carry = others.pop("num_consts"), others.pop("num_carry")
    body = params["jaxpr"]
    n_xs, n_ys = len(body.in_avals) - n_constants - n_carry, len(body.out_avals) - n_carry
    if min(n_constants, n_carry, n_xs, n_ys) < 0:
        raise ValueError(f"{n_constants} constants and {n_carry} carries do not fit the body")
    return others | {
        "ft_in": _TREES.pack(tuple(map(_TREES.nones, (n_constants, n_carry, n_xs)))),
        "ft_out": _TREES.pack(tuple(map(_TREES.nones, (n_carry, n_ys)))),
    }


def hidden_files() -> tuple[str, ...]:
    """Returns the path prefixes of files whose frames JAX hides from tracebacks.

    Libraries built on JAX register their own files too.
    """
    return tuple(traceback_util._exclude_paths)


def n_hidden() -> int:
    """Returns the number of `hidden_files`."""
    return len(traceback_util._exclude_paths)


def uses_refs(eqn: Any) -> bool:
    """Whether an equation makes or uses a mutable array (`jax.Ref`), or a body of it does."""
    values = (*eqn.invars, *eqn.outvars)
    return core.internal_mutable_array_effect in eqn.effects or any(
        isinstance(var.aval, types.AbstractRef) for var in values
    )


def refs_given(program: Any) -> list[Any]:
    """Returns the variables of the mutable arrays that a program is given."""
    given = (*program.jaxpr.constvars, *program.jaxpr.invars)
    return [var for var in given if isinstance(var.aval, types.AbstractRef)]


def without_refs(program: Any) -> Any:
    """Returns a program whose equations pass on values in place of mutable arrays that it makes.

    The equations keep their lines and metadata, but lose rules of derivatives. Returns the program
    as it is if it is given mutable arrays, or JAX cannot do it.
    """
    if refs_given(program):
        return program
    try:
        return discharge.discharge_state(program, should_discharge=False)
    except NotImplementedError:  # inside of a function with a rule of its own
        return program


def is_of_own_array(effect: Any) -> bool:
    """Whether an effect says that a function uses a mutable array only internally."""
    return effect is core.internal_mutable_array_effect


class Asker(enum.Enum):
    """The part of JAX that looks up `__jax_array__` on an object."""

    OPERATOR = enum.auto()
    """An array operator; it defers to the other operand if there is no such attribute."""
    JIT = enum.auto()
    """A compiled function that determines shape and dtype; it does not call the attribute."""
    CONVERSION = enum.auto()
    """A function that calls the attribute."""


_ASKERS = {array_methods.__file__: Asker.OPERATOR, core.__file__: Asker.JIT}


def asker() -> Asker:
    """Returns the part of JAX that looks up the property that calls this function.

    JAX uses one protocol for three purposes; symbolic tensors support only some of them.
    """
    return _ASKERS.get(sys._getframe(2).f_code.co_filename, Asker.CONVERSION)


def convert_by_jax_array(kind: type) -> None:
    """Makes primitives ask operands of a class for `__jax_array__`, as `jax.numpy.asarray` does.

    Otherwise `jax.lax.exp` and `jax.nn.relu` say that the class is not valid, whatever is to be
    done about it.
    """
    dtypes.register_canonicalize_value_handler(kind, lambda value: value.__jax_array__())
