"""`InteractiveSession`: a session that is the default one from its start to its end."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

from jflow.base.options import ConfigProto
from jflow.client.session.session import Session
from jflow.compiler.graph import Graph, stack
from jflow.compiler.graph.graph import graphs

_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()


class InteractiveSession(Session):
    """A session for shells and notebooks: the default session of its thread until it is closed.

    `tensor.eval()` and `op.run()` use it without a `with` block. If it is given a graph, that is
    the default graph of the thread, too. A second one that is opened on any thread before the
    first is closed warns, because each may hold the memory of its variables.

    Args:
      target, graph, config: as for `Session`.

    Raises:
      TypeError, NotFoundError, ValueError: as `Session`.
    """

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: ConfigProto | None = None
    ) -> None:
        self._pushed: list[Callable[[], None]] = []
        super().__init__(target, graph, config)
        if _OPEN:
            warnings.warn(
                "An interactive session is already active. This can cause out-of-memory errors in "
                "some cases. You must explicitly call `InteractiveSession.close()` to release "
                "resources held by the other session(s).",
                stacklevel=2,
            )
        _OPEN.add(self)
        self._pushed.append(stack.sessions.push(self))
        if graph is not None:
            self._pushed.append(graphs.push(graph))

    def close(self) -> None:
        """Closes the session, which is not the default one any more. May be called again.

        Any thread may close it.
        """
        _OPEN.discard(self)
        while self._pushed:
            remove = self._pushed.pop()
            remove()
        super().close()
