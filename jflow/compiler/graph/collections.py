"""Collections: lists of objects by key that a graph keeps, such as its variables."""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Iterable
from typing import Any


class GraphKeys:
    """The keys of the collections that have a meaning.

    `jflow.Variable` and `jflow.get_variable` add to those of variables and of regularization
    losses. Programs may use any other hashable value as a key.
    """

    GLOBAL_VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    MODEL_VARIABLES = "model_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    METRIC_VARIABLES = "metric_variables"
    CONCATENATED_VARIABLES = "concatenated_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    LOSSES = "losses"
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    UPDATE_OPS = "update_ops"
    TRAIN_OP = "train_op"
    GLOBAL_STEP = "global_step"
    EVAL_STEP = "eval_step"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    SAVERS = "savers"
    SAVEABLE_OBJECTS = "saveable_objects"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"


class Collections:
    """Lists of objects by key; thread-safe."""

    def __init__(self) -> None:
        self._collections: dict[Hashable, list[Any]] = {}
        self._collections_lock = threading.Lock()

    def add_to_collection(self, name: Hashable, value: Any) -> None:
        """Appends a value to the collection `name`."""
        with self._collections_lock:
            self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Hashable | Iterable[Hashable], value: Any) -> None:
        """Appends a value to each of some collections, once; `names` may be a single one."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            names = (names,)
        for name in dict.fromkeys(names):
            self.add_to_collection(name, value)

    def get_collection(self, name: Hashable, scope: str | None = None) -> list[Any]:
        """Returns a copy of the collection `name`.

        Args:
          name: its key.
          scope: a regular expression; only values are returned whose attribute `name` begins with
            a match. None for all values.
        """
        items = list(self._collections.get(name, ()))
        if not scope:
            return items
        begins = re.compile(scope)
        names = [getattr(value, "name", None) for value in items]
        named = zip(items, names, strict=True)
        return [value for value, name in named if isinstance(name, str) and begins.match(name)]

    def get_collection_ref(self, name: Hashable) -> list[Any]:
        """Returns the list of the collection `name` itself; changing it changes the collection."""
        with self._collections_lock:
            return self._collections.setdefault(name, [])

    def clear_collection(self, name: Hashable) -> None:
        """Removes all values from the collection `name`."""
        with self._collections_lock:
            self._collections.pop(name, None)

    def get_all_collection_keys(self) -> list[str]:
        """Returns the keys, of those that are text, of the collections that are not empty."""
        with self._collections_lock:
            return [k for k, values in self._collections.items() if values and isinstance(k, str)]
