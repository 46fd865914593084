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
from jax.tree_util import SequenceKey, keystr

from jflow.function.closures import check_closure
from jflow.function.concrete import Concrete, insert
from jflow.function.connection import Connection, current
from jflow.graph import Graph, Tensor, VariableRef, internals, tracing
from jflow.graph.equations import shape_of
from jflow.graph.flatten import flatten
from jflow.graph.primitives import ACCESSES
from jflow.graph.tracing import Static
from jflow.ops import Variable, group, identity

_PLAIN = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


class _Traced(NamedTuple):
    """The equations of a function for one signature, and the structure of its result."""

    jaxpr: jex.ClosedJaxpr
    out_tree: Any

    @property
    def variables(self) -> dict[VariableRef, None]:
        """The variables it uses."""
        eqns = self.jaxpr.eqns
        return dict.fromkeys(e.params["variable"] for e in eqns if e.primitive in ACCESSES)


class _Call(NamedTuple):
    run: Concrete
    out_tree: Any


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
        self._first = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs on the current connection, or joins what is being built around the call.

        Raises:
          TypeError: if an argument is neither an array, tensor or variable nor static.
          NotImplementedError: if a variable is written in a loop or a branch.
          OpError: as `Session.run`.
        """
        if internals.is_tracing():
            return self._fun(*args, **kwargs)
        if self._has_static:
            args, kwargs = self._marked(args, kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        connection = current()
        calls: dict[Any, _Call] = connection.calls_of(self)
        try:
            key = (tree, tuple([_key(leaf) for leaf in leaves]), internals.trace_context())
        except OverflowError as error:
            raise ValueError(f"{self!r} got a number too large: {error}") from None
        call = calls.get(key)
        if call is None:
            # One thread traces and compiles for all that come meanwhile.
            with self._first:
                call = calls.get(key)
                if call is None:
                    made = self._first_call(connection, tree, leaves)
                    if not isinstance(made, _Call):
                        return made.value
                    call = calls[key] = made
        values = call.run([leaf for leaf in leaves if not isinstance(leaf, _STATIC)])
        return jax.tree.unflatten(call.out_tree, values)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method's function takes the object it belongs to as a static argument."""
        return self if instance is None else functools.partial(self, Static.of(instance))

    def __repr__(self) -> str:
        return f"<jflow.function {tracing.name_of(self._fun)}>"

    # The first call of a signature ------------------------------------------------------------

    def _first_call(self, connection: Connection, tree: Any, leaves: list[Any]) -> Any:
        self._check(tree, leaves)
        check_closure(self._fun, [leaf.value for leaf in leaves if isinstance(leaf, Static)])
        graph = next((leaf.graph for leaf in leaves if isinstance(leaf, Tensor)), None)
        traced = self._trace(tree, leaves, keep_rules=graph is not None)
        graph = graph or _graph_of(traced.variables)
        if graph is not None:
            return Static.of(self._join(graph, traced, leaves))
        for variable in traced.variables:
            if variable.keeper != connection:
                raise ValueError(
                    f"{variable} belongs to {variable.keeper!r}, the function runs on "
                    f"{connection!r}; make the variable again under this connection"
                )
        return _Call(Concrete(connection, traced.jaxpr), traced.out_tree)

    def _trace(self, tree: Any, leaves: list[Any], keep_rules: bool) -> _Traced:
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
        avals = [_aval(leaf) for leaf in leaves if not isinstance(leaf, _STATIC)]
        jaxpr = tracing.make_jaxpr(call, [shape_of(aval) for aval in avals])
        return _Traced(flatten(jaxpr, keep_rules=keep_rules), out_trees[-1])

    def _join(self, graph: Graph, traced: _Traced, leaves: list[Any]) -> Any:
        """Adds the function to a graph. Who uses a result, or the operation that stands for no
        result, makes all of its writes happen."""
        name = graph.unique_name(tracing.name_of(self._fun))
        with graph.as_default(), graph.scopes.replaced(names=f"{name}/"):
            args = [graph.as_tensor(x) for x in leaves if not isinstance(x, _STATIC)]
            outputs, writes = insert(graph, traced.jaxpr, args)
            if writes:
                with graph.scopes.replaced(control_inputs=(*graph.scopes.control_inputs, *writes)):
                    outputs = [identity(tensor) for tensor in outputs]
                if not outputs:
                    return group(*writes, name="done")
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
                    f"{self._argument(tree, number)}, where an array or a number is expected; name "
                    "arguments that are settings in static_argnums or static_argnames, or bind "
                    "them with functools.partial"
                )

    def _argument(self, tree: Any, number: int) -> str:
        """The name of an argument that a leaf belongs to, and the way to the leaf in it."""
        _, first, *inside = _path(tree, number)
        if isinstance(first, SequenceKey):
            names = list(inspect.signature(self._fun).parameters)
            name = names[first.idx] if first.idx < len(names) else f"argument {first.idx}"
        else:
            name = first.key
        return name + keystr(tuple(inside))


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
      fun: takes and returns pytrees of arrays. May use everything of JAX, with two exceptions:
        variables are not written in loops, branches and `jax.checkpoint`, and what is in a loop
        or branch runs on one device.
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


def _key(leaf: Any) -> Any:
    """What of an argument decides about the equations."""
    if isinstance(leaf, jax.Array):
        return leaf.aval
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
                f"result{keystr(_path(tree, number))}, where an array or a number is expected"
            )
        if isinstance(output, int):
            try:
                shaped_abstractify(output)
            except OverflowError as error:
                raise ValueError(f"{fun!r} returns a number too large: {error}") from None


def _path(tree: Any, number: int) -> tuple[Any, ...]:
    """Where a leaf is in a structure."""
    paths = jax.tree.leaves_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))
    path: tuple[Any, ...] = paths[number][0]
    return path


def _graph_of(variables: Iterable[VariableRef]) -> Graph | None:
    return next((v.keeper for v in variables if isinstance(v.keeper, Graph)), None)
