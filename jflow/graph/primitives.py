"""The primitives that JAX does not have: where values enter a graph and where state is.

An operation of a graph is a JAX equation. These are the equations that XLA never sees: the stages
below replace each of them by an argument or a result of the program around it.

Those that use variables are primitives in JAX's own sense too: bound while JAX traces a function
they become equations of it, bound outside of any trace they run at once, where the variable lives.
A write carries an effect, so that JAX neither drops nor repeats it, and refuses it where it could
not promise that (in loops and branches). A read carries none: it may be hoisted out of a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import jax
import jax.extend.core as jex
from jax.interpreters import batching, mlir

from jflow.cluster import DeviceSpec
from jflow.values import Dtype, HostArray


class Owner(Protocol):
    """What a variable belongs to: a graph, or the connection of an eager one."""

    def access(self, primitive: jex.Primitive, args: tuple[Any, ...], params: Any) -> Any:
        """Reads or writes at once, or raises an error that says why that is impossible."""


class HasEquation(Protocol):
    """An operation, as far as its equation is concerned."""

    @property
    def eqn(self) -> jex.JaxprEqn:
        """The equation that it is."""


@dataclass(frozen=True)
class VariableRef:
    """A variable as equations name it.

    Attributes:
      name: its name inside the container.
      container: the container that holds it, "" for the default one.
      shape, dtype: of its value.
      spec: the device that was asked for.
      owner: the graph or connection that it belongs to.
    """

    name: str
    container: str
    shape: tuple[int, ...]
    dtype: Dtype
    spec: DeviceSpec = field(default_factory=DeviceSpec)
    owner: Owner | None = field(default=None, repr=False)

    @property
    def aval(self) -> jax.core.ShapedArray:
        """Shape and dtype as JAX has them."""
        return jax.core.ShapedArray(self.shape, self.dtype)

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r})"


@dataclass(frozen=True)
class ResourceRef:
    """A queue or another resource as equations name it.

    Attributes:
      kind: what it is, such as "queue"; resources of different kinds may have one name.
      name: its name inside the container.
      container: the container that holds it, "" for the default one.
      definition: how to make it, as JSON; all that share it must agree.
      is_shared: whether all sessions share it by its name; else each session has its own.
      spec: the device that was asked for.
      owner: the graph or connection that it belongs to.
    """

    kind: str
    name: str
    container: str
    definition: str
    is_shared: bool
    spec: DeviceSpec = field(default_factory=DeviceSpec)
    owner: Owner | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (container {self.container!r})"


@dataclass(frozen=True)
class WriteEffect(jex.Effect):
    """Marks an equation that sets a variable, or works on a resource.

    It says what and where, for JAX puts it into errors.
    """

    variable: VariableRef | ResourceRef
    line: str

    def __str__(self) -> str:
        return f"a write to {self.variable} at {self.line}"

    __repr__ = __str__


placeholder_p = jex.Primitive("placeholder")
"""() → value: must be fed."""

constant_p = jex.Primitive("constant")
"""() → value; params `value`: the ndarray that carries it; `on_host`: where it is needed."""

host_p = jex.Primitive("host")
"""*values → values, on the host.

Params: `function`, by its name, which the worker knows; `attributes`, its other arguments as JSON;
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
"""() → (): has control inputs only."""
group_p.multiple_results = True

variable_p = jex.Primitive("variable")
"""() → (); param `variable`. Its device is where the variable lives."""
variable_p.multiple_results = True

resource_p = jex.Primitive("resource")
"""() → (). Its device is where a queue or another resource lives."""
resource_p.multiple_results = True

HANDLES = frozenset({variable_p, resource_p})
"""The primitives that stand for lasting state, and are nothing to run."""

read_p = jex.Primitive("read")
"""() → value; param `variable`."""

assign_p = jex.Primitive("assign")
"""value → value; param `variable`, in a traced function also `line`. Also initializes it."""

initialize_p = jex.Primitive("initialize")
"""value → value; param `variable`. As `assign`, but only if the variable has no value yet."""

update_p = jex.Primitive("update")
"""*operands → new value; params as `assign`, and `body`: ClosedJaxpr of (old, *operands) → new."""

check_p = jex.Primitive("check_indices")
"""report → (); param `variable`. Fails the step if the report tells of an index out of range."""
check_p.multiple_results = True

WRITES = frozenset({assign_p, initialize_p, update_p})
"""The primitives that set a variable."""

EFFECTS = WRITES | {check_p}
"""The primitives that a step runs even if their results are not needed."""

ACCESSES = EFFECTS | {read_p}
"""The primitives that need a variable's value to be where they run."""

SOURCES = ACCESSES | {placeholder_p, constant_p, host_p}
"""The primitives through which no gradient flows."""


_OF_TASK = _CALLBACKS | {host_p, check_p}


def calls_client(eqn: jex.JaxprEqn) -> bool:
    """Whether an operation calls a Python function of the client."""
    return eqn.primitive in _CALLBACKS


def is_on_host(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation is for the task itself to compute, not for XLA."""
    of_task = eqn.primitive in _OF_TASK or eqn.params.get("on_host")
    return bool(of_task) or any(isinstance(x.aval, HostArray) for x in eqn.outvars)


def state_of(eqn: jex.JaxprEqn) -> tuple[VariableRef | ResourceRef, ...]:
    """The variables and resources that an equation uses; it runs where the first one is."""
    if eqn.primitive in ACCESSES:
        return (eqn.params["variable"],)
    if eqn.primitive is host_p:
        resources: tuple[ResourceRef, ...] = eqn.params["resources"]
        return resources
    return ()


def is_blocking(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation can take as long as others let it wait."""
    return calls_client(eqn) or (eqn.primitive is host_p and bool(eqn.params["is_blocking"]))


def _read_aval(*, variable: VariableRef) -> jax.core.ShapedArray:
    return variable.aval


def _write_aval(
    *_: Any, variable: VariableRef, line: str = "", **__: Any
) -> tuple[Any, set[WriteEffect]]:
    # The line is a parameter, for JAX asks once for equal parameters and remembers the answer.
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


def _refuse_elsewhere(primitive: jex.Primitive) -> None:
    """Has JAX refuse to map or compile what uses state."""

    def refuse_batch(_: Any, __: Any, *, line: str = "", **params: Any) -> NoReturn:
        raise TypeError(
            f"a write to {_used(params)} inside jax.vmap has a value for each of the mapped "
            f"examples, where one is meant (at {line}); return the "
            "values from the mapped function and write once outside of it"
        )

    def refuse_lowering(_: Any, *__: Any, **params: Any) -> NoReturn:
        raise TypeError(
            f"{_used(params)} is used in a function that jax.jit compiles by itself, where jflow "
            "has no say; decorate the outermost function with jflow.function, or pass the value "
            "as an argument"
        )

    batching.primitive_batchers[primitive] = refuse_batch
    mlir.register_lowering(primitive, refuse_lowering)


def _used(params: dict[str, Any]) -> VariableRef | ResourceRef:
    """The first variable or resource that an equation with these parameters uses."""
    found: VariableRef | ResourceRef = params.get("variable") or params["resources"][0]
    return found


read_p.def_abstract_eval(_read_aval)
check_p.def_effectful_abstract_eval(_check_aval)
for _primitive in WRITES:
    _primitive.def_effectful_abstract_eval(_write_aval)
host_p.def_effectful_abstract_eval(_host_aval)
_refuse_elsewhere(host_p)
for _primitive in ACCESSES:
    _make_bindable(_primitive)
