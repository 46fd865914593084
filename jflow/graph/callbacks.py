"""Python functions that JAX programs call: as operations of the client's task.

JAX has four primitives for them (`CALLBACKS`). XLA runs them in the process that compiled the
program, which on a cluster is a server that has no Python of the client. Outside of loops each
becomes an operation of jflow's own with the same name and the same JAX effects. It runs on the CPU
of the task that the client is connected to, which hands its operands to the client and takes back
its results. Inside a loop, which is one XLA program, a callback stays an equation of that program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import jax
import jax.extend.core as jex
import numpy as np
from jax.interpreters import ad

from jflow.cluster import DeviceSpec
from jflow.graph import origin, request
from jflow.graph.libraries import program_of
from jflow.graph.primitives import CALLBACKS, HasEquation, WriteEffect, calls_client
from jflow.graph.request import Request
from jflow.values import Array, is_key, physical_form, to_physical
from jflow.xla import internals

# The blocks around it are forgotten, so that it goes to the task that the client is connected to.
_ON_CPU = Request((None, DeviceSpec(type="CPU")), (None,))

SOLVE = "custom_linear_solve"
"""JAX's primitive of whose bodies only the one that solves runs; the others are for derivatives."""

_HONOURED = (*CALLBACKS, "ffi_call")
"""Names of JAX's primitives whose effects happen once each time their equation runs."""


@dataclass(frozen=True, eq=False)
class Callback:
    """A Python function that an equation calls, with arrays as tasks exchange them.

    Attributes:
      name: of the primitive and of the user's function, for messages.
      call: takes and gives JAX arrays in a flat order.
      in_avals, out_avals: abstract values of its operands and results.
      effects: those of the equation; without one it runs only if something uses its results.
      line: the user's line that calls it.
      literals: the operands that are literals of the equation, by their position.
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
          operands: those that are not literals.

        Raises:
          RuntimeError: if its results are not what it declared, as in JAX.
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
                f"{self} gave {len(results)} results, expected {len(self.out_avals)}"
            )
        return [
            self._result(*item) for item in enumerate(zip(results, self.out_avals, strict=True))
        ]

    def _result(self, number: int, item: tuple[Any, Any]) -> Array:
        value, aval = item
        if physical_form(aval.dtype) is not None:
            return to_physical(value)
        # An array of NumPy's may be changed when the callback is over.
        array = np.array(value) if isinstance(value, np.ndarray) else np.asarray(value)
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        fits = len(array.shape) == len(aval.shape) and all(
            not isinstance(size, int) or size == found
            for size, found in zip(aval.shape, array.shape, strict=True)
        )
        if not fits or array.dtype != aval.dtype:
            raise RuntimeError(
                f"{self} gave {array.dtype.name}{list(array.shape)} as result {number}, "
                f"expected {aval.dtype.name}{list(aval.shape)}"
            )
        return array

    def __str__(self) -> str:
        return f"the callback {self.name} (called at {self.line})"


def _logical(operand: Array, aval: Any) -> Any:
    # Under jax.jit a callback gets the numbers of a random key, as XLA has them.
    form = None if is_key(aval.dtype) else physical_form(aval.dtype)
    return operand if form is None else form.wrap(operand)


def is_callback(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is a callback in JAX's own form."""
    return eqn.primitive.name in CALLBACKS and eqn.primitive is not CALLBACKS[eqn.primitive.name]


def callbacks_inside(eqn: jex.JaxprEqn) -> Iterator[jex.JaxprEqn]:
    """The callbacks in the bodies of an equation."""
    for body in _bodies(eqn):
        for inner in body.eqns:
            if is_callback(inner):
                yield origin.inside(inner, eqn)
            elif has_callback(inner):
                yield from callbacks_inside(origin.inside(inner, eqn))


_CALLING: WeakKeyDictionary[jex.Jaxpr, bool] = WeakKeyDictionary()
"""Whether there is a callback somewhere in a program: each is looked through once."""


def has_callback(eqn: jex.JaxprEqn) -> bool:
    """Whether there is a callback in the bodies of an equation."""
    return any(map(_is_calling, _bodies(eqn)))


def _is_calling(jaxpr: jex.Jaxpr) -> bool:
    known = _CALLING.get(jaxpr)
    if known is None:
        known = any(is_callback(eqn) or has_callback(eqn) for eqn in jaxpr.eqns)
        _CALLING[jaxpr] = known
    return known


def _bodies(eqn: jex.JaxprEqn) -> list[jex.Jaxpr]:
    if eqn.primitive.name == SOLVE:
        return [eqn.params["jaxprs"].solve.jaxpr]
    program = program_of(eqn)
    return list(jex.jaxprs_in_params(eqn.params)) if program is None else [program.jaxpr]


def as_operation(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
    """The equation of jflow's own for a callback of JAX.

    It asks for the CPU of the master's task, whatever the blocks around the callback ask for.
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
    with request.exact_request_scope(_ON_CPU):
        return jex.new_jaxpr_eqn(
            eqn.invars, eqn.outvars, CALLBACKS[name], params, eqn.effects, eqn.source_info
        )


def _name_of(eqn: jex.JaxprEqn) -> str:
    function = getattr(eqn.params.get("callback"), "callback_func", None)
    name = getattr(function, "__name__", "")
    return f"{eqn.primitive.name} of {name}" if name.isidentifier() else eqn.primitive.name


def callbacks_of(ops: Iterable[HasEquation]) -> list[Callback]:
    """The callbacks among operations, in their order, as they are called with values alone."""
    return [_with_literals(op.eqn) for op in ops if calls_client(op.eqn)]


def _with_literals(eqn: jex.JaxprEqn) -> Callback:
    operands = eqn.invars[1:] if eqn.params["is_conditional"] else eqn.invars
    literals = {i: x.val for i, x in enumerate(operands) if isinstance(x, jex.Literal)}
    callback: Callback = eqn.params["callback"]
    return replace(callback, literals=literals)


def check_effects(eqn: jex.JaxprEqn) -> None:
    """Refuses an equation with effects that would be lost in a graph.

    Raises:
      NotImplementedError: if it has an effect that is neither a write to a variable or resource
        nor that of a callback.
    """
    if not eqn.effects:
        return
    others = {effect for effect in eqn.effects if not isinstance(effect, WriteEffect)}
    if not others or eqn.primitive.name in _HONOURED:
        return
    others -= {effect for inner in _honoured_inside(eqn) for effect in inner.effects}
    # A mutable array that a compiled function makes and uses inside is no effect of a call of it.
    if _bodies(eqn):
        others = {effect for effect in others if not internals.is_of_own_array(effect)}
    if others:
        raise NotImplementedError(
            f"{eqn.primitive.name!r} (at {origin.line_of(eqn)}) has an effect that an operation of "
            f"a graph cannot have ({', '.join(sorted(map(_described, others)))}); use values and "
            "return them, or put what uses a jax.Ref into one function under jax.jit"
        )


def has_effects(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation has effects in JAX's sense, those on variables and resources excepted."""
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


# In graph code the equations between two tensors are traced once more for a derivative.


def _abstract(*_: Any, callback: Callback, **__: Any) -> tuple[tuple[Any, ...], jex.Effects]:
    return callback.out_avals, callback.effects


def _refuse_derivative(*_: Any, callback: Callback, **__: Any) -> NoReturn:
    raise ValueError(
        f"{callback} has no derivative; give what calls it a rule with jax.custom_jvp, or use "
        "jax.lax.stop_gradient on its operands"
    )


for _primitive in CALLBACKS.values():
    _primitive.def_effectful_abstract_eval(_abstract)
    ad.primitive_jvps[_primitive] = _refuse_derivative
