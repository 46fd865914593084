"""Sources of batches: tensors whose values threads enqueue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jflow.base.values import as_shape, declared
from jflow.client.ops import SparseTensor, keep_rows
from jflow.client.ops.queue import QueueBase
from jflow.client.ops.sparse import (
    deserialize_many_sparse,
    serialize_many_sparse,
    serialize_sparse,
)
from jflow.compiler.graph import Operation, Tensor, get_default_graph

Shape = tuple[int | None, ...] | None


@dataclass(frozen=True)
class Sources:
    """Elements of one structure, with equal dtypes and shapes, each with threads of its own.

    Attributes:
      tree: the structure of an element.
      tensors: for each source, the tensors of its element.
      shapes: shapes of an element's tensors; None for sizes and shapes that differ or are unknown.
      enqueue_many: whether the tensors are batches, whose rows are the elements.
      n_threads: number of threads of each source.
      sparse: for each leaf of an element that is a sparse tensor, which is queued as strings, the
        dtype and rank of its rows; None for others.
    """

    tree: Any
    tensors: Sequence[Sequence[Tensor]]
    shapes: Sequence[Shape]
    enqueue_many: bool
    n_threads: int
    sparse: Sequence[tuple[Any, int] | None] = ()

    @classmethod
    def of(
        cls,
        elements: Sequence[Any],
        enqueue_many: bool,
        shapes: Sequence[Any] | None,
        n_threads: int = 1,
    ) -> Sources:
        """Makes sources of elements, each of which is a pytree of tensors.

        Raises:
          ValueError: if there is no tensor, the structures differ, or a rank is unknown.
          TypeError: if the dtypes differ.
        """
        elements, sparse = _serialized(elements, enqueue_many)
        if not elements or not jax.tree.leaves(elements[0]):
            raise ValueError(f"expected at least one tensor to batch, got {elements!r}")
        trees = [jax.tree.structure(element) for element in elements]
        if len(set(trees)) > 1:
            raise ValueError(f"expected elements of one structure, got {trees}")
        as_tensor = get_default_graph().as_tensor
        tensors = [[as_tensor(leaf) for leaf in jax.tree.leaves(element)] for element in elements]
        columns = [*zip(*tensors, strict=True)]
        if any(len({tensor.dtype for tensor in column}) > 1 for column in columns):
            raise TypeError(f"expected elements of the same dtypes, got {tensors}")
        if shapes is None:
            sizes = [_common_shape(column, enqueue_many) for column in columns]
        else:
            sizes = [declared(as_shape(shape)) for shape in shapes]
        if len(sizes) != len(columns):
            raise ValueError(f"expected a shape for each of {len(columns)} tensors, got {shapes}")
        return cls(trees[0], tensors, sizes, enqueue_many, n_threads, sparse)

    @property
    def types(self) -> dict[str, Any]:
        """The arguments `dtypes` and `shapes` of a queue of these elements."""
        dtypes = [tensor.dtype for tensor in self.tensors[0]]
        return {
            "dtypes": jax.tree.unflatten(self.tree, dtypes),
            "shapes": jax.tree.unflatten(self.tree, self.shapes),
        }

    def restored(self, batch: Any) -> Any:
        """Returns a batch with sparse tensors in the place of those that were queued as strings."""
        if not any(self.sparse):
            return batch
        leaves, tree = jax.tree.flatten(batch)
        pairs = zip(leaves, self.sparse, strict=True)
        return jax.tree.unflatten(
            tree, [x if kind is None else deserialize_many_sparse(x, *kind) for x, kind in pairs]
        )

    def check_sizes(self, *cures: str) -> None:
        """Raises ValueError if elements may differ in size; `cures` are further repairs."""
        if any(shape is None or None in shape for shape in self.shapes):
            raise ValueError(
                f"elements of the shapes {[*self.shapes]} cannot be stacked to batches; pass "
                + " or ".join(("shapes= of known sizes", *cures))
            )

    def enqueue(self, queue: QueueBase, keep: Any) -> list[Operation]:
        """Returns an enqueue operation for each thread.

        Args:
          queue: the queue.
          keep: True, or a mask of the elements to enqueue: bool[], or bool[n] for rows of a batch.
        """
        ops = [self._enqueue(queue, tensors, keep) for tensors in self.tensors]
        return ops * self.n_threads

    def _enqueue(self, queue: QueueBase, tensors: Sequence[Tensor], keep: Any) -> Operation:
        is_batch = self.enqueue_many
        if keep is not True:
            tensors = keep_rows(tensors, keep, single=not is_batch)
            is_batch = True
        element = jax.tree.unflatten(self.tree, tensors)
        op: Operation = queue.enqueue_many(element) if is_batch else queue.enqueue(element)
        return op


def _serialized(
    elements: Sequence[Any], is_batch: bool
) -> tuple[Sequence[Any], Sequence[tuple[Any, int] | None]]:
    """Replaces sparse tensors by strings; returns also what they were, for each leaf."""
    leaves = jax.tree.leaves(elements[:1], is_leaf=_is_sparse)
    kinds = [_kind(leaf, is_batch) if _is_sparse(leaf) else None for leaf in leaves]
    serialize = serialize_many_sparse if is_batch else serialize_sparse

    def convert(leaf: Any) -> Any:
        return serialize(leaf) if _is_sparse(leaf) else leaf

    return jax.tree.map(convert, elements, is_leaf=_is_sparse), kinds


def _is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, SparseTensor)


def _kind(sparse: SparseTensor, is_batch: bool) -> tuple[Any, int]:
    """Returns the dtype and the rank of the rows of a sparse tensor."""
    (rank,) = declared(sparse.dense_shape.aval.shape) or (None,)
    if rank is None:
        raise ValueError(f"expected sparse tensors of known rank to batch, got {sparse!r}")
    return sparse.values.dtype, rank - is_batch


def _common_shape(tensors: Sequence[Tensor], is_batch: bool) -> Shape:
    """Returns the common shape of one tensor of the elements of several sources."""
    shapes = [declared(tensor.aval.shape) for tensor in tensors]
    known = [shape for shape in shapes if shape is not None]
    ranks = {len(shape) for shape in known}
    if len(known) < len(shapes) or len(ranks) > 1 or (is_batch and ranks == {0}):
        raise ValueError(
            f"expected {'batches' if is_batch else 'tensors'} of one known rank, got "
            f"{', '.join(map(repr, tensors))}; pass shapes="
        )
    shape = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))
    return shape[1:] if is_batch else shape
