"""jflow's own primitives: inputs of a graph, constants, host calls and accesses to state.

An operation of a graph is a JAX equation. XLA never sees the equations of these primitives: later
stages replace each of them by an argument or a result of a program, or by an instruction.

Accesses to variables are also primitives in JAX's sense. Bound while JAX traces a function, they
become equations; bound outside of a trace, they run immediately, where the variable lives. A write
carries an effect, so that JAX neither drops nor repeats it, and refuses it where it cannot ensure
that (in loops and branches). A read carries no effect and may be hoisted out of a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from jflow.base.cluster import DeviceSpec
from jflow.base.values import (
    Dtype,
    HostArray,
    Sizes,
    is_compatible,
    is_known,
    substituted,
    symbols_in,
)


class Owner(Protocol):
    """The owner of a variable: a graph, or the connection of an eager variable."""

    def access(self, primitive: jex.Primitive, args: tuple[Any, ...], params: Any) -> Any:
        """Reads or writes immediately, or raises an error that says why that is impossible."""


@dataclass(frozen=True)
class VariableRef:
    """A reference to a variable, as a parameter of equations.

    Attributes:
      name: its name inside the container.
      container: the container that holds it, "" for the default container.
      shape, dtype: shape and dtype of its value.
      spec: the requested device.
      owner: the graph or connection that it belongs to.
      sharding: see `VariableSpec`. References with and without it are to the same variable.
    """

    name: str
    container: str
    shape: tuple[int, ...]
    dtype: Dtype
    spec: DeviceSpec = field(default_factory=DeviceSpec)
    owner: Owner | None = field(default=None, repr=False)
    sharding: str = field(default="", compare=False)

    @property
    def aval(self) -> jax.core.ShapedArray:
        """The abstract value of the variable."""
        return jax.core.ShapedArray(self.shape, self.dtype)

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r})"


@dataclass(frozen=True)
class ResourceRef:
    """A reference to a queue or another resource, as a parameter of equations.

    Attributes:
      kind: such as "queue"; names are unique within a kind.
      name: its name inside the container.
      container: the container that holds it, "" for the default one.
      definition: how to make it, a packed record; all that share it must agree.
      is_shared: whether sessions share it by name; else each session has its own.
      spec: the requested device.
      owner: the graph or connection that it belongs to.
      session: the session that has it, if it is not shared and belongs to another session than the
        steps that use it; "" for that of each step.
    """

    kind: str
    name: str
    container: str
    definition: bytes
    is_shared: bool
    spec: DeviceSpec = field(default_factory=DeviceSpec)
    owner: Owner | None = field(default=None, repr=False)
    session: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (container {self.container!r})"


@dataclass(frozen=True)
class WriteEffect(jex.Effect):
    """The effect of an equation that writes a variable or uses a resource.

    Its text names the state and the user's line, because JAX includes it in errors.
    """

    variable: VariableRef | ResourceRef
    line: str

    def __str__(self) -> str:
        return f"a write to {self.variable} at {self.line}"

    __repr__ = __str__


placeholder_p = jex.Primitive("placeholder")
"""() → value, which must be fed."""

constant_p = jex.Primitive("constant")
"""() → value; params `value`: its physical form as an ndarray; `on_host`: only for host calls."""

host_p = jex.Primitive("host")
"""*values → values, on the host.

Params: `function`, by its name, which the worker knows; `attributes`, its other arguments, packed;
`resources`, what it works on; `is_blocking`, whether it can take as long as others let it wait. In
a traced function also `outputs`, the abstract values that it gives, and `line`.
"""
host_p.multiple_results = True

CALLBACKS = {
    name: jex.Primitive(name)
    for name in ("debug_callback", "debug_print", "io_callback", "pure_callback")
}
"""*operands → values, by a Python function of the client, for each of JAX's own by its name.

Params: `callback`, the `Callback`; `is_conditional`, whether a predicate is the first operand. If
it is false, the function is not called and the values are zeros. See `graph/callbacks.py`.
"""
for _primitive in CALLBACKS.values():
    _primitive.multiple_results = True

_CALLBACKS = frozenset(CALLBACKS.values())

group_p = jex.Primitive("group")
"""() → (); has only control inputs."""
group_p.multiple_results = True

variable_p = jex.Primitive("variable")
"""() → (); the handle op of a variable, whose device is where the variable lives."""
variable_p.multiple_results = True

resource_p = jex.Primitive("resource")
"""() → (); the handle op of a resource, whose device is where the resource lives."""
resource_p.multiple_results = True

HANDLES = frozenset({variable_p, resource_p})
"""The primitives of handle ops, which are not executed."""

read_p = jex.Primitive("read")
"""() → value; param `variable`."""

assign_p = jex.Primitive("assign")
"""value → value; param `variable`, in a traced function also `line`. Initializes it as well."""

initialize_p = jex.Primitive("initialize")
"""value → value; param `variable`. As `assign`, but only if the variable has no value."""

update_p = jex.Primitive("update")
"""*operands → new value; params as `assign`, and `body`: ClosedJaxpr of (old, *operands) → new.

If `is_guarded`, the body returns the old value if the `check_indices` before it will fail, so the
update may run before that check; what uses the update waits for both.
"""

check_p = jex.Primitive("check_indices")
"""report → (); param `variable`. Fails the step if the report shows an index out of range."""
check_p.multiple_results = True

is_initialized_p = jex.Primitive("is_initialized")
"""() → bool[]; param `variable`. Whether the variable has a value."""

value_or_p = jex.Primitive("value_or")
"""default → value; param `variable`. The variable's value, or the default if it has none."""

WRITES = frozenset({assign_p, initialize_p, update_p})
"""The primitives that write a variable."""

EFFECTS = WRITES | {check_p}
"""The primitives that run even if their results are not used."""

ACCESSES = EFFECTS | {read_p, is_initialized_p, value_or_p}
"""The primitives that run where their variable lives."""

READS = ACCESSES - EFFECTS
"""The primitives that ask for the value of a variable."""

recorded_p = jex.Primitive("recorded_call")
"""*values → values: a call on tensors of unknown rank, which a step makes operations of.

Params: `function`, its name; `replay`, `fallback` and `state` of the `RecordedCall`; in a step also
`failure`, why it could not be replayed.
"""
recorded_p.multiple_results = True

ensure_sizes_p = jex.Primitive("ensure_sizes")
"""value → the same value, with other sizes in its shape; which are equal, the step checks.

Params: `shape`; `equal`, pairs of a symbol and the symbol or number that it has to be equal to. A
program has the same symbol for both (`lowering/sizes.py`), so XLA never sees it.
"""

STATEFUL = {name: jex.Primitive(f"stateful_{name}") for name in ("cond", "scan", "while")}
"""Branches and loops whose bodies use state or have effects on a host, by the JAX primitive.

Their parameters are those of that primitive. JAX, which may run a body more or less often than it
is written, never has them: each step opens them (`opening.py`).
"""
for _primitive in STATEFUL.values():
    _primitive.multiple_results = True

_STATEFUL = frozenset(STATEFUL.values())

carry_p = jex.Primitive("carry")
"""first value → the value at the start of an iteration; an operation of an open loop."""

index_p = jex.Primitive("iteration")
"""() → int32[], the number of the iteration; an operation of an open loop."""

final_p = jex.Primitive("final")
"""carry → its value after the last iteration, outside of its open loop."""

LOOP_ENDS = frozenset({carry_p, index_p, final_p})
"""The primitives at the border of an open loop (`loops.py`), which are not executed."""

SOURCES = ACCESSES | {placeholder_p, constant_p, host_p}
"""The primitives through which no gradient flows, but for calls of `LINEAR_FUNCTIONS`."""

LINEAR_FUNCTIONS = frozenset({"stitch_rows", "split_rows"})
"""The functions of the host that have a derivative, see `graph/row_parts.py`."""


_OF_TASK = _CALLBACKS | {host_p, check_p, is_initialized_p, value_or_p}


def is_source(eqn: jex.JaxprEqn) -> bool:
    """Whether no gradient flows through an equation."""
    if eqn.params.get("has_derivatives") is False:
        return True
    return eqn.primitive in SOURCES and eqn.params.get("function") not in LINEAR_FUNCTIONS


def calls_client(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation calls a Python function of the client."""
    return eqn.primitive in _CALLBACKS


def is_on_host(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is an instruction of its own and not part of an XLA program."""
    if eqn.primitive in _OF_TASK or eqn.params.get("on_host"):
        return True
    for var in eqn.outvars:  # noqa: SIM110 - a generator each time is a tenth of cutting a graph
        if isinstance(var.aval, HostArray):
            return True
    return False


def is_stateful_control_flow(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is a branch or loop whose body uses state; see `STATEFUL`."""
    return eqn.primitive in _STATEFUL


def is_stateful(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation uses state or has an effect on a host, or has a body that does."""
    if eqn.primitive is host_p and not eqn.outvars:
        return True
    return bool(state_of(eqn)) or is_stateful_control_flow(eqn) or calls_client(eqn)


def state_of(eqn: jex.JaxprEqn) -> tuple[VariableRef | ResourceRef, ...]:
    """Returns the variables and resources that an equation uses; the first decides its device."""
    if eqn.primitive in ACCESSES:
        return (eqn.params["variable"],)
    if eqn.primitive is host_p:
        resources: tuple[ResourceRef, ...] = eqn.params["resources"]
        return resources
    return ()


def is_blocking(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation may wait for other steps."""
    return calls_client(eqn) or (eqn.primitive is host_p and bool(eqn.params["is_blocking"]))


def _read_aval(*_: Any, variable: VariableRef) -> jax.core.ShapedArray:
    return variable.aval


def _flag_aval(*, variable: VariableRef) -> jax.core.ShapedArray:
    return jax.core.ShapedArray((), bool)


def _write_aval(
    *_: Any, variable: VariableRef, line: str = "", **__: Any
) -> tuple[Any, set[WriteEffect]]:
    # The line is a parameter, because JAX caches the effects of equal parameters.
    return variable.aval, {WriteEffect(variable, line)}


def _check_aval(*_: Any, variable: VariableRef, line: str = "") -> tuple[Any, set[WriteEffect]]:
    return (), _write_aval(variable=variable, line=line)[1]


def _host_aval(
    *_: Any,
    resources: tuple[ResourceRef, ...],
    outputs: tuple[Any, ...] = (),
    line: str = "",
    **__: Any,
) -> tuple[tuple[Any, ...], set[WriteEffect]]:
    return outputs, {WriteEffect(resource, line) for resource in resources}


def _make_bindable(primitive: jex.Primitive) -> None:
    def access(*args: Any, variable: VariableRef, line: str = "", **params: Any) -> Any:
        assert variable.owner is not None
        return variable.owner.access(primitive, args, {"variable": variable, **params})

    primitive.def_impl(access)
    _refuse_elsewhere(primitive)


def ensure_sizes(value: Any, sizes: Sizes) -> Any:
    """Substitutes unknown sizes in the shape of a value; the step checks that they are equal."""
    shape = tuple(substituted(dim, sizes) for dim in value.shape)
    if shape == value.shape:
        return value
    symbols = {str(symbol): symbol for dim in value.shape for symbol in symbols_in(dim)}
    equal = tuple((symbol, sizes[name]) for name, symbol in symbols.items() if name in sizes)
    return ensure_sizes_p.bind(value, shape=shape, equal=equal)


def with_shape(value: Any, shape: Sequence[Any]) -> Any:
    """Gives a value another shape of the same rank, with numbers and symbols as sizes.

    The step checks that the sizes in one place of both shapes are equal.
    """
    pairs = zip(value.shape, shape, strict=True)
    equal = tuple((b, a) if is_known(a) else (a, b) for a, b in pairs if a != b)
    return ensure_sizes_p.bind(value, shape=tuple(shape), equal=equal) if equal else value


def _ensured_aval(value: Any, *, shape: tuple[Any, ...], equal: Any) -> jax.core.ShapedArray:
    if not is_compatible(shape, value.shape):
        raise TypeError(f"a value of shape {value.shape} cannot have the shape {shape}")
    return jax.core.ShapedArray(shape, value.dtype, weak_type=value.weak_type)


def _ensured_slope(slope: Any, value: Any, *, shape: Any, equal: Any) -> list[Any]:
    return [ensure_sizes_p.bind(slope, shape=tuple(value.aval.shape), equal=equal)]


def _ensured_batch(values: Any, dims: Any, *, shape: Any, equal: Any) -> tuple[Any, int]:
    (value,), (at,) = values, dims
    moved = jnp.moveaxis(value, at, 0)
    return ensure_sizes_p.bind(moved, shape=(moved.shape[0], *shape), equal=equal), 0


def _lower_ensured(context: Any, value: Any, *, shape: Any, equal: Any) -> list[Any]:
    if tuple(context.avals_in[0].shape) != tuple(shape):
        raise NotImplementedError(f"sizes {equal} that a step has to check, outside of a step")
    return [value]


def _refuse_elsewhere(primitive: jex.Primitive) -> None:
    """Registers rules by which JAX refuses to vmap or to lower accesses to state."""

    def refuse_batch(_: Any, __: Any, *, line: str = "", **params: Any) -> NoReturn:
        raise TypeError(
            f"a write to {_first_ref(params)} is not supported inside jax.vmap, where it has a "
            f"value for each example (at {line}); return the values from the mapped function and "
            "write once outside of it"
        )

    def refuse_lowering(_: Any, *__: Any, **params: Any) -> NoReturn:
        raise TypeError(
            f"{_first_ref(params)} cannot be used inside a nested jax.jit; decorate the outermost "
            "function with jflow.function, or pass the value as an argument"
        )

    batching.primitive_batchers[primitive] = refuse_batch
    mlir.register_lowering(primitive, refuse_lowering)


def _first_ref(params: dict[str, Any]) -> VariableRef | ResourceRef:
    """Returns the variable, or else the first resource, that the parameters of an equation name."""
    ref: VariableRef | ResourceRef = params.get("variable") or params["resources"][0]
    return ref


ensure_sizes_p.def_abstract_eval(_ensured_aval)
ad.deflinear2(ensure_sizes_p, _ensured_slope)
batching.primitive_batchers[ensure_sizes_p] = _ensured_batch
mlir.register_lowering(ensure_sizes_p, _lower_ensured)
read_p.def_abstract_eval(_read_aval)
value_or_p.def_abstract_eval(_read_aval)
is_initialized_p.def_abstract_eval(_flag_aval)
check_p.def_effectful_abstract_eval(_check_aval)
for _primitive in WRITES:
    _primitive.def_effectful_abstract_eval(_write_aval)
host_p.def_effectful_abstract_eval(_host_aval)
_refuse_elsewhere(host_p)
for _primitive in ACCESSES:
    _make_bindable(_primitive)
