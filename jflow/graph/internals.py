"""The only file that touches names which JAX does not make public, each with its reason.

`tests/graph/test_internals.py` checks every one of them against the JAX that is installed.
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

from jax._src import array, config, core, traceback_util
from jax._src.export import _export
from jax._src.numpy import array_methods

ConcreteArray = array.ArrayImpl
"""The type of arrays that have a value; `isinstance(x, jax.Array)` takes ten times as long."""


def no_source_locations() -> AbstractContextManager[Any]:
    """A block, for this thread, in which lowering writes no file names into programs.

    `jax.config.update("jax_traceback_in_locations_limit", 0)` is the public form, but would
    change the setting for the whole process and for user code.
    """
    limit: Any = config.traceback_in_locations_limit
    context: AbstractContextManager[Any] = limit(0)
    return context


def known_custom_calls() -> frozenset[str]:
    """Names of the native functions that JAX's own lowerings call and promises to keep.

    JAX checks this list when it exports a program, not when it loads one.
    """
    return frozenset(_export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE)


trace_context: Callable[[], Hashable] = config.trace_context
"""Every setting and scope of this thread that changes what JAX traces, metadata included.

JAX keys its own caches of traced functions with it.
"""


def is_tracing() -> bool:
    """Whether JAX is tracing or transforming a function on this thread.

    `jax.core.trace_state_clean` was the public name until it went.
    """
    return core.trace_ctx.trace is not core.eval_trace


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
    """Who looks up the attribute whose property calls this.

    JAX has one protocol for three purposes, of which an object that stands for a value serves
    some only.
    """
    return _ASKERS.get(sys._getframe(2).f_code.co_filename, Asker.CONVERSION)
