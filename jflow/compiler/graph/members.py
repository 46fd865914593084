"""The operations and tensors of a graph, by name, and its collections, such as its variables."""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

import jax.extend.core as jex

from jflow.base.handles import Uncopyable
from jflow.base.suggestions import did_you_mean

if TYPE_CHECKING:  # a graph is made of this
    from jflow.compiler.graph.graph import Operation, Tensor


class GraphKeys:
    """Standard keys of collections.

    `jflow.Variable` and `jflow.get_variable` add to those of variables and of regularization
    losses. Programs may use any other hashable value as a key.
    """

    GLOBAL_VARIABLES = VARIABLES = "variables"
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


def visible(names: Iterable[str], *internal: str) -> list[str]:
    """Returns names for `dir`, without those that are internal to jflow."""
    return [name for name in names if name not in internal]


_FILE = "write the graph to a file: jflow.train.export_meta_graph(path)"


class GraphMember(Uncopyable):
    """An operation or tensor: immutable, so copying returns the object itself."""

    __slots__ = ()

    _instead_of_copy = f"fetch its value with session.run, or {_FILE}"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self


class Members(Uncopyable, Collections):
    """Operations and tensors of a graph by name."""

    _instead_of_copy = _FILE

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._operations: dict[str, Operation] = {}
        self._tensors: dict[jex.Var, Tensor] = {}
        self._values: dict[str, Tensor] = {}
        self._names = Names()

    def get_operations(self) -> list[Operation]:
        """Returns all operations in the order of their creation."""
        with self._lock:
            return list(self._operations.values())

    @property
    def is_empty(self) -> bool:
        """Whether the graph has no operations."""
        return not self._operations

    def get_operation_by_name(self, name: str) -> Operation:
        """Returns the operation of that name. Raises KeyError if there is none."""
        try:
            return self._operations[name]
        except KeyError:
            advice = did_you_mean(name, self._operations)
            raise KeyError(f"the graph has no operation {name!r}{advice}") from None

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Returns the tensor "operation:index"; a variable's name refers to its value.

        Raises:
          ValueError: if the name has another form.
          KeyError: if the tensor does not exist.
        """
        op_name, colon, index = name.rpartition(":")
        if not colon or not index.isdigit():
            advice = did_you_mean(f"{name}:0", self._tensor_names()) if name else ""
            raise ValueError(f"a tensor name is 'operation:index', got {name!r}{advice}")
        if (value := self._values.get(name)) is not None:
            return value
        if op_name not in self._operations:
            advice = did_you_mean(name, self._tensor_names())
            raise KeyError(f"the graph has no operation {op_name!r}{advice}")
        outputs = self._operations[op_name].outputs
        if int(index) >= len(outputs):
            raise KeyError(f"operation {op_name!r} has {len(outputs)} outputs, asked for {name!r}")
        return outputs[int(index)]

    def _tensor_names(self) -> Iterator[str]:
        """Yields the names of all tensors, and of variables that stand for their values."""
        yield from [*self._values]
        for name, op in [*self._operations.items()]:
            yield from (f"{name}:{index}" for index in range(len(op.outputs)))

    def tensor_of(self, var: jex.Var) -> Tensor:
        """Returns the tensor of an equation's variable."""
        return self._tensors[var]


_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/\\]*")


class Names:
    """Set of the names in use in a graph, compared without case."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def copy(self) -> Names:
        """Returns an independent copy, for a copy of the graph."""
        copied = Names()
        copied._counts.update(self._counts)
        return copied

    def reserve(self, name: str) -> None:
        """Marks a name as in use, which it may be already. Raises as `unique`."""
        self._check(name)
        self._counts.setdefault(name.casefold(), 1)

    def unique(self, name: str) -> str:
        """Reserves a name, with `_1`, `_2`, … appended if it is in use.

        Raises:
          ValueError: if it is not a valid name.
        """
        self._check(name)
        key = name.casefold()
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count:
            return name
        unique = f"{name}_{count}"
        while unique.casefold() in self._counts:
            count += 1
            unique = f"{name}_{count}"
        self._counts[key] = count + 1
        self._counts[unique.casefold()] = 1
        return unique

    @staticmethod
    def _check(name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid node name: expected a letter, digit or '.', "
                "then letters, digits and any of '_.-/\\'"
            )
