"""`jflow.function`: a Python function that is traced once per signature and runs as a graph."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload

import jax
import jax.extend.core as jex
from jax.tree_util import tree_flatten

from jflow.base import forks
from jflow.base.cards import Card, Carded, CardTable
from jflow.base.cluster import Device
from jflow.base.deadline import Deadline
from jflow.base.handles import Uncopyable
from jflow.base.tracebacks import boundary, hide_frames
from jflow.client.functions.arguments import (
    FunctionArguments,
    aval_of,
    dynamic,
    kind,
    location_of,
    signature_text,
    unmarked,
    with_dynamic,
)
from jflow.client.functions.captures import check_outputs, trace_with_captures
from jflow.client.functions.concrete import Concrete, PreparedCall, insert
from jflow.client.functions.connection import Connection
from jflow.client.functions.current import current
from jflow.client.functions.repeated import NEVER, CompiledCall
from jflow.client.ops import group
from jflow.client.ops.variable import read as read_variable
from jflow.client.runtime.steps import named_strategy
from jflow.compiler.graph import Graph, Operation, ResourceRef, Tensor, VariableRef, tracing, unify
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.members import visible
from jflow.compiler.graph.primitives import state_of
from jflow.compiler.graph.request import default_request_scope
from jflow.compiler.graph.tracing import Static
from jflow.compiler.placement import Explanation
from jflow.plan.xla import internals
from jflow.plan.xla.internals import ConcreteArray
from jflow.plan.xla.jaxprs import shape_of

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class _Trace(NamedTuple):
    """The jaxpr of a function for one signature, and the structure of its result."""

    jaxpr: jex.ClosedJaxpr
    out_tree: Any

    @property
    def state(self) -> dict[VariableRef | ResourceRef, None]:
        """The variables and resources that the function uses."""
        return dict.fromkeys(ref for eqn in self.jaxpr.eqns for ref in state_of(eqn))


@forks.guarded("__call__")
class Function(Carded, Uncopyable, Generic[P, R_co]):
    """A Python function compiled by `jflow.function`, with the same signature and types."""

    _instead_of_copy = "copy or send the Python function, and apply jflow.function to the copy"

    def __init__(
        self,
        fun: Callable[P, R_co],
        static_argnums: int | Iterable[int] = (),
        static_argnames: str | Iterable[str] = (),
        placement: str | Callable[..., Any] | None = None,
    ) -> None:
        if not callable(fun):
            raise TypeError(f"jflow.function requires a callable, got {fun!r:.80}")
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._arguments = FunctionArguments(fun, static_argnums, static_argnames)
        self._strategy = None if placement is None else named_strategy(placement)
        self._last: tuple[Connection | None, dict[Any, CompiledCall]] = _NEVER
        self._last_call: tuple[Any, Any, Any] = (None, None, None)
        self._repeated = NEVER
        self._first = threading.RLock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Runs the function on the current connection.

        With graph tensors among the arguments, or variables of a graph in the function, it adds the
        function to that graph instead. Inside a function that JAX traces it is inlined.

        Raises:
          TypeError: if an argument is neither an array, tensor or variable nor static.
          OverflowError: if an integer does not fit into JAX's type.
          NotImplementedError: if a variable is written in a loop or branch.
          OpError: as `Session.run`; UnimplementedError if a loop on a cluster calls Python.
          Exception: any error that a callback raises.
        """
        try:
            if internals.is_tracing():
                inner: R_co = _read(self._fun(*map(unmarked, args), **kwargs))
                return inner
            repeated = self._repeated
            if repeated is not NEVER and not kwargs and repeated.accepts(args):
                try:
                    again: R_co = repeated.run(args)
                except (TypeError, ValueError):
                    pass  # an argument is on another device
                else:
                    return again
            calls, key, leaves = self._signature(args, kwargs)
            # Comparing keys is faster than hashing one.
            last_calls, last_key, call = self._last_call
            deadline = None
            if last_calls is not calls or last_key != key:
                compiled: CompiledCall | tuple[Graph, _Trace] | None = calls.get(key)
                if compiled is None:
                    deadline = Deadline(current().timeout)
                    compiled = self._compile(calls, key, leaves, deadline)
                if not isinstance(compiled, CompiledCall):
                    operation: R_co = self._join(*compiled, leaves)
                    return operation
                call = compiled
                self._last_call = calls, key, call
            if call.has_static:
                leaves = dynamic(leaves)
            result: R_co = call.out_tree.unflatten(call.run(leaves, deadline))
            if call.repeated is not self._repeated:
                self._repeated = call.repeated_from(key, args, kwargs)
            return result
        except Exception as error:
            hide_frames(error)
            raise

    @boundary
    def placement(self, *args: P.args, **kwargs: P.kwargs) -> dict[Operation, Device]:
        """Returns the device of each operation of a call with these arguments.

        `jflow.inspect` draws the result.

        Raises:
          TypeError: if the call would add the function to a graph; use `Session.placement` then.
        """
        return self._connection_call(args, kwargs, "placement").placement()

    @boundary
    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Returns why each operation of a call with these arguments is where it is.

        Printed, it is a table with the predicted time of the call and a lower bound; `reasons` and
        `to_json()` have the same as data, and `jflow.inspect` draws it.

        Raises:
          TypeError: if the call would add the function to a graph; use `Session.explain` then.
          Exception: as a call before it runs.
        """
        return self._connection_call(args, kwargs, "explain").explain()

    def prepare_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreparedCall:
        """Traces a call for the current connection and does not run it.

        Raises:
          TypeError: as a call; if the call would add the function to a graph.
          Exception: what the function raises when it is traced.
        """
        calls, key, leaves = self._signature(args, kwargs)
        call: CompiledCall | tuple[Graph, _Trace] | None = calls.get(key)
        if call is None:
            call = self._compile(calls, key, leaves, Deadline(current().timeout))
        if not isinstance(call, CompiledCall):
            raise TypeError(
                f"{self!r} would become part of a graph with these arguments: it uses tensors, "
                "variables or queues of a graph; a connection runs functions of eager ones only"
            )
        return PreparedCall(call.run, call.out_tree, dynamic(leaves) if call.has_static else leaves)

    def _connection_call(self, args: Any, kwargs: Any, method: str) -> Concrete:
        """Returns the compiled call; raises TypeError if the call would become part of a graph."""
        deadline = Deadline(current().timeout)
        call = self._compile(*self._signature(args, kwargs), deadline)
        if not isinstance(call, CompiledCall):
            raise TypeError(
                f"{self!r} would become part of a graph with these arguments; use Session.{method}"
            )
        return call.run

    def wrap(self, around: Callable[..., Any]) -> Function[..., Any]:
        """Returns a `Function` of `around` with this one's static arguments and placement."""
        inner: Function[..., Any] = Function(
            around, self._arguments.static_nums, self._arguments.static_names
        )
        inner._strategy = self._strategy
        return inner

    def forget(self, connection: Connection) -> None:
        """Drops the cached calls of a closed connection."""
        if self._last[0] is connection:
            self._last, self._last_call, self._repeated = _NEVER, (None, None, None), NEVER

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...

    @overload
    def __get__(
        self: Function[Concatenate[Any, Rest], R], instance: object, owner: Any = None
    ) -> Callable[Rest, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds a method; its object, which must be hashable, is a static argument."""
        if instance is None:
            return self
        fun: Any = self
        method = functools.partial(fun, Static.of(instance))
        method.__doc__ = fun.__doc__
        return method

    def __repr__(self) -> str:
        n_traced = len(self._last[1])
        plural = "" if n_traced == 1 else "s"
        traced = f", {n_traced} signature{plural} traced" if n_traced else ""
        return f"<jflow.function {tracing.name_of(self._fun)}{traced}>"

    def _card(self) -> Card:
        rows = [
            (call.run.argument_text, f"{len(call.run.graph.get_operations()):,}")
            for call in [*self._last[1].values()]
        ]
        facts = (
            ("signature", signature_text(self._fun)),
            ("runs on", _target_text(self._last[0])),
            ("defined at", location_of(self._fun)),
        )
        table = CardTable("signatures traced", ("arguments", "operations"), rows, is_open=True)
        return Card("function", tracing.name_of(self._fun), facts, (table,))

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "forget", "prepare_call", "wrap")

    # The first call of a signature ------------------------------------------------------------

    def _signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[Any, CompiledCall], Any, list[Any]]:
        """Returns the connection's compiled calls, this call's key, and its flat arguments.

        The key has all that the jaxpr depends on, so equal keys can share a compiled call.
        """
        if self._arguments.has_static:
            args, kwargs = self._arguments.mark_static(args, kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        connection = current()
        last, calls = self._last  # one tuple, because threads may use other connections
        if connection is not last:
            calls = connection.calls_of(self)
            self._last = connection, calls
        try:
            kinds = [x.aval if type(x) is ConcreteArray else kind(x) for x in leaves]
        except OverflowError as error:
            raise OverflowError(f"{self!r} got an integer out of range: {error}") from None
        settings = internals.trace_context()
        device = connection.default_device(leaves)
        return calls, (tree, tuple(kinds), settings, internals.debug_nans.value, device), leaves

    def _compile(
        self, calls: dict[Any, CompiledCall], key: Any, leaves: list[Any], deadline: Deadline
    ) -> CompiledCall | tuple[Graph, _Trace]:
        """Returns the compiled call, or the trace and the graph that the call is added to."""
        # One thread traces at a time; the others find the result, unless the call joins a graph.
        with deadline.holding(self._first, f"waiting for {self!r} to be traced"):
            call = calls.get(key)
            if call is not None:
                return call
            traced = self._trace(key, leaves)
            graph = _graph_of(traced, leaves)
            if graph is not None and key[4] is not None:
                traced = self._trace((*key[:4], None), leaves)
            return self._make_call(key, traced, leaves) if graph is None else (graph, traced)

    def _make_call(self, key: Any, traced: _Trace, leaves: list[Any]) -> CompiledCall:
        connection = current()
        # Connections to one cluster are equal and share state, except for resources without a
        # shared name: those belong to the one connection that made them.
        for ref in traced.state:
            is_own = isinstance(ref, ResourceRef) and not ref.is_shared
            if ref.owner is not connection if is_own else ref.owner != connection:
                raise ValueError(
                    f"{ref} belongs to {ref.owner!r}, but the function runs on {connection!r}; "
                    "make it again inside this connection"
                )
        names = self._arguments.names(key[0], leaves)
        title = tracing.name_of(self._fun)
        concrete = Concrete(connection, traced.jaxpr, names, self._strategy, title)
        call = CompiledCall(concrete, traced.out_tree, has_static=len(names) < len(leaves))
        connection.calls_of(self)[key] = call
        return call

    def _trace(self, key: Any, leaves: list[Any]) -> _Trace:
        tree = key[0]
        self._arguments.check(tree, leaves, self)
        settings = [leaf.value for leaf in leaves if isinstance(leaf, Static)]
        in_graph = any(isinstance(leaf, Tensor) for leaf in leaves)
        out_trees = []

        def call(*arrays: Any) -> list[Any]:
            args, kwargs = jax.tree.unflatten(tree, with_dynamic(leaves, arrays))
            outputs, out_tree = jax.tree.flatten(_read(self._fun(*args, **kwargs)))
            check_outputs(outputs, out_tree, self)
            out_trees.append(out_tree)
            return outputs

        tracing.name_after(call, self._fun, self._arguments.names(tree, leaves))
        arguments = dynamic(leaves)
        avals = [shape_of(aval_of(x)) for x in arguments]
        with default_request_scope(key[4]):
            jaxpr = trace_with_captures(
                self._fun, settings, lambda: unify.make_jaxpr(call, avals, arguments)
            )
        # Gradients may still be taken of a graph, so it keeps custom derivative rules.
        return _Trace(hoist_state(jaxpr, keep_rules=in_graph), out_trees[-1])

    def _join(self, graph: Graph, traced: _Trace, leaves: list[Any]) -> Any:
        """Adds the traced function to a graph.

        A step that needs any of its results runs all of its effects. A function without results
        is represented by an operation.
        """
        for ref in traced.state:
            if isinstance(ref, ResourceRef) and not ref.is_shared:
                raise ValueError(
                    f"{ref} belongs to {ref.owner!r} alone; the session that runs the graph would "
                    "create another one: give it a shared_name"
                )
        name = graph.unique_name(tracing.name_of(self._fun))
        with graph.as_default(), graph.scopes.replaced(names=f"{name}/"):
            args = [graph.as_tensor(leaf) for leaf in dynamic(leaves)]
            outputs, effects = insert(graph, traced.jaxpr, args)
            if effects:
                # A step runs only what its fetches need, so each result waits for all effects.
                outputs = graph.after(effects, outputs)
                if not outputs:
                    return group(*effects, name="done")
        return jax.tree.unflatten(traced.out_tree, outputs)


_NEVER: tuple[None, dict[Any, CompiledCall]] = (None, {})
"""The last call of a function that has not been called: no connection is None."""


@overload
def function(
    fun: Callable[P, R],
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    placement: str | Callable[..., Any] | None = None,
) -> Function[P, R]: ...


@overload
def function(
    fun: None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    placement: str | Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    placement: str | Callable[..., Any] | None = None,
) -> Any:
    """Compiles a JAX function for the devices of the current connection.

    Like `jax.jit`, but the result runs where `jflow.connect` says, on as many devices as its
    `jflow.device` blocks name, and can read and write eager variables. It is traced once for each
    combination of structure, shapes, dtypes and static values of its arguments. Accesses to a
    variable happen in program order. In this process, what requests no device runs where `jax.jit`
    would run it: on the device that arguments are committed to, or else on that of
    `jax.default_device`; its results are committed to it. Called with graph tensors, or using
    variables of a graph, it becomes part of that graph.

    Args:
      fun: a function of pytrees of arrays that returns a pytree of arrays. It can use all of JAX,
        except that variables cannot be written in loops, branches and `jax.checkpoint`; that a
        loop or branch runs on one device; and that on a cluster a loop cannot call Python, such as
        by `jax.debug.print`.
      static_argnums, static_argnames: positions and names of arguments that are compile-time
        constants; their values must be hashable.
      placement: what chooses the devices of its operations, as in `ConfigProto.placement`; None for
        the connection's. Where the function becomes part of another one or of a graph, that one's
        holds.

    Returns:
      A function with the signature and types of `fun`; if `fun` is None, a decorator.

    Raises:
      TypeError: if `fun` is not callable, or `placement` neither a name nor a function.
      InvalidArgumentError: if there is no such placement strategy.
    """
    if fun is None:
        return functools.partial(
            function,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            placement=placement,
        )
    return Function(fun, static_argnums, static_argnames, placement)


def _target_text(connection: Connection | None) -> str:
    if connection is None:
        return "no connection yet"
    return connection.target or "this process"


def _read(tree: Any) -> Any:
    return jax.tree.map(read_variable, tree)


def _graph_of(traced: _Trace, leaves: list[Any]) -> Graph | None:
    """Returns the graph that a call becomes part of; None if it runs on a connection."""
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            return leaf.graph
    return next((ref.owner for ref in traced.state if isinstance(ref.owner, Graph)), None)
