"""Variable scopes: a prefix of names, reuse, and defaults for `get_variable`.

`variable_scope` extends the current scope, or enters a scope again. The current scope belongs to a
graph and a thread, like name scopes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from jflow.base.context import Stack
from jflow.client.ops import Variable
from jflow.compiler.graph import Graph, GraphKeys, name_scope
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.scope import graph_of_values


class ReuseMode:
    """The type of `AUTO_REUSE`: `get_variable` returns an existing variable, or else makes it."""

    def __repr__(self) -> str:
        return "jflow.AUTO_REUSE"


AUTO_REUSE = ReuseMode()

Reuse = bool | ReuseMode | None

_FLOAT32 = np.dtype(np.float32)
T = TypeVar("T")


@dataclass(eq=False)
class VariableScope:
    """A prefix of variable names, and defaults for `get_variable`.

    Nested scopes inherit all attributes. For the meaning of the defaults see `jflow.get_variable`.

    Attributes:
      name: the prefix without the last "/", "" for the outermost scope.
      reuse: False to make variables, True to return those that exist, or `AUTO_REUSE`.
      initializer, regularizer, caching_device, partitioner, custom_getter, constraint: defaults;
        None for none.
      dtype: the default dtype.
      use_resource: kept for programs of TensorFlow; without effect.
      original_name_scope: the name scope that was first opened with it, with "/".
    """

    name: str = ""
    reuse: Reuse = False
    initializer: Any = None
    regularizer: Callable[[Any], Any] | None = None
    caching_device: Any = None
    partitioner: Any = None
    custom_getter: Callable[..., Any] | None = None
    dtype: Any = _FLOAT32
    use_resource: bool | None = None
    constraint: Callable[[Any], Any] | None = None
    original_name_scope: str = ""

    def reuse_variables(self) -> None:
        """Makes this scope, and those opened inside it from now on, return existing variables."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Sets the default initializer."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Callable[[Any], Any] | None) -> None:
        """Sets the default regularizer."""
        self.regularizer = regularizer

    def set_partitioner(self, partitioner: Any) -> None:
        """Sets the default partitioner."""
        self.partitioner = partitioner

    def set_caching_device(self, caching_device: Any) -> None:
        """Sets the default caching device."""
        self.caching_device = caching_device

    def set_custom_getter(self, custom_getter: Callable[..., Any] | None) -> None:
        """Sets the default custom getter."""
        self.custom_getter = custom_getter

    def set_dtype(self, dtype: Any) -> None:
        """Sets the default dtype."""
        self.dtype = dtype

    def get_collection(self, name: str) -> list[Any]:
        """Returns the items of a collection whose names start with the scope's name."""
        scope = f"{self.name}/" if self.name else None
        return _default_graph().get_collection(name, scope)

    def global_variables(self) -> list[Variable]:
        """Returns the global variables of the scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Variable]:
        """Returns the local variables of the scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Variable]:
        """Returns the trainable variables of the scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def full_name(self, name: str) -> str:
        """Returns a variable's name with the scope's prefix."""
        return f"{self.name}/{name}" if self.name else name


class _OpenCounts(threading.local):
    """How often this thread has opened each scope by name, to make default names unique."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.root = VariableScope()


class ScopeStack:
    """The variable scopes of a graph."""

    def __init__(self) -> None:
        self.blocks: Stack[VariableScope] = Stack(is_strict=False)
        self.opened = _OpenCounts()

    @property
    def current(self) -> VariableScope:
        """The scope that is current in this thread; outside of all contexts, the root scope."""
        return self.blocks.top or self.opened.root


_making = threading.Lock()


def of_graph(kind: type[T], graph: Graph) -> T:
    """Returns the object of a class that a graph has for itself; makes it at the first call."""
    with _making:
        entries = graph.get_collection_ref((f"__{kind.__name__}",))
        if not entries:
            entries.append(kind())
    made: T = entries[0]
    return made


def get_variable_scope() -> VariableScope:
    """Returns the current variable scope of the default graph."""
    return of_graph(ScopeStack, _default_graph()).current


@contextmanager
def variable_scope(  # noqa: PLR0913, PLR0917 - TensorFlow's arguments
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Callable[..., Any] | None = None,
    reuse: Reuse = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Callable[[Any], Any] | None = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """A context manager that prefixes variable names with `name/`; yields the variable scope.

    It opens a name scope as well, for operations and for `Variable`. Opened again, the name scope
    gets a number and the variable scope does not, so `get_variable` finds its variables.

    Args:
      name_or_scope: a name, which extends that of the current scope; or a scope to enter again,
        from anywhere; or None for `default_name`.
      default_name: a name that is made unique: `d`, `d_1`, ….
      values: as for `jflow.name_scope`.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: defaults of the scope; None for those of the enclosing scope, or of the scope
        that is entered again. Custom getters of nested scopes call each other, the innermost one
        first.
      reuse: True or `AUTO_REUSE`; None or False for that of the enclosing scope.
      auxiliary_name_scope: whether it opens a name scope.

    Raises:
      TypeError: if `name_or_scope` is neither, there is no name at all, or `auxiliary_name_scope`
        is neither True nor False.
      ValueError: if there is only a default name with `reuse=True`, or `reuse` is something else.
    """
    _check_arguments(name_or_scope, default_name, reuse, auxiliary_name_scope)
    changed = {
        "initializer": initializer,
        "regularizer": regularizer,
        "caching_device": caching_device,
        "partitioner": partitioner,
        "dtype": dtype,
        "use_resource": use_resource,
        "constraint": constraint,
    }
    given_defaults = {key: value for key, value in changed.items() if value is not None}
    with (
        graph_of_values(values) as graph,
        _name_scope(graph, name_or_scope, default_name, auxiliary_name_scope) as names,
    ):
        scopes = of_graph(ScopeStack, graph)
        is_entered_again = isinstance(name_or_scope, VariableScope)
        base = _scope_to_enter(scopes, name_or_scope, default_name, names)
        getter = chained(custom_getter, base.custom_getter)
        scope = replace(base, reuse=reuse or base.reuse, custom_getter=getter, **given_defaults)
        with _enter_scope(scopes, scope, is_entered_again):
            yield scope


def _scope_to_enter(
    scopes: ScopeStack,
    name_or_scope: str | VariableScope | None,
    default_name: str | None,
    names: str,
) -> VariableScope:
    """Returns the scope to enter, before the caller's changes to its defaults."""
    if isinstance(name_or_scope, VariableScope):
        return name_or_scope
    scope_name = _unique_name(scopes, default_name) if name_or_scope is None else name_or_scope
    name = scopes.current.full_name(scope_name) if scope_name else scopes.current.name
    return replace(scopes.current, name=name, original_name_scope=names)


def _check_arguments(
    name_or_scope: Any, default_name: str | None, reuse: Reuse, auxiliary_name_scope: Any
) -> None:
    if not isinstance(auxiliary_name_scope, bool):
        raise TypeError(
            f"auxiliary_name_scope must be True or False, got {auxiliary_name_scope!r:.80}"
        )
    if reuse not in (None, True, False, AUTO_REUSE):
        raise ValueError(f"The reuse parameter must be True or False or None, got {reuse!r:.80}")
    if not isinstance(name_or_scope, str | VariableScope | None):
        raise TypeError(
            f"expected the name of a variable scope, or a scope, got {type(name_or_scope).__name__}"
        )
    if name_or_scope is None and default_name is None:
        raise TypeError("If default_name is None then name_or_scope is required")
    if name_or_scope is None and reuse:
        raise ValueError("reuse=True cannot be used without a name_or_scope")


def _name_scope(
    graph: Graph, name_or_scope: Any, default_name: str | None, is_auxiliary: bool
) -> AbstractContextManager[str]:
    """Returns the name scope of a variable scope, which yields the prefix of names."""
    if isinstance(name_or_scope, VariableScope):
        name: str | None = name_or_scope.name.rpartition("/")[2]
    else:
        name = default_name if name_or_scope is None else name_or_scope
    return name_scope(name) if is_auxiliary and name else nullcontext(graph.scopes.here.names)


@contextmanager
def _enter_scope(
    scopes: ScopeStack, scope: VariableScope, is_entered_again: bool
) -> Iterator[None]:
    """Makes a scope current; on exit, default names inside it are counted from the start again."""
    opened = scopes.opened
    opened.counts[scope.name] += 1
    before = opened.counts.copy()
    try:
        with scopes.blocks.pushed(scope):
            yield
    finally:
        if is_entered_again:
            opened.counts = before
        else:
            for name in [name for name in opened.counts if name.startswith(f"{scope.name}/")]:
                del opened.counts[name]


def _unique_name(scopes: ScopeStack, name: str | None) -> str:
    assert name is not None
    full = scopes.current.full_name(name)
    if not scopes.opened.counts[full]:
        return name
    number = 1
    while scopes.opened.counts[f"{full}_{number}"]:
        number += 1
    return f"{name}_{number}"


def chained(
    inner: Callable[..., Any] | None, outer: Callable[..., Any] | None
) -> Callable[..., Any] | None:
    """Returns a custom getter that calls `inner` with `outer` as its getter."""
    if inner is None or outer is None:
        return inner or outer

    def getter(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def next_getter(*args: Any, **kwargs: Any) -> Any:
            return outer(getter, *args, **kwargs)

        return inner(next_getter, *args, **kwargs)

    return getter
