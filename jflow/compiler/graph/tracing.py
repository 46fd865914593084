"""Tracing of Python functions to equations, with a cache for library functions."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.values import Sizes
from jflow.compiler.graph import origin, request
from jflow.compiler.graph.hoisting import WRITE_REFUSED, hoist_state
from jflow.compiler.graph.primitives import ensure_sizes
from jflow.errors import UnimplementedError
from jflow.plan.xla import internals
from jflow.plan.xla.jaxprs import allow_64_bits, have_64_bits, shape_of

_NEEDS_A_VALUE = (
    jax.errors.ConcretizationTypeError,  # the one for `if` among them
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


@dataclass(frozen=True)
class Traced:
    """The result of tracing a function: its equations.

    Attributes:
      jaxpr: the equations.
      out_tree: the structure of the function's result.
      context: the context that the equations were traced in, without a request.
    """

    jaxpr: jex.ClosedJaxpr
    out_tree: Any
    context: Any


@dataclass(frozen=True)
class Static:
    """A static argument of a traced function, compared by value.

    Its type and text are compared as well, because in Python 1, 1.0 and True are equal, and so are
    0.0 and -0.0.
    """

    kind: type
    text: str
    value: Any

    @classmethod
    def of(cls, value: Any) -> Static:
        """Returns the static argument for a value."""
        return cls(
            type(value),
            repr(value) if isinstance(value, float | complex | np.generic) else "",
            value,
        )


def trace(
    fun: Callable[..., Any],
    in_tree: Any,
    leaves: Sequence[Static | Any],
    sizes: Sizes | None = None,
) -> Traced:
    """Traces `fun`.

    Several equations are wrapped into one `jit` equation, so that a call of a library function is
    one operation of the graph.

    Args:
      fun: a function of JAX values.
      in_tree: structure of (args, kwargs).
      leaves: a Static or the abstract value of a tensor for each leaf.
      sizes: what the function sees in place of some unknown sizes; the step checks them.
    """
    if sizes:
        return _trace(fun, in_tree, leaves, sizes)
    if is_fixed(fun) and not any(_is_code(leaf) for leaf in leaves):
        try:
            return _traced(fun, in_tree, tuple(leaves), internals.trace_context())
        except TypeError:
            # Either a leaf is not hashable, or the call is wrong, which tracing again reveals.
            pass
    return _trace(fun, in_tree, leaves)


def is_fixed(fun: Callable[..., Any]) -> bool:
    """Whether a function always has the same equations, which is assumed of library functions."""
    module = getattr(fun, "__module__", None) or ""
    return module.partition(".")[0] in ("jax", "jflow", "_operator", "operator")


def _is_code(leaf: Static | Any) -> bool:
    return isinstance(leaf, Static) and callable(leaf.value) and not isinstance(leaf.value, type)


@lru_cache(maxsize=4096)
def _traced(fun: Callable[..., Any], in_tree: Any, leaves: tuple[Any, ...], _: Hashable) -> Traced:
    # The context is part of the key, device scopes included. Scopes must not share equations,
    # because a custom derivative rule keeps the scope it was traced in inside its equation.
    return _trace(fun, in_tree, leaves)


def _trace(
    fun: Callable[..., Any],
    in_tree: Any,
    leaves: Sequence[Static | Any],
    sizes: Sizes | None = None,
) -> Traced:
    out_trees = []

    def call(*arrays: Any) -> list[Any]:
        rest = iter([ensure_sizes(x, sizes) for x in arrays] if sizes else arrays)
        filled = [x.value if isinstance(x, Static) else next(rest) for x in leaves]
        args, kwargs = jax.tree.unflatten(in_tree, filled)
        outputs, out_tree = jax.tree.flatten(fun(*args, **kwargs))
        out_trees.append(out_tree)
        return outputs

    call.__name__ = call.__qualname__ = name_of(fun)
    shapes = [shape_of(x) for x in leaves if not isinstance(x, Static)]
    # Cached equations must not have a request: they get one where they are used.
    with request.empty_request_scope():
        context = request.present_context()
        jaxpr = make_jaxpr(call, shapes)
        if len(jaxpr.eqns) > 1:
            jaxpr = make_jaxpr(jax.jit(call), shapes)
    return Traced(hoist_state(jaxpr, keep_rules=True), out_trees[-1], context)


def refuse_tracer(leaf: Any) -> None:
    """Raises TypeError if an argument of graph code is a JAX tracer."""
    if isinstance(leaf, jax.core.Tracer):
        raise TypeError(
            "tensors have no value while the graph is built, so a function that JAX traces cannot "
            "use them from outside; pass them to it as arguments"
        )


def make_jaxpr(fun: Callable[..., Any], shapes: Sequence[Any]) -> jex.ClosedJaxpr:
    """Like `jax.make_jaxpr`, but with clearer errors for writes to variables in loops and branches.

    Errors about code that needs concrete values get a note with the user's line.
    """
    _refuse_mesh_of_this_process()
    try:
        with meshes_of_one_size():
            return _make_jaxpr(fun, shapes)
    except _NEEDS_A_VALUE as error:
        location = origin.location_in(error.__traceback__)
        if location is not None:
            error.add_note(f"The value is needed at {origin.describe(location)}.")
        raise
    except NotImplementedError as error:
        if "Effects not supported" in str(error) and "a write to" in str(error):
            raise NotImplementedError(f"{error}: {WRITE_REFUSED}") from None
        raise


def _make_jaxpr(fun: Callable[..., Any], shapes: Sequence[Any]) -> jex.ClosedJaxpr:
    if not have_64_bits(shapes):
        return jax.make_jaxpr(fun)(*shapes)
    # Arguments of 64 bits keep them, as under `jax.jit`; the function has its own setting.
    with allow_64_bits(True):
        return jax.make_jaxpr(_without_64_bits(fun))(*shapes)


@contextmanager
def meshes_of_one_size() -> Iterator[None]:
    """Context manager that explains why JAX differentiates no code on meshes of several sizes.

    Raises:
      UnimplementedError: in place of JAX's error.
    """
    try:
        yield
    except ValueError as error:
        if "use_abstract_mesh cannot change the size" not in str(error):
            raise
        raise UnimplementedError(
            "JAX differentiates code on several meshes only if these have the same number of "
            f"devices ({error}); use meshes of one size in what is differentiated together"
        ) from error


def _refuse_mesh_of_this_process() -> None:
    """Raises UnimplementedError within `jax.set_mesh` of several devices."""
    if internals.is_tracing():
        return
    mesh = jax.sharding.get_mesh()
    if mesh.size > 1:
        raise UnimplementedError(
            f"jax.set_mesh of {mesh.size} devices around code of jflow names devices of this "
            "process; request a mesh of a task where it is used: with jflow.device(name, mesh=mesh)"
        )


def _without_64_bits(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function to run with 64-bit types disabled."""

    @functools.wraps(fun)
    def narrow(*args: Any) -> Any:
        with jax.enable_x64(False):
            return fun(*args)

    return narrow


def name_after(call: Callable[..., Any], fun: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Makes JAX's errors name the user's function, line and arguments instead of a wrapper's.

    Args:
      call: the wrapper, which takes only arrays.
      fun: the user's function.
      arguments: names of the arrays.
    """
    call.__name__ = call.__qualname__ = name_of(fun)
    names = [
        n if n.isidentifier() else re.sub(r"\W+", "_", n).strip("_") or "value" for n in arguments
    ]
    unique = [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names)]
    kind = inspect.Parameter.POSITIONAL_ONLY
    wrapper: Any = call
    wrapper.__wrapped__ = fun
    with suppress(ValueError):  # a name can be a keyword of Python
        wrapper.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in unique])


def name_of(fun: Callable[..., Any]) -> str:
    """Returns the name of a function as a valid operation name."""
    return _valid_name(getattr(fun, "__name__", ""))


@lru_cache(maxsize=1024)
def _valid_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "", name).strip("_.") or "call"
