"""`ScopedMembers`: the blocks in which operations of a graph are made, as methods of the graph."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from typing import Any

from jflow.base.cards import Card, Carded
from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import request, stack
from jflow.compiler.graph.device_blocks import device
from jflow.compiler.graph.members import GraphMember, Members
from jflow.compiler.graph.symbolic import Symbolic

_CONTAINER = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")


class _Entered(threading.local):
    """The entries of a context manager on this thread that were not exited."""

    def __init__(self) -> None:
        self.stacks: list[ExitStack] = []


class _ContainerScope(Carded, ContextDecorator, AbstractContextManager[None]):
    """The context manager that `container` returns; it may be entered again, and on any thread."""

    def __init__(self, scopes: stack.Scopes, name: str) -> None:
        self._scopes = scopes
        self._name = name
        self._entered = _Entered()

    def __enter__(self) -> None:
        entered = ExitStack()
        entered.enter_context(self._scopes.replaced(container=self._name))
        self._entered.stacks.append(entered)

    def __exit__(self, *error: object) -> None:
        self._entered.stacks.pop().close()

    def __repr__(self) -> str:
        return f"<jflow.container {self._name!r}>"

    def _card(self) -> Card:
        name = self._name or "the default container"
        note = "State that is made in its with block lives there, and outlives the session."
        return Card("container", name, note=note)


class ScopedMembers(Members):
    """Operations and tensors of a graph, and the scopes of new ones.

    Attributes:
      scopes: the current scope of each thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scopes = stack.Scopes()

    def device(
        self, device_name_or_function: str | DeviceSpec | Callable[[Any], Any] | None
    ) -> AbstractContextManager[Any]:
        """Returns a context manager whose operations request a device; see `jflow.device`."""
        return device(device_name_or_function)

    def container(self, container_name: str) -> AbstractContextManager[None]:
        """Returns a context manager whose state lives in a container; see `jflow.container`."""
        if container_name and not _CONTAINER.fullmatch(container_name):
            raise ValueError(
                f"{container_name!r} is not a container name: expected a letter, digit or '.', "
                "then letters, digits and any of '_.-/'"
            )
        return _ContainerScope(self.scopes, container_name)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Context manager that prefixes the names of operations; see `jflow.name_scope`."""
        if not name:
            prefix = ""
        elif name.endswith("/"):
            prefix = name
        else:
            prefix = self.unique_name(name) + "/"
        with self.scopes.replaced(names=prefix):
            yield prefix

    def get_name_scope(self) -> str:
        """Returns the current prefix of names, without the last "/"."""
        return self.scopes.here.names.removesuffix("/")

    def unique_name(self, name: str) -> str:
        """Reserves `name` under the current name scope, with `_1`, `_2`, … when it is taken.

        Raises ValueError if it is not a valid name.
        """
        with self._lock:
            return self._names.unique(self.scopes.here.names + name)

    def control_dependencies(
        self, control_inputs: Iterable[Any] | None
    ) -> AbstractContextManager[None]:
        """Returns a context manager whose operations run after others.

        See `jflow.control_dependencies`.
        """
        if control_inputs is None:
            return self.scopes.replaced(control_inputs=())
        wanted = "a control input must be an operation or a tensor"
        added = dict.fromkeys(self.scopes.here.control_inputs)
        added.update(dict.fromkeys(_operation(x, wanted) for x in control_inputs))
        return self.scopes.replaced(control_inputs=tuple(added))

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> AbstractContextManager[Any]:
        """Returns a context manager whose operations run where another does.

        See `jflow.colocate_with`.
        """
        if op is None and not ignore_existing:
            raise ValueError("colocate_with(None) requires ignore_existing=True")
        names: list[str | None] = [None] if ignore_existing else []
        if op is not None:
            target = _operation(op, "colocate_with requires an operation, a tensor or a variable")
            if target.graph is not self:
                raise ValueError(f"{target!r} belongs to another graph than the one being built")
            names.append(target.name)
        return request.request_scope(request.Request((None,), tuple(names)))

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """Returns the operation or tensor of this graph that an object or a name stands for.

        Args:
          obj: an operation, a tensor, a variable, or a name, with ":" that of a tensor.
          allow_tensor, allow_operation: which of them may be returned.

        Raises:
          TypeError: if it is of another type, or of one that is not allowed.
          ValueError: if it belongs to another graph, or nothing is allowed.
          KeyError: if nothing has that name.
        """
        if not (allow_tensor or allow_operation):
            raise ValueError("allow_tensor and allow_operation can't both be False.")
        found = obj
        if isinstance(obj, str):
            is_tensor = ":" in obj
            found = self.get_tensor_by_name(obj) if is_tensor else self.get_operation_by_name(obj)
        elif isinstance(obj, Symbolic):
            found = obj.graph_element()
        if not isinstance(found, GraphMember):
            raise TypeError(f"Can not convert a {type(obj).__name__} into a graph element: {obj!r}")
        is_operation = hasattr(found, "outputs")
        if not (allow_operation if is_operation else allow_tensor):
            wanted = "a Tensor" if is_operation else "an Operation"
            raise TypeError(f"Can not convert {obj!r} into {wanted}.")
        if getattr(found, "graph", None) is not self:
            raise ValueError(f"{obj!r} is not an element of this graph.")
        return found


def _operation(value: Any, wanted: str) -> Any:
    op = value if hasattr(value, "outputs") else getattr(value, "op", None)
    if not (isinstance(op, GraphMember) and hasattr(op, "outputs")):
        raise TypeError(f"{wanted}, got {value!r}")
    return op
