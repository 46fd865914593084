"""`jflow.function`: a Python function that is traced once a signature and then runs as a graph."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload

import jax
import jax.extend.core as jex
import numpy as np
from jax.api_util import shaped_abstractify
from jax.tree_util import SequenceKey, keystr, tree_flatten

from jflow import _forks
from jflow.cluster import Device
from jflow.deadline import Deadline
from jflow.functions.concrete import Concrete, insert
from jflow.functions.connection import Connection, current
from jflow.functions.nnx import check_nnx_modules
from jflow.graph import Graph, Operation, ResourceRef, Tensor, VariableRef, tracing
from jflow.graph.completion import visible
from jflow.graph.hoisting import hoist_state
from jflow.graph.primitives import state_of
from jflow.graph.tracing import Static
from jflow.ops import Variable, group
from jflow.tracebacks import boundary, hide_frames
from jflow.values import is_key, refuse_host
from jflow.xla import internals
from jflow.xla.internals import ConcreteArray
from jflow.xla.jaxprs import shape_of

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_PLAIN = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


class _Traced(NamedTuple):
    """The equations of a function for one signature, and the structure of its result."""

    jaxpr: jex.ClosedJaxpr
    out_tree: Any

    @property
    def state(self) -> dict[VariableRef | ResourceRef, None]:
        """The variables and resources it uses."""
        return dict.fromkeys(ref for eqn in self.jaxpr.eqns for ref in state_of(eqn))


class _Call(NamedTuple):
    """How to run a signature."""

    run: Concrete
    out_tree: Any
    has_static: bool


@_forks.guarded("__call__")
class Function(Generic[P, R_co]):
    """What `jflow.function` makes of a Python function: callable as it is, with its types."""

    def __init__(
        self,
        fun: Callable[P, R_co],
        static_argnums: int | Iterable[int] = (),
        static_argnames: str | Iterable[str] = (),
    ) -> None:
        if not callable(fun):
            raise TypeError(f"jflow.function takes a function, got {fun!r}")
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._static_nums = _tuple(static_argnums, int)
        self._static_names = frozenset(_tuple(static_argnames, str))
        self._has_static = bool(self._static_nums or self._static_names)
        self._last: tuple[Connection | None, dict[Any, _Call]] = _NEVER
        self._last_call: tuple[Any, Any, Any] = (None, None, None)
        self._first = threading.RLock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Runs on the current connection, or joins what is being built around the call.

        Raises:
          TypeError: if an argument is neither an array, tensor or variable nor static.
          NotImplementedError: if a variable is written in a loop or a branch.
          OpError: as `Session.run`; UnimplementedError if a loop on a cluster calls Python.
          Exception: what a callback raises.
        """
        try:
            if internals.is_tracing():
                inner: R_co = _read(self._fun(*map(_static, args), **kwargs))
                return inner
            calls, key, leaves = self._signature(args, kwargs)
            known, last_key, call = self._last_call  # comparing takes less time than hashing
            deadline = None
            if known is not calls or last_key != key:
                made: _Call | tuple[Graph, _Traced] | None = calls.get(key)
                if made is None:
                    deadline = Deadline(current().timeout)
                    made = self._made(calls, key, leaves, deadline)
                if not isinstance(made, _Call):
                    joined: R_co = self._join(*made, leaves)
                    return joined
                call = made
                self._last_call = calls, key, call
            if call.has_static:
                leaves = _dynamic(leaves)
            result: R_co = call.out_tree.unflatten(call.run(leaves, deadline))
            return result
        except Exception as error:
            hide_frames(error)
            raise

    @boundary
    def placement(self, *args: P.args, **kwargs: P.kwargs) -> dict[Operation, Device]:
        """Where each operation of a call with these arguments runs; for looking at.

        Raises:
          TypeError: if the call would become part of a graph; `Session.placement` tells then.
        """
        deadline = Deadline(current().timeout)
        call = self._made(*self._signature(args, kwargs), deadline)
        if not isinstance(call, _Call):
            raise TypeError(f"{self!r} is part of a graph here; ask Session.placement")
        return call.run.placement()

    def forget(self, connection: Connection) -> None:
        """Drops what is known about a connection that is closed."""
        if self._last[0] is connection:
            self._last, self._last_call = _NEVER, (None, None, None)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...

    @overload
    def __get__(
        self: Function[Concatenate[Any, Rest], R], instance: object, owner: Any = None
    ) -> Callable[Rest, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method's function takes the object it belongs to, which is hashed, as static."""
        if instance is None:
            return self
        fun: Any = self
        method = functools.partial(fun, Static.of(instance))
        method.__doc__ = fun.__doc__
        return method

    def __repr__(self) -> str:
        return f"<jflow.function {tracing.name_of(self._fun)}>"

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "forget")

    # The first call of a signature ------------------------------------------------------------

    def _signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[Any, _Call], Any, list[Any]]:
        """The calls known here, what decides about the equations, and the arguments' leaves."""
        if self._has_static:
            args, kwargs = self._marked(args, kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        connection = current()
        last, calls = self._last  # read and set as one, because threads may be on other connections
        if connection is not last:
            calls = connection.calls_of(self)
            self._last = connection, calls
        try:
            kinds = [x.aval if type(x) is ConcreteArray else _kind(x) for x in leaves]
        except OverflowError as error:
            raise ValueError(f"{self!r} got a number too large: {error}") from None
        settings = internals.trace_context()
        return calls, (tree, tuple(kinds), settings, internals.debug_nans.value), leaves

    def _made(
        self, calls: dict[Any, _Call], key: Any, leaves: list[Any], deadline: Deadline
    ) -> _Call | tuple[Graph, _Traced]:
        """How to run a signature, or the graph that the call becomes part of and its equations."""
        # One thread traces; others with the same signature wait for its result.
        with deadline.holding(self._first, f"waiting for {self!r} to be traced"):
            call = calls.get(key)
            if call is not None:
                return call
            traced = self._trace(key, leaves)
            graph = _graph_of(traced, leaves)
            return self._make_call(key, traced, leaves) if graph is None else (graph, traced)

    def _make_call(self, key: Any, traced: _Traced, leaves: list[Any]) -> _Call:
        connection = current()
        for ref in traced.state:
            is_own = isinstance(ref, ResourceRef) and not ref.is_shared
            if ref.owner is not connection if is_own else ref.owner != connection:
                raise ValueError(
                    f"{ref} belongs to {ref.owner!r}, the function runs on {connection!r}; "
                    "make it again under this connection"
                )
        names = [
            self._argument(path, simple=True, separator="/")
            for path, leaf in zip(_paths(key[0], leaves), leaves, strict=True)
            if not isinstance(leaf, _STATIC)
        ]
        concrete = Concrete(connection, traced.jaxpr, names)
        call = _Call(concrete, traced.out_tree, has_static=len(names) < len(leaves))
        connection.calls_of(self)[key] = call
        return call

    def _trace(self, key: Any, leaves: list[Any]) -> _Traced:
        tree = key[0]
        self._check(tree, leaves)
        check_nnx_modules(self._fun, [leaf.value for leaf in leaves if isinstance(leaf, Static)])
        in_graph = any(isinstance(leaf, Tensor) for leaf in leaves)
        out_trees = []

        def call(*arrays: Any) -> list[Any]:
            rest = iter(arrays)
            filled = [_static(leaf) if isinstance(leaf, _STATIC) else next(rest) for leaf in leaves]
            args, kwargs = jax.tree.unflatten(tree, filled)
            outputs, out_tree = jax.tree.flatten(_read(self._fun(*args, **kwargs)))
            _check_outputs(outputs, out_tree, self)
            out_trees.append(out_tree)
            return outputs

        names = [
            self._argument(path, simple=True)
            for path, leaf in zip(_paths(tree, leaves), leaves, strict=True)
            if not isinstance(leaf, _STATIC)
        ]
        tracing.name_after(call, self._fun, names)
        avals = map(_aval, _dynamic(leaves))
        jaxpr = tracing.make_jaxpr(call, [shape_of(aval) for aval in avals])
        return _Traced(hoist_state(jaxpr, keep_rules=in_graph), out_trees[-1])

    def _join(self, graph: Graph, traced: _Traced, leaves: list[Any]) -> Any:
        """Adds the function to a graph. All of its effects happen in a step that needs one of its
        results, or the operation that represents a function without results."""
        for ref in traced.state:
            if isinstance(ref, ResourceRef) and not ref.is_shared:
                raise ValueError(
                    f"{ref} belongs to {ref.owner!r} alone, and the session that runs the graph "
                    "would have one of its own; give it a shared_name"
                )
        name = graph.unique_name(tracing.name_of(self._fun))
        with graph.as_default(), graph.scopes.replaced(names=f"{name}/"):
            args = [graph.as_tensor(leaf) for leaf in _dynamic(leaves)]
            outputs, effects = insert(graph, traced.jaxpr, args)
            if effects:
                outputs = graph.after(effects, outputs)
                if not outputs:
                    return group(*effects, name="done")
        return jax.tree.unflatten(traced.out_tree, outputs)

    # Arguments --------------------------------------------------------------------------------

    def _marked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments with the static ones marked as such."""
        nums = {n % len(args) if n < 0 and args else n for n in self._static_nums}
        marked = tuple(Static.of(a) if i in nums else a for i, a in enumerate(args))
        named = {k: Static.of(v) if k in self._static_names else v for k, v in kwargs.items()}
        return marked, named

    def _check(self, tree: Any, leaves: list[Any]) -> None:
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, (*_PLAIN, Tensor, *_STATIC)):
                raise TypeError(
                    f"{self!r} got {leaf!r:.80} of type {type(leaf).__name__} as "
                    f"{self._argument(_paths(tree, leaves)[number])}, where an array or a number "
                    "is expected; name "
                    "arguments that are settings in static_argnums or static_argnames, or bind "
                    "them with functools.partial"
                )
            if isinstance(leaf, Tensor):
                refuse_host(leaf, self)

    def _argument(self, path: tuple[Any, ...], **style: Any) -> str:
        """The name of the argument that a leaf belongs to, and the path of the leaf in it."""
        _, first, *inside = path
        if isinstance(first, SequenceKey):
            names = _parameters(self._fun)
            name = names[first.idx] if first.idx < len(names) else f"argument {first.idx}"
        else:
            name = first.key
        rest = keystr(tuple(inside), **style)
        return f"{name}/{rest}" if style and rest else name + rest


_NEVER: tuple[None, dict[Any, _Call]] = (None, {})

_STATIC = (Static, Variable)
"""Leaves that the function gets as they are, variables among them."""


@overload
def function(
    fun: Callable[P, R],
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Function[P, R]: ...


@overload
def function(
    fun: None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """Makes a function of JAX code that runs where `jflow.connect` says.

    It is traced once for each kind of arguments (structure, shapes, dtypes, static values), placed
    by the `jflow.device` blocks in it and around its call, compiled, and run there from then on. It
    may read and write eager variables; they are used in the order of its lines. Called with
    graph tensors, or using a graph's variables, it becomes part of that graph.

    Args:
      fun: takes and returns pytrees of arrays. May use everything of JAX, with these exceptions:
        variables are not written in loops, branches and `jax.checkpoint`; what is in a loop or
        branch runs on one device; on a cluster a loop calls no Python (`jax.debug.print` and its
        like).
      static_argnums, static_argnames: arguments that are settings; they must be hashable.

    Returns:
      The function, with the signature and types of `fun`; without `fun`, a decorator.
    """
    if fun is None:
        return functools.partial(
            function, static_argnums=static_argnums, static_argnames=static_argnames
        )
    return Function(fun, static_argnums, static_argnames)


def _tuple(values: Any, single: type) -> tuple[Any, ...]:
    return (values,) if isinstance(values, single) else tuple(values)


def _kind(leaf: Any) -> Any:
    """The properties of an argument that the equations depend on."""
    if isinstance(leaf, jax.Array) and is_key(leaf.dtype):
        return leaf.shape, leaf.dtype  # which takes far less time than the abstract value
    if isinstance(leaf, _PLAIN):
        return shaped_abstractify(leaf)
    return leaf  # static or refused


def _aval(leaf: Any) -> Any:
    return leaf.aval if isinstance(leaf, Tensor) else shaped_abstractify(leaf)


def _static(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def _read(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.value() if isinstance(x, Variable) else x, tree)


def _check_outputs(outputs: Sequence[Any], tree: Any, fun: Function[..., Any]) -> None:
    for number, output in enumerate(outputs):
        if not isinstance(output, _PLAIN):
            raise TypeError(
                f"{fun!r} returns {output!r:.80} of type {type(output).__name__} as "
                f"result{keystr(_paths(tree, outputs)[number])}, where an array or a number is "
                "expected"
            )
        if isinstance(output, int):
            try:
                shaped_abstractify(output)
            except OverflowError as error:
                raise ValueError(f"{fun!r} returns a number too large: {error}") from None


def _paths(tree: Any, leaves: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Where each leaf is in a structure."""
    return [path for path, _ in jax.tree.leaves_with_path(tree.unflatten(leaves))]


def _parameters(fun: Callable[..., Any]) -> list[str]:
    """Names of the parameters that arguments without a name go to."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []  # some built-in functions have no signature
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in positional]


def _graph_of(traced: _Traced, leaves: list[Any]) -> Graph | None:
    """The graph that a call becomes part of, if any."""
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            return leaf.graph
    return next((ref.owner for ref in traced.state if isinstance(ref.owner, Graph)), None)


def _dynamic(leaves: list[Any]) -> list[Any]:
    """The leaves that come with each call."""
    return [leaf for leaf in leaves if not isinstance(leaf, _STATIC)]
