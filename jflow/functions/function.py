"""`jflow.function`: a Python function that is traced once a signature and then runs as a graph."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import numpy as np
from jax.api_util import shaped_abstractify
from jax.tree_util import SequenceKey, keystr, tree_flatten

from jflow.cluster import Device
from jflow.functions.closures import check_closure
from jflow.functions.concrete import Concrete, insert
from jflow.functions.connection import Connection, current
from jflow.graph import Graph, Operation, ResourceRef, Tensor, VariableRef, internals, tracing
from jflow.graph.equations import shape_of
from jflow.graph.flatten import flatten
from jflow.graph.host import refuse_host
from jflow.graph.internals import ConcreteArray
from jflow.graph.primitives import state_of
from jflow.graph.tracing import Static
from jflow.ops import Variable, group

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


class Function:
    """What `jflow.function` makes of a Python function."""

    def __init__(
        self,
        fun: Callable[..., Any],
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs on the current connection, or joins what is being built around the call.

        Raises:
          TypeError: if an argument is neither an array, tensor or variable nor static.
          NotImplementedError: if a variable is written in a loop or a branch.
          OpError: as `Session.run`; UnimplementedError if a loop on a cluster calls Python.
          Exception: what a callback raises.
        """
        if internals.is_tracing():
            return _read(self._fun(*map(_static, args), **kwargs))
        calls, key, leaves = self._signature(args, kwargs)
        known, last_key, call = self._last_call  # comparing takes less time than hashing
        if known is not calls or last_key != key:
            made = calls.get(key) or self._made(calls, key, leaves)
            if not isinstance(made, _Call):
                return self._join(*made, leaves)
            call = made
            self._last_call = calls, key, call
        if call.has_static:
            leaves = _dynamic(leaves)
        return call.out_tree.unflatten(call.run(leaves))

    def placement(self, *args: Any, **kwargs: Any) -> dict[Operation, Device]:
        """Where each operation of a call with these arguments runs; for looking at.

        Raises:
          TypeError: if the call would become part of a graph; `Session.placement` tells then.
        """
        call = self._made(*self._signature(args, kwargs))
        if not isinstance(call, _Call):
            raise TypeError(f"{self!r} is part of a graph here; ask Session.placement")
        return call.run.placement()

    def forget(self, connection: Connection) -> None:
        """Lets go of a connection that is closed."""
        if self._last[0] is connection:
            self._last, self._last_call = _NEVER, (None, None, None)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method's function takes the object it belongs to, which is hashed, as static."""
        return self if instance is None else functools.partial(self, Static.of(instance))

    def __repr__(self) -> str:
        return f"<jflow.function {tracing.name_of(self._fun)}>"

    # The first call of a signature ------------------------------------------------------------

    def _signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[Any, _Call], Any, list[Any]]:
        """The calls known here, what decides about the equations, and the arguments' leaves."""
        if self._has_static:
            args, kwargs = self._marked(args, kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        connection = current()
        last, calls = self._last  # read and set as one, for threads may be on other connections
        if connection is not last:
            calls = connection.calls_of(self)
            self._last = connection, calls
        try:
            kinds = [x.aval if type(x) is ConcreteArray else _kind(x) for x in leaves]
        except OverflowError as error:
            raise ValueError(f"{self!r} got a number too large: {error}") from None
        return calls, (tree, tuple(kinds), internals.trace_context()), leaves

    def _made(
        self, calls: dict[Any, _Call], key: Any, leaves: list[Any]
    ) -> _Call | tuple[Graph, _Traced]:
        """How to run a signature, or the graph that the call becomes part of and its equations."""
        # One thread traces and compiles for all that come meanwhile.
        with self._first:
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
            if ref.keeper is not connection if is_own else ref.keeper != connection:
                raise ValueError(
                    f"{ref} belongs to {ref.keeper!r}, the function runs on {connection!r}; "
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
        check_closure(self._fun, [leaf.value for leaf in leaves if isinstance(leaf, Static)])
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

        call.__name__ = call.__qualname__ = tracing.name_of(self._fun)
        avals = map(_aval, _dynamic(leaves))
        jaxpr = tracing.make_jaxpr(call, [shape_of(aval) for aval in avals])
        return _Traced(flatten(jaxpr, keep_rules=in_graph), out_trees[-1])

    def _join(self, graph: Graph, traced: _Traced, leaves: list[Any]) -> Any:
        """Adds the function to a graph. Who uses a result, or the operation that stands for no
        result, makes all of its effects happen."""
        for ref in traced.state:
            if isinstance(ref, ResourceRef) and not ref.is_shared:
                raise ValueError(
                    f"{ref} belongs to {ref.keeper!r} alone, and the session that runs the graph "
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
        """The name of an argument that a leaf belongs to, and the way to the leaf in it."""
        _, first, *inside = path
        if isinstance(first, SequenceKey):
            names = _parameters(self._fun)
            name = names[first.idx] if first.idx < len(names) else f"argument {first.idx}"
        else:
            name = first.key
        way = keystr(tuple(inside), **style)
        return f"{name}/{way}" if style and way else name + way


_NEVER: tuple[None, dict[Any, _Call]] = (None, {})

_STATIC = (Static, Variable)
"""Leaves that the function gets as they are; a variable among them."""


def function(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """Makes a function of JAX code that runs where `jflow.connect` says.

    It is traced once for each kind of arguments (structure, shapes, dtypes, static values), placed
    by the `jflow.device` blocks in it and around its call, compiled, and run there from then on. It
    may read and write live variables; they are used in the order of its lines. Called with
    graph tensors, or using a graph's variables, it becomes part of that graph.

    Args:
      fun: takes and returns pytrees of arrays. May use everything of JAX, with these exceptions:
        variables are not written in loops, branches and `jax.checkpoint`; what is in a loop or
        branch runs on one device; on a cluster a loop calls no Python (`jax.debug.print` and its
        like).
      static_argnums, static_argnames: arguments that are settings; they must be hashable.

    Returns:
      The function; without `fun`, a decorator.
    """
    if fun is None:
        return functools.partial(
            function, static_argnums=static_argnums, static_argnames=static_argnames
        )
    return Function(fun, static_argnums, static_argnames)


def _tuple(values: Any, single: type) -> tuple[Any, ...]:
    return (values,) if isinstance(values, single) else tuple(values)


def _kind(leaf: Any) -> Any:
    """What of an argument decides about the equations."""
    if isinstance(leaf, _PLAIN):
        return shaped_abstractify(leaf)
    return leaf  # static or refused


def _aval(leaf: Any) -> Any:
    return leaf.aval if isinstance(leaf, Tensor) else shaped_abstractify(leaf)


def _static(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def _read(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.value() if isinstance(x, Variable) else x, tree)


def _check_outputs(outputs: Sequence[Any], tree: Any, fun: Function) -> None:
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
    return next((ref.keeper for ref in traced.state if isinstance(ref.keeper, Graph)), None)


def _dynamic(leaves: list[Any]) -> list[Any]:
    """The leaves that come with each call."""
    return [leaf for leaf in leaves if not isinstance(leaf, _STATIC)]
