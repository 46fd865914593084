"""The pytree structure of queue elements, as users pass and receive them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jflow.base.values import TensorSpec, as_shape, declared, host_dtype

_LEAF: Any = jax.tree.structure(0)


class Structure:
    """The structure of a queue's elements: a single value, a sequence, a dict or any other pytree.

    Args:
      dtypes: a dtype, or a sequence or any other pytree of dtypes.
      shapes: a shape for each dtype, in the same structure; None if no shape is known.
      names: names for a sequence of components, or the name of a single one; elements are then
        dicts.

    Attributes:
      components: the types of the components, in order.
      names: the names of the components; empty if they are identified by their order.

    Raises:
      TypeError: if a dtype or shape is not valid.
      ValueError: if the structures differ.
    """

    def __init__(
        self, dtypes: Any, shapes: Any = None, names: str | Sequence[str] | None = None
    ) -> None:
        if names is not None and jax.tree.structure(dtypes) == _LEAF:
            dtypes = [dtypes]
        self._tree: Any = None
        self._is_named = names is not None
        self._is_single = jax.tree.structure(dtypes) == _LEAF
        if _is_flat(dtypes):
            leaves = [*dtypes]
            sizes = in_sequence(shapes, len(leaves))
            own = [names] if isinstance(names, str) else names or ()
            self.names = _checked_names(own, len(leaves))
        elif names is not None:
            raise ValueError(f"names require a sequence of dtypes, got {dtypes!r:.80}")
        else:
            leaves, self._tree = jax.tree.flatten(dtypes)
            sizes = _tree_shapes(shapes, self._tree)
            paths, _ = jax.tree_util.tree_flatten_with_path(dtypes)
            named = (jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths)
            self.names = tuple(filter(None, named))
        if not leaves:
            raise ValueError(f"expected at least one dtype, got {dtypes!r}")
        self.components = [
            TensorSpec(declared(as_shape(shape)), host_dtype(dtype))
            for dtype, shape in zip(leaves, sizes, strict=True)
        ]

    def flatten(self, value: Any) -> list[Any]:
        """Returns the components of an element or of a batch of elements.

        Raises:
          ValueError: if the value has a different structure.
        """
        n_components = len(self.components)
        if self._is_named:
            if not isinstance(value, dict) or value.keys() != set(self.names):
                got = sorted(value) if isinstance(value, dict) else type(value).__name__
                raise ValueError(f"expected a dict of {[*self.names]}, got {got}")
            return [value[name] for name in self.names]
        if self._tree is not None:
            if self._is_single:
                return [_unnamed(value)]
            try:
                leaves: list[Any] = self._tree.flatten_up_to(value)
                return leaves
            except (ValueError, TypeError) as error:
                raise ValueError(f"expected an element like {self._tree}: {error}") from None
        if isinstance(value, list | tuple) and len(value) == n_components:
            return [*value]
        if n_components == 1:
            return [_unnamed(value)]
        _unnamed(value)
        raise ValueError(f"expected a sequence of {n_components} components, got {value!r:.80}")

    def element(self, vals: Any) -> Any:
        """Returns the element or batch that the operand of an enqueue holds.

        If the dtypes are a single dtype, `flatten` takes a list or tuple of length one for the
        component itself. For an enqueue it is a sequence of one component, as in TensorFlow.
        """
        is_components = isinstance(vals, list | tuple) and len(vals) == 1
        return vals[0] if is_components and self._is_single else vals

    def unflatten(self, components: Sequence[Any]) -> Any:
        """Returns the element that consists of these components."""
        if self._is_named:
            return dict(zip(self.names, components, strict=True))
        if self._tree is not None:
            return jax.tree.unflatten(self._tree, components)
        return components[0] if len(components) == 1 else [*components]


def _unnamed(value: Any) -> Any:
    """Returns the value. Raises ValueError for a dict, since the components have no names."""
    if isinstance(value, dict):
        raise ValueError(
            f"got a dict of {[*value]} for components that have no names; create the queue with "
            "names= or with a dict of dtypes, or enqueue a tuple of components"
        )
    return value


def _is_flat(dtypes: Any) -> bool:
    return isinstance(dtypes, list | tuple) and all(jax.tree.structure(x) == _LEAF for x in dtypes)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(x is None or isinstance(x, int) for x in value)


def in_sequence(shapes: Any, n_components: int) -> Sequence[Any]:
    """Returns one shape for each component; a single component's shape need not be in a list."""
    if shapes is None:
        return [None] * n_components
    if n_components == 1 and _is_shape(shapes) and [*shapes] != [None]:
        return [shapes]
    if not isinstance(shapes, list | tuple) or len(shapes) != n_components:
        raise ValueError(f"expected {n_components} shapes, one for each dtype, got {shapes!r:.80}")
    return shapes


def _tree_shapes(shapes: Any, tree: Any) -> Sequence[Any]:
    """Returns a shape for each leaf of a tree of dtypes."""
    if shapes is None:
        return [None] * tree.num_leaves
    if tree == _LEAF:
        return [shapes] if _is_shape(shapes) else in_sequence(shapes, 1)
    try:
        return tree.flatten_up_to(shapes)  # type: ignore[no-any-return]
    except (ValueError, TypeError) as error:
        raise ValueError(f"expected shapes in the structure of the dtypes: {error}") from None


def _checked_names(names: Sequence[str], n_components: int) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"expected strings as names, got {names!r:.80}")
    if names and len(set(names)) != n_components:
        raise ValueError(
            f"expected {n_components} different names, one for each dtype, got {names!r}"
        )
    return tuple(names)
