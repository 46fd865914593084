"""The only file that touches names which JAX does not make public, each with its reason.

`tests/xla/test_internals.py` checks every one of them against the JAX that is installed.
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from jax._src import array, config, core, traceback_util, xla_bridge
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.numpy import array_methods
from jax._src.random import prng

ConcreteArray = array.ArrayImpl
"""The type of arrays that have a value; `isinstance(x, jax.Array)` takes ten times as long."""


def has_started() -> bool:
    """Whether JAX has looked for devices in this process; settings of them come too late then.

    `jax.distributed.is_initialized()` answers another question.
    """
    return xla_bridge.backends_are_initialized()


def no_source_locations() -> AbstractContextManager[Any]:
    """A block, for this thread, in which lowering writes no file names into programs.

    `jax.config.update("jax_traceback_in_locations_limit", 0)` is the public form, but would
    change the setting for the whole process and for user code.
    """
    limit: Any = config.traceback_in_locations_limit
    context: AbstractContextManager[Any] = limit(0)
    return context


UNKNOWN = -1
"""In place of a size that a program does not say."""


@dataclass(frozen=True)
class CallBuffer:
    """An operand or result in a program: its sizes, and MLIR's name of its type."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('?' if n == UNKNOWN else str(n) for n in self.shape)}]"


@dataclass(frozen=True)
class CustomCall:
    """A call of a native function in a program."""

    target: str
    operands: tuple[CallBuffer, ...]
    results: tuple[CallBuffer, ...]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        sides = (" ".join(map(str, side)) for side in (self.operands, self.results))
        options = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{' -> '.join(sides)}" + (f" with {options}" if options else "")


def custom_calls(program: str) -> list[CustomCall]:
    """The calls of native functions in a StableHLO program.

    JAX reads them when it exports a program, not when it loads one.
    """
    with mlir.make_ir_context():
        return _custom_calls(ir.Module.parse(program))


def custom_calls_for_sizes(lowered: Any) -> list[CustomCall]:
    """As `custom_calls`, in a program of symbolic sizes that was lowered for arrays of some size.

    JAX puts the sizes in only when it compiles.
    """
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        return _custom_calls(mlir.refine_polymorphic_shapes(module))


def _custom_calls(module: Any) -> list[CustomCall]:
    found: list[CustomCall] = []

    def look(op: Any) -> Any:
        if op.name.endswith("custom_call"):
            found.append(_custom_call(op))
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _custom_call(op: Any) -> CustomCall:
    attributes: dict[str, Any] = {}
    if "mhlo.backend_config" in op.attributes:
        options: Any = ir.DictAttr(op.attributes["mhlo.backend_config"])
        for entry in options:
            # Numbers and truths have a value; for anything else its text has to do.
            attributes[entry.name] = getattr(entry.attr, "value", str(entry.attr))
    return CustomCall(
        ir.StringAttr(op.attributes["call_target_name"]).value,
        tuple(_buffer(operand.type) for operand in op.operands),
        tuple(_buffer(result.type) for result in op.results),
        attributes,
    )


def _buffer(kind: Any) -> CallBuffer:
    if not isinstance(kind, ir.RankedTensorType):
        return CallBuffer((), str(kind))  # a token
    sizes = range(kind.rank)
    shape = tuple(UNKNOWN if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in sizes)
    return CallBuffer(shape, str(kind.element_type))


trace_context: Callable[[], Hashable] = config.trace_context
"""Every setting and scope of this thread that changes what JAX traces, metadata included.

JAX keys its own caches of traced functions with it.
"""


def mesh_around(eqn: Any) -> Any:
    """The abstract mesh of the `jax.set_mesh` or `shard_map` that an equation was traced in."""
    return eqn.ctx.cur_abstract_mesh


debug_nans: Any = config.debug_nans
"""`jax.config.jax_debug_nans`, as its `value`, which takes a quarter of the time to look up."""


def is_tracing() -> bool:
    """Whether JAX is tracing or transforming a function on this thread.

    `jax.core.trace_state_clean` was the public name until it went.
    """
    return core.trace_ctx.trace is not core.eval_trace


key_data: Callable[[Any], Any] = attrgetter("_base_array")
"""The numbers of a concrete random key, without the 4 µs that `jax.random.key_data` takes."""


def key_maker(dtype: Any) -> Callable[[Any], Any]:
    """Makes a concrete random key of its numbers, which are an array of JAX.

    `jax.random.wrap_key_data` takes 5 µs more.
    """
    return partial(prng.PRNGKeyArray, dtype._impl)


def scan_with_constants(params: dict[str, Any], n: int) -> dict[str, Any]:
    """The parameters of a `scan` that takes `n` more constants, in front of the others.

    JAX 0.10 counts them; 0.12 has the shape of all arguments as a tree of its own kind.
    """
    if "num_consts" in params:
        return params | {"num_consts": params["num_consts"] + n}
    trees: Any = importlib.import_module("jax._src.flattree")
    constants, carry, xs = params["ft_in"].unpack()
    return params | {"ft_in": trees.pack(((trees.nones(n), constants), carry, xs))}


def hidden_files() -> tuple[str, ...]:
    """What paths of files begin with whose frames JAX leaves out of tracebacks.

    Libraries on JAX add their own: their frames are not the user's line.
    """
    return tuple(traceback_util._exclude_paths)


def n_hidden() -> int:
    """How many there are of `hidden_files`."""
    return len(traceback_util._exclude_paths)


def is_of_own_array(effect: Any) -> bool:
    """Whether an effect says that a function makes a mutable array that it does not give away.

    JAX 0.10 has one; what has it is as pure as any other function.
    """
    return type(effect).__name__ == "InternalMutableArrayEffect"


class Asker(enum.Enum):
    """What of JAX looks for `__jax_array__` on an object."""

    OPERATOR = enum.auto()
    """An operator of an array; it gives way to the other operand if there is none."""
    JIT = enum.auto()
    """A compiled function that needs to know shape and dtype; it calls nothing it finds."""
    CONVERSION = enum.auto()
    """A function that calls it."""


_ASKERS = {array_methods.__file__: Asker.OPERATOR, core.__file__: Asker.JIT}


def asker() -> Asker:
    """What looks up the attribute whose property calls this.

    JAX has one protocol for three purposes, of which an object that stands for a value serves
    some only.
    """
    return _ASKERS.get(sys._getframe(2).f_code.co_filename, Asker.CONVERSION)
