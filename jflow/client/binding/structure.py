"""What models of several libraries consist of: named arrays, and the object that is made of them.

A structure takes a model apart, and puts it together again with other values. It has two forms: the
*whole*, which the user's code calls, and the *trainable part*, which is what the library's own
gradients look like, and what optimizers of Optax take.

* Of a pytree (dicts of Flax Linen and Haiku, states of Optax, modules of Equinox) the whole is the
  pytree, and the part has None in place of what is not trainable.
* Of a module of Flax NNX the part is an `nnx.State` of its `nnx.Param`s.
* Of Keras the whole is the values of trainable and of other variables, as `stateless_call` takes
  them, and the part is the list of the former.

This module imports none of these libraries: an object of one says that it is loaded.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr

ARRAYS = (jax.Array, np.ndarray, np.generic)


@dataclass(frozen=True)
class Leaf:
    """An array of a model.

    Attributes:
      path: its place in the model, by "/".
      value: the array.
      is_trainable: whether optimizers train it.
    """

    path: str
    value: Any
    is_trainable: bool


class ModelStructure(ABC):
    """A model taken apart.

    Attributes:
      leaves: its arrays.
    """

    leaves: Sequence[Leaf]

    @abstractmethod
    def whole(self, values: Sequence[Any]) -> Any:
        """Returns the model with other values, one for each leaf."""

    @abstractmethod
    def part(self, values: Sequence[Any]) -> Any:
        """Returns the trainable part with other values, one for each trainable leaf."""

    @abstractmethod
    def values_of(self, tree: Any) -> list[Any]:
        """Returns the values of the leaves in a whole or a trainable part; None for those it lacks.

        Raises:
          ValueError: if it is neither; the message says how it differs.
        """

    @property
    def trainable(self) -> list[int]:
        """The positions of the leaves that are trainable."""
        return [i for i, leaf in enumerate(self.leaves) if leaf.is_trainable]


def structure_of(model: Any) -> ModelStructure:
    """Takes a model apart.

    Raises:
      TypeError: if it has no arrays, or is a container of modules of NNX.
    """
    nnx, keras = sys.modules.get("flax.nnx"), sys.modules.get("keras")
    structure: ModelStructure
    if nnx is not None and isinstance(model, nnx.Module):
        structure = _OfNNX(nnx, model)
    elif keras is not None and isinstance(model, (keras.Layer, keras.Metric, keras.Optimizer)):
        structure = _OfKeras(keras, model)
    else:
        structure = _OfPytree(nnx, model)
    if not structure.leaves:
        raise TypeError(
            f"expected a model or pytree with arrays, got {model!r:.80} of type "
            f"{type(model).__name__}, which has none; a model of Keras is built first"
        )
    return structure


class _OfPytree(ModelStructure):
    """A pytree; its arrays are variables, and other leaves belong to the structure."""

    def __init__(self, nnx: Any, tree: Any) -> None:
        variables = _variables_of_nnx(nnx, tree)
        paths, tree_of_all = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_none)
        self._tree: Any = tree_of_all
        self._others = [value for _, value in paths]
        self._positions = [i for i, (_, value) in enumerate(paths) if isinstance(value, ARRAYS)]
        self.leaves = []
        for path, value in (paths[i] for i in self._positions):
            own = path[:-1] if path[:-1] in variables else path
            self.leaves.append(Leaf(_path_text(own), value, _is_inexact(value)))

    def whole(self, values: Sequence[Any]) -> Any:
        every = list(self._others)
        for i, value in zip(self._positions, values, strict=True):
            every[i] = value
        return jax.tree.unflatten(self._tree, every)

    def part(self, values: Sequence[Any]) -> Any:
        every: list[Any] = [None] * len(self._others)
        for number, value in zip(self.trainable, values, strict=True):
            every[self._positions[number]] = value
        return jax.tree.unflatten(self._tree, every)

    def values_of(self, tree: Any) -> list[Any]:
        every, other = jax.tree.flatten(tree, is_leaf=_is_none)
        if other != self._tree:
            raise ValueError(f"expected the structure {self._tree}, got {other}")
        for i in {*range(len(every))} - {*self._positions}:
            value, own = every[i], self._others[i]
            if value is not None and (isinstance(value, ARRAYS) or value != own):
                raise ValueError(
                    f"{own!r:.40} is no variable but a part of the structure, and cannot become "
                    f"{value!r:.40}; bind an array in its place, as jnp.asarray({own!r:.40})"
                )
        return [every[i] for i in self._positions]


class _OfNNX(ModelStructure):
    """A module of Flax NNX; what several of its parts share is one leaf."""

    def __init__(self, nnx: Any, module: Any) -> None:
        self._nnx = nnx
        self._graphdef, state = nnx.split(module)
        self._variables = [*nnx.to_flat_state(state)]
        # JAX flattens a module by all of its paths, so what is shared comes back once for each.
        every = jax.tree_util.tree_leaves_with_path(
            module, is_leaf=lambda x: isinstance(x, nnx.Variable)
        )
        self._paths = {_path_text(path) for path, _ in every}
        self.leaves = [
            Leaf("/".join(map(str, path)), _value_of(variable), isinstance(variable, nnx.Param))
            for path, variable in self._variables
        ]

    def whole(self, values: Sequence[Any]) -> Any:
        return self._nnx.merge(self._graphdef, self._state(range(len(self.leaves)), values))

    def part(self, values: Sequence[Any]) -> Any:
        return self._state(self.trainable, values)

    def _state(self, numbers: Iterable[int], values: Sequence[Any]) -> Any:
        chosen = [self._variables[i] for i in numbers]
        return self._nnx.from_flat_state(
            (path, variable.replace(value) if hasattr(variable, "get_value") else value)
            for (path, variable), value in zip(chosen, values, strict=True)
        )

    def values_of(self, tree: Any) -> list[Any]:
        state = self._nnx.state(tree) if isinstance(tree, self._nnx.Module) else tree
        if not isinstance(state, self._nnx.State):
            raise ValueError(f"expected a module or state of NNX, got {type(tree).__name__}")
        given = dict(self._nnx.to_flat_state(state))
        for path in given:
            text = "/".join(map(str, path))
            if text not in self._paths:
                known = self.leaves[0].path
                raise ValueError(f"{text!r} is none of its variables, such as {known!r}")
        return [_value_of(given.get(path)) for path, _ in self._variables]


class _OfKeras(ModelStructure):
    """A layer, model, metric or optimizer of Keras."""

    def __init__(self, keras: Any, model: Any) -> None:
        self._keras = keras
        trainable, others = _variables_of_keras(model)
        self._n_trainable = len(trainable)
        variables = [*trainable, *others]
        if isinstance(model, keras.Optimizer):
            # Their names have those of the variables that they belong to.
            paths = [f"variables/{i}" for i in range(len(variables))]
        else:
            # In the order of all variables, which stays the same when layers are frozen.
            named = _own_paths(model, [variable.path for variable in model.variables])
            by_id = dict(zip(map(id, model.variables), named, strict=True))
            paths = [by_id[id(variable)] for variable in variables]
        self.leaves = [
            Leaf(path, variable.value, number < len(trainable))
            for number, (path, variable) in enumerate(zip(paths, variables, strict=True))
        ]

    def whole(self, values: Sequence[Any]) -> Any:
        return list(values[: self._n_trainable]), list(values[self._n_trainable :])

    def part(self, values: Sequence[Any]) -> Any:
        return list(values)

    def values_of(self, tree: Any) -> list[Any]:
        n = len(self.leaves)
        if isinstance(tree, (self._keras.Layer, self._keras.Metric, self._keras.Optimizer)):
            groups = _variables_of_keras(tree)
            values = [variable.value for group in groups for variable in group]
        elif isinstance(tree, tuple) and len(tree) == 2 and _are_lists(tree):
            values = [*tree[0], *tree[1]]
        else:
            values = [*tree, *[None] * (n - self._n_trainable)]
        if len(values) != n:
            raise ValueError(
                f"expected the values of {self._n_trainable} trainable and "
                f"{n - self._n_trainable} other variables, or of the former, got {len(values)}"
            )
        return values


def _variables_of_keras(model: Any) -> tuple[list[Any], list[Any]]:
    """Returns the trainable and the other variables."""
    trainable = list(getattr(model, "trainable_variables", ()))
    others = list(getattr(model, "non_trainable_variables", ()))
    return (trainable, others) if trainable or others else ([], list(model.variables))


def _own_paths(model: Any, paths: Sequence[str]) -> list[str]:
    """Returns paths that do not depend on what else the process has made of Keras.

    Keras numbers layers without a name by their class, for the whole process: "dense_7". Here they
    are numbered in the order of the model, from "dense" on.
    """
    layers = model._flatten_layers() if hasattr(model, "_flatten_layers") else [model]
    automatic = {_snake_case(type(layer).__name__) for layer in layers}
    automatic |= {"seed_generator", "variable"}
    numbers: dict[tuple[str, str], dict[str, str]] = {}
    own = []
    for path in paths:
        above = ""
        for part in path.split("/"):
            base = re.sub(r"_\d+$", "", part)
            name = part
            if base in automatic:
                seen = numbers.setdefault((above, base), {})
                name = seen.setdefault(part, f"{base}_{len(seen)}" if seen else base)
            above = f"{above}/{name}" if above else name
        own.append(above)
    return own


def _snake_case(name: str) -> str:
    """Returns the name that Keras gives to a layer of a class."""
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()


def _are_lists(values: Sequence[Any]) -> bool:
    return all(isinstance(value, list | tuple) for value in values)


def _value_of(variable: Any) -> Any:
    """Returns the value of a variable of NNX; an array beside such variables is its own."""
    return variable.get_value() if hasattr(variable, "get_value") else variable


def _variables_of_nnx(nnx: Any, tree: Any) -> set[Any]:
    """Returns the paths of variables of NNX in a pytree, such as a state of Optax.

    Raises:
      TypeError: if there are modules in it, of which a pytree does not say what is trainable.
    """
    if nnx is None:
        return set()
    kinds = (nnx.Module, nnx.Variable)
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, kinds))
    for path, value in found:
        if isinstance(value, nnx.Module):
            raise TypeError(
                f"expected a module of NNX or a pytree without any, got one at "
                f"{_path_text(path)!r}; bind each module by itself, or one that has all of them"
            )
    return {path for path, value in found if isinstance(value, nnx.Variable)}


def _is_none(value: Any) -> bool:
    return value is None


def _is_inexact(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.inexact))


def _path_text(path: Sequence[Any]) -> str:
    """Returns a path by "/"; "value" for that of an array alone."""
    return keystr(tuple(path), simple=True, separator="/") or "value"
