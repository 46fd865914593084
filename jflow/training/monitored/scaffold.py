"""`Scaffold`: the operations that a training session needs in addition to its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jflow.client.ops import (
    global_variables,
    global_variables_initializer,
    group,
    local_variables_initializer,
    report_uninitialized_variables,
    tables_initializer,
)
from jflow.client.ops.summaries import merge_all
from jflow.client.session import Session
from jflow.compiler.graph import Graph, GraphKeys, Operation, get_default_graph
from jflow.training.checkpoints.saver import Saver

InitFn = Callable[["Scaffold", Session], object]


class Scaffold:
    """What initializes, checks, saves and summarizes the state of a graph.

    What is not given is taken from the graph's collection of that name, or made by `finalize`.

    Args:
      init_op: initializes the global variables.
      init_feed_dict: what to feed to it.
      init_fn: function of the scaffold and the session that is called after `init_op`.
      ready_op: gives the names of variables that are not initialized; all are if it gives none.
      ready_for_local_init_op: as `ready_op`, for what has to be ready before `local_init_op`.
      local_init_op: initializes what every worker has for itself, after each start and restore.
      summary_op: gives the serialized summaries of a step.
      saver: a `Saver`.
      copy_from_scaffold: another scaffold, for what is not given here.
      local_init_feed_dict: what to feed to `local_init_op`.

    Raises:
      TypeError: if `copy_from_scaffold` is not a scaffold.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: InitFn | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if not isinstance(copy_from_scaffold, Scaffold | None):
            raise TypeError(
                f"copy_from_scaffold must be a Scaffold, got {type(copy_from_scaffold).__name__}"
            )
        self._init_fn = init_fn
        self.init_op = init_op
        self.init_feed_dict = init_feed_dict
        self.ready_op = ready_op
        self.ready_for_local_init_op = ready_for_local_init_op
        self.local_init_op = local_init_op
        self.local_init_feed_dict = local_init_feed_dict
        self.summary_op = summary_op
        self.saver = saver
        if copy_from_scaffold is not None:
            for name, value in vars(copy_from_scaffold).items():
                if getattr(self, name) is None:
                    setattr(self, name, value)

    @property
    def init_fn(self) -> Callable[[Session], object] | None:
        """The function to call after `init_op` with the session; None if there is none."""
        function = self._init_fn
        return None if function is None else lambda session: function(self, session)

    def finalize(self) -> Scaffold:
        """Makes what was not given, and finalizes the default graph. May be called again.

        Returns:
          The scaffold itself.

        Raises:
          RuntimeError: if a collection has several of what is missing here.
        """
        defaults: dict[str, tuple[str, Callable[[], Any]]] = {
            "init_op": (GraphKeys.INIT_OP, global_variables_initializer),
            "ready_op": (GraphKeys.READY_OP, lambda: report_uninitialized_variables(name="ready")),
            "ready_for_local_init_op": (
                GraphKeys.READY_FOR_LOCAL_INIT_OP,
                lambda: report_uninitialized_variables(global_variables(), "ready_for_local_init"),
            ),
            "local_init_op": (GraphKeys.LOCAL_INIT_OP, self.default_local_init_op),
            "summary_op": (GraphKeys.SUMMARY_OP, merge_all),
            "saver": (GraphKeys.SAVERS, lambda: Saver(sharded=True, allow_empty=True)),
        }
        for name, (key, default) in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, self.get_or_default(name, key, default))
        if isinstance(self.saver, Saver):
            self.saver.build()
        get_default_graph().finalize()
        return self

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """Returns the one element of a collection, or makes it and adds it there.

        Args:
          arg_name: the argument of `Scaffold` that it is for, for the message.
          collection_key: name of a collection of the default graph.
          default_constructor: makes the element; None is not added.

        Raises:
          RuntimeError: if the collection has several elements.
        """
        graph: Graph = get_default_graph()
        listed = graph.get_collection(collection_key)
        if len(listed) > 1:
            raise RuntimeError(
                f"more than one item in the collection {collection_key!r}; choose one with "
                f"tf.train.Scaffold({arg_name}=...)"
            )
        if listed:
            return listed[0]
        default = default_constructor()
        if default is not None:
            graph.add_to_collection(collection_key, default)
        return default

    @staticmethod
    def default_local_init_op() -> Operation:
        """Returns an operation that initializes local variables and tables of the default graph."""
        return group(local_variables_initializer(), tables_initializer(), name="local_init")

    def __repr__(self) -> str:
        names = [name for name, value in vars(self).items() if value is not None]
        return f"<jflow.train.Scaffold with {', '.join(names) or 'defaults'}>"
