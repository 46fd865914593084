"""Callbacks: Python functions called by JAX programs, as operations on the client's task.

JAX has four primitives for them (`CALLBACKS`). XLA runs them in the process that compiled the
program, which on a cluster is a server without the client's Python functions. Outside of loops,
each callback therefore becomes a jflow operation with the same name and JAX effects. It runs on the
CPU of the task that the client is connected to, which sends the operands to the client and receives
the results. In the body of a loop a callback remains an equation: of the one XLA program that a
local session makes of the loop, or until a step on a cluster opens the loop (`opening.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from jflow.base.cluster import DeviceSpec
from jflow.base.values import Array, declared, is_key, physical_form, shape_text, to_physical
from jflow.compiler.graph import origin, request
from jflow.compiler.graph.libraries import program_of
from jflow.compiler.graph.primitives import CALLBACKS, WriteEffect, calls_client
from jflow.compiler.graph.request import Request
from jflow.plan.xla import internals

if TYPE_CHECKING:  # a graph orders callbacks
    from jflow.compiler.graph.graph import Operation

CLIENT_CPU = Request((None, DeviceSpec(type="CPU")), (None,))
"""The CPU of the task that the client is connected to, regardless of the blocks around."""

SOLVE = "custom_linear_solve"
"""JAX's primitive with several bodies of which only `solve` runs; others are for derivatives."""

_HONOURED = (*CALLBACKS, "ffi_call")
"""JAX primitives whose effects happen exactly once per execution of their equation."""


@dataclass(frozen=True, eq=False)
class Callback:
    """A Python function that an equation calls, with arrays in their physical form.

    Attributes:
      name: name of the primitive and of the user's function, for messages.
      call: takes and returns JAX arrays in a flat order.
      in_avals, out_avals: abstract values of its operands and results.
      effects: effects of the equation; without effects it runs only if its results are used.
      line: the user's line that calls it.
      literals: operands that are literals of the equation, by position.
    """

    name: str
    call: Callable[..., Sequence[Any]]
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    effects: jex.Effects
    line: str
    literals: Mapping[int, Any] = field(default_factory=dict)

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        """Calls the function in this thread.

        Args:
          operands: the operands that are not literals.

        Raises:
          RuntimeError: if the results do not have the declared types, as in JAX.
          BaseException: whatever the function raises, with a note that names its line.
        """
        cpu = jax.local_devices(backend="cpu")[0]
        try:
            with jax.default_device(cpu):
                args = jax.device_put(self._arguments(iter(operands)), cpu)
                return self._checked(self.call(*args))
        except BaseException as error:
            error.add_note(f"in {self}")
            raise

    def _arguments(self, operands: Iterator[Array]) -> list[Any]:
        return [
            np.asarray(self.literals[i], aval.dtype)
            if i in self.literals
            else _logical(next(operands), aval)
            for i, aval in enumerate(self.in_avals)
        ]

    def _checked(self, results: Sequence[Any]) -> list[Array]:
        if len(results) != len(self.out_avals):
            raise RuntimeError(
                f"{self} returned {len(results)} results, expected {len(self.out_avals)}"
            )
        pairs = zip(results, self.out_avals, strict=True)
        return [self._result(number, *pair) for number, pair in enumerate(pairs)]

    def _result(self, number: int, value: Any, aval: Any) -> Array:
        if physical_form(aval.dtype) is not None:
            return to_physical(value)
        # The function may change a NumPy array after it has returned.
        array = np.array(value) if isinstance(value, np.ndarray) else np.asarray(value)
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        fits = len(array.shape) == len(aval.shape) and all(
            not isinstance(size, int) or size == found
            for size, found in zip(aval.shape, array.shape, strict=True)
        )
        if not fits or array.dtype != aval.dtype:
            raise RuntimeError(
                f"{self} returned {array.dtype.name} {array.shape} as result {number}, "
                f"expected {aval.dtype.name} {shape_text(declared(aval.shape))}"
            )
        return array

    def __str__(self) -> str:
        return f"the callback {self.name} (called at {self.line})"


def _logical(operand: Array, aval: Any) -> Any:
    # As under jax.jit, a callback gets the integers of a random key.
    form = None if is_key(aval.dtype) else physical_form(aval.dtype)
    return operand if form is None else form.wrap(operand)


def is_callback(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is one of JAX's callbacks."""
    return eqn.primitive.name in CALLBACKS and eqn.primitive is not CALLBACKS[eqn.primitive.name]


def callbacks_inside(eqn: jex.JaxprEqn) -> Iterator[jex.JaxprEqn]:
    """Yields the callbacks in the bodies of an equation."""
    for body in _bodies(eqn):
        for inner in body.eqns:
            if is_callback(inner):
                yield origin.inside(inner, eqn)
            elif has_callback(inner):
                yield from callbacks_inside(origin.inside(inner, eqn))


_CALLING: WeakKeyDictionary[jex.Jaxpr, bool] = WeakKeyDictionary()
"""Whether a program contains a callback; each program is searched once."""


def has_callback(eqn: jex.JaxprEqn) -> bool:
    """Whether the bodies of an equation contain a callback."""
    return any(map(_is_calling, _bodies(eqn)))


def _is_calling(jaxpr: jex.Jaxpr) -> bool:
    calls_python = _CALLING.get(jaxpr)
    if calls_python is None:
        calls_python = any(is_callback(eqn) or has_callback(eqn) for eqn in jaxpr.eqns)
        _CALLING[jaxpr] = calls_python
    return calls_python


def _bodies(eqn: jex.JaxprEqn) -> list[jex.Jaxpr]:
    if eqn.primitive.name == SOLVE:
        return [eqn.params["jaxprs"].solve.jaxpr]
    program = program_of(eqn)
    return list(jex.jaxprs_in_params(eqn.params)) if program is None else [program.jaxpr]


def as_operation(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
    """Returns the jflow equation for a JAX callback.

    It requests the CPU of the master's task, regardless of the blocks around the callback.
    """
    name = eqn.primitive.name
    function: Any = eqn.params.get("callback")
    if name.startswith("debug_"):
        function = partial(eqn.primitive.impl, **eqn.params)
    callback = Callback(
        _name_of(eqn),
        function,
        tuple(var.aval for var in eqn.invars),
        tuple(var.aval for var in eqn.outvars),
        eqn.effects,
        origin.line_of(eqn),
    )
    params = {"callback": callback, "is_conditional": False}
    with request.exact_request_scope(CLIENT_CPU):
        return jex.new_jaxpr_eqn(
            eqn.invars, eqn.outvars, CALLBACKS[name], params, eqn.effects, eqn.source_info
        )


def _name_of(eqn: jex.JaxprEqn) -> str:
    function = getattr(eqn.params.get("callback"), "callback_func", None)
    name = getattr(function, "__name__", "")
    return f"{eqn.primitive.name} of {name}" if name.isidentifier() else eqn.primitive.name


def callbacks_of(ops: Iterable[Operation]) -> list[Callback]:
    """Returns the callbacks among operations, in order, with their literal operands bound."""
    return [_with_literals(op.eqn) for op in ops if calls_client(op.eqn)]


def _with_literals(eqn: jex.JaxprEqn) -> Callback:
    operands = eqn.invars[1:] if eqn.params["is_conditional"] else eqn.invars
    literals = {i: x.val for i, x in enumerate(operands) if isinstance(x, jex.Literal)}
    callback: Callback = eqn.params["callback"]
    return replace(callback, literals=literals)


def check_effects(eqn: jex.JaxprEqn) -> None:
    """Refuses an equation with effects that a graph does not support.

    Raises:
      NotImplementedError: if it has an effect other than those of state and callbacks.
    """
    if not eqn.effects:
        return
    others = {effect for effect in eqn.effects if not isinstance(effect, WriteEffect)}
    if not others or eqn.primitive.name in _HONOURED:
        return
    others -= {effect for inner in _honoured_inside(eqn) for effect in inner.effects}
    # A mutable array that a compiled function uses only internally is not an effect of a call.
    if _bodies(eqn):
        others = {effect for effect in others if not internals.is_of_own_array(effect)}
    if others:
        raise NotImplementedError(
            f"{eqn.primitive.name!r} (at {origin.line_of(eqn)}) has an effect that graphs do not "
            f"support ({', '.join(sorted(map(_described, others)))}); use and return values; a "
            "jax.Ref is made and used within one function, in graph code under jax.jit"
        )


def has_effects(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation has JAX effects other than those on variables and resources."""
    return bool(eqn.effects) and any(
        not isinstance(effect, WriteEffect) and not internals.is_of_own_array(effect)
        for effect in eqn.effects
    )


def _honoured_inside(eqn: jex.JaxprEqn) -> Iterator[jex.JaxprEqn]:
    for body in _bodies(eqn):
        for inner in body.eqns:
            if inner.primitive.name in _HONOURED:
                yield inner
            yield from _honoured_inside(inner)


def _described(effect: Any) -> str:
    return type(effect).__name__


# Derivatives in graph code trace the equations between two tensors again.


def _abstract(*_: Any, callback: Callback, **__: Any) -> tuple[tuple[Any, ...], jex.Effects]:
    return callback.out_avals, callback.effects


def _refuse_derivative(*_: Any, callback: Callback, **__: Any) -> NoReturn:
    raise ValueError(
        f"{callback} has no derivative; define a rule for its caller with jax.custom_jvp, or use "
        "jax.lax.stop_gradient on its operands"
    )


for _primitive in CALLBACKS.values():
    _primitive.def_effectful_abstract_eval(_abstract)
    ad.primitive_jvps[_primitive] = _refuse_derivative


@dataclass(frozen=True)
class _ForEach:
    """A callback that calls a function once for each row of its arguments and stacks the results.

    Attributes:
      function: takes and returns arrays in a flat order.
      length: the number of elements.
      operands: for each argument of the function, the number of the argument that it comes from,
        and whether it is an element of that; or a literal.
      out_avals: the abstract values of its results.
    """

    function: Any
    length: int
    operands: tuple[tuple[int, bool] | jex.Literal, ...]
    out_avals: tuple[Any, ...]

    @property
    def callback_func(self) -> Any:
        """The user's function, for messages."""
        return getattr(self.function, "callback_func", None)

    def __call__(self, *args: Any) -> list[Any]:
        if not self.length:
            return [np.zeros((0, *aval.shape), aval.dtype) for aval in self.out_avals]
        rows = [[*self.function(*self._arguments(args, i))] for i in range(self.length)]
        return [np.stack([*map(np.asarray, values)]) for values in zip(*rows, strict=True)]

    def _arguments(self, args: Sequence[Any], number: int) -> list[Any]:
        return [
            jnp.asarray(operand.val, getattr(operand.aval, "dtype", None))
            if isinstance(operand, jex.Literal)
            else args[operand[0]][number]
            if operand[1]
            else args[operand[0]]
            for operand in self.operands
        ]


def as_callback(eqn: jex.JaxprEqn) -> jex.JaxprEqn | None:
    """Returns a scan over one pure callback as a single callback; None for any other equation."""
    if eqn.primitive.name != "scan":
        return None
    n_consts, n_carry = internals.scan_sizes(eqn.params)
    body: jex.ClosedJaxpr = eqn.params["jaxpr"]
    jaxpr = body.jaxpr
    if n_carry or body.consts or len(jaxpr.eqns) != 1:
        return None
    (inner,) = jaxpr.eqns
    call = as_callback(inner) or inner
    if not is_callback(call) or call.primitive.name != "pure_callback":
        return None
    if [*jaxpr.outvars] != [*call.outvars]:
        return None
    numbers = {var: i for i, var in enumerate(jaxpr.invars)}
    for_each = _ForEach(
        call.params["callback"],
        eqn.params["length"],
        tuple(
            x if isinstance(x, jex.Literal) else (numbers[x], numbers[x] >= n_consts)
            for x in call.invars
        ),
        tuple(var.aval for var in call.outvars),
    )
    whole: jex.JaxprEqn = eqn.replace(
        primitive=call.primitive, params=call.params | {"callback": for_each}
    )
    return whole
