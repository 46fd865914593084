"""`init_from_checkpoint` and `warm_start`: initial values of variables from checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jflow.base.suggestions import did_you_mean
from jflow.base.values import abstract, declared, is_compatible, shape_text
from jflow.client.ops import Variable
from jflow.client.variables import PartitionedVariable
from jflow.client.variables.store import VariableStore, store_of
from jflow.compiler.graph import GraphKeys, colocate_with, get_default_graph
from jflow.compiler.graph.calls import call
from jflow.errors import UnimplementedError
from jflow.state.checkpoint_files import Checkpoint, SavedTensor, local_path, open_checkpoint
from jflow.state.saves import READ_TENSOR, fits_dtype
from jflow.training.checkpoints.checkpoint_reader import checkpoint_path

_ROOT = "/"
_REMOTE = "://"


class _Loaded(NamedTuple):
    """A variable, in parts or whole, and the tensor that it is initialized with."""

    name: str
    parts: Sequence[Variable]
    is_whole: bool
    key: str

    @property
    def shape(self) -> Any:
        """The shape that the tensor needs."""
        part = self.parts[0]
        info = None if self.is_whole else part.save_slice_info
        return declared(part.shape) if info is None else info.full_shape


def init_from_checkpoint(ckpt_dir_or_file: str | os.PathLike[str], assignment_map: Any) -> None:
    """Replaces initializers of variables by ones that read a checkpoint, of jflow or TensorFlow.

    What is made of the initializers afterwards, such as `global_variables_initializer()`, has the
    values of the checkpoint. They are read when the initializer runs, by the task of the variable,
    which has to see the same path.

    Args:
      ckpt_dir_or_file: the path of a checkpoint, or a directory with a list of them.
      assignment_map: a dict, or a list of pairs, of names in the checkpoint and of what they
        initialize in the default graph:

        * `'scope/': 'other/'`: all variables of the scope "other" that `get_variable` has made, by
          the tensors of "scope" with their names; `'/'` is what is in no scope.
        * `'tensor': 'variable'`: a variable that `get_variable` has made, partitioned or not.
        * `'tensor': variable`: a variable, a partitioned one or a list of the parts of one.

    Raises:
      NotFoundError: if there is no such checkpoint.
      TypeError: if a key of the map is no text.
      ValueError: if a variable or a tensor is missing, or they have different shapes or dtypes.
    """
    path = checkpoint_path(ckpt_dir_or_file)
    pairs = [*(assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map)]
    if others := [key for key, _ in pairs if not isinstance(key, str)]:
        raise TypeError(f"an assignment map has names of tensors as keys, got {others[0]!r:.80}")
    store = store_of(get_default_graph())
    with open_checkpoint(path) as checkpoint:
        loads = [
            (one, _checked(one, checkpoint))
            for key, target in sorted(pairs, key=lambda pair: str(pair[0]))
            for one in _loads(key, target, store, checkpoint)
        ]
    for load, info in loads:
        for part in load.parts:
            _initialize(part, load, info, _absolute(path))


def _loads(
    key: str, target: Any, store: VariableStore, checkpoint: Checkpoint
) -> Iterator[_Loaded]:
    """Yields what one entry of an assignment map says."""
    found = _variable_of(target, store)
    if found is not None:
        name, parts, is_whole = found
        _check_there(checkpoint, key, key)
        yield _Loaded(name, parts, is_whole, key)
        return
    if not isinstance(target, str):
        raise ValueError(
            f"the assignment map needs a variable, a list of the parts of one, or a name for "
            f"{key!r}, got {target!r:.80}"
        )
    scope, slash, _ = target.rpartition("/")
    if not key.endswith("/"):
        raise ValueError(
            f"Assignment map with scope only name {scope} should map to scope only {key}. Should "
            f"be 'scope/': 'other_scope/'; get_variable has made no variable {target!r} in this "
            f"graph{did_you_mean(target, {*store.single, *store.partitioned})}"
        )
    if not slash:
        raise ValueError(f"expected a scope such as {target + '/'!r} for {key!r}, got {target!r}")
    inside = f"{scope}/" if scope else ""
    before = {name: name.rpartition("/part_")[0] for name in store.single}
    wholes = {first if first in store.partitioned else name for name, first in before.items()}
    for name in sorted(name for name in wholes if name.startswith(inside)):
        rest = name.removeprefix(inside)
        tensor = rest if key == _ROOT else key + rest
        _check_there(checkpoint, tensor, f"{tensor} ({rest} in {key})")
        whole = _variable_of(name, store)
        assert whole is not None
        yield _Loaded(*whole, tensor)


def _variable_of(target: Any, store: VariableStore) -> tuple[str, Sequence[Variable], bool] | None:
    """Returns the name and the parts of a variable, and whether it is not partitioned."""
    if isinstance(target, str):
        target = {**store.partitioned, **store.single}.get(target)
    if isinstance(target, Variable):
        return target.name, [target], True
    if isinstance(target, PartitionedVariable):
        return target.name, [*target], False
    if isinstance(target, list | tuple) and target and all(isinstance(v, Variable) for v in target):
        names = [v.save_slice_info and v.save_slice_info.full_name for v in target]
        if {*names} != {names[0]} or names[0] is None:
            raise ValueError(f"Slices must all be from the same tensor: {names}")
        return str(names[0]), target, False
    return None


def _check_there(checkpoint: Checkpoint, key: str, text: str) -> None:
    """Raises ValueError if a checkpoint lacks a tensor."""
    keys = checkpoint.keys()
    if key not in keys:
        raise ValueError(
            f"Tensor {text} is not found in {checkpoint.path} checkpoint, which has {len(keys)} "
            f"tensors{did_you_mean(key, keys) or ': ' + ', '.join(keys[:20])}"
        )


def _checked(load: _Loaded, checkpoint: Checkpoint) -> SavedTensor:
    """Returns the tensor of a variable. Raises ValueError if it does not fit."""
    info = checkpoint.info(load.key)
    part = load.parts[0]
    if part.is_eager:
        raise ValueError(f"{load.name!r} is eager; restore it by jflow.checkpoint.restore")
    if not is_compatible(load.shape, info.shape):
        raise ValueError(
            f"Shape of variable {load.name} ({shape_text(load.shape)}) doesn't match with shape of "
            f"tensor {load.key} ({shape_text(info.shape)}) from checkpoint reader."
        )
    if not fits_dtype(info.dtype, part.dtype.name):
        raise ValueError(
            f"variable {load.name} has dtype {part.dtype.name}, but tensor {load.key} of "
            f"{checkpoint.path} has {info.dtype}"
        )
    return info


def _initialize(part: Variable, load: _Loaded, info: SavedTensor, path: str) -> None:
    """Gives a variable an initializer that reads a tensor or its slice of one."""
    own = None if load.is_whole else part.save_slice_info
    shape = info.shape if own is None else own.var_shape
    begin = (0,) * len(shape) if own is None else own.var_offset
    graph = part.graph
    attributes = {
        "prefix": path,
        "key": load.key,
        "dtype": part.dtype.name,
        "begin": [*begin],
        "shape": [*shape],
        "full_shape": [*info.shape],
    }
    with (
        graph.scopes.replaced(control_inputs=(), names=f"{part.op.name}/"),
        colocate_with(part, ignore_existing=True),
    ):
        read = call(
            graph,
            READ_TENSOR,
            [],
            [abstract(shape, part.dtype)],
            name="checkpoint_initializer",
            attributes=attributes,
        )
    part.initialize_from(read.outputs[0])


def _absolute(path: str) -> str:
    """Returns a path that does not depend on the directory of a process."""
    local = local_path(path)
    return local if _REMOTE in local else os.path.abspath(local)


def warm_start(
    ckpt_to_initialize_from: str | os.PathLike[str],
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Mapping[str, Any] | None = None,
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
) -> None:
    """Replaces initializers of chosen variables by ones that read a checkpoint.

    Args:
      ckpt_to_initialize_from: as for `init_from_checkpoint`.
      vars_to_warm_start: a regular expression for the beginnings of the names of trainable
        variables; a list of them, for those of all global variables, slots of optimizers among
        them; a list of variables; or None for no variables. Adam's count of updates is not in
        checkpoints of TensorFlow: leave it out, or restore all by a `Saver`, which computes it.
      var_name_to_vocab_info: must be empty: jflow has no vocabularies of rows.
      var_name_to_prev_var_name: the names in the checkpoint, by those of the variables, where they
        differ. A partitioned variable has one name.

    Raises:
      NotFoundError: if there is no such checkpoint.
      UnimplementedError: if there is a vocabulary.
      ValueError: as `init_from_checkpoint`, or if a variable of the last argument is not among
        those that are chosen, or the choice is of another type.
    """
    if var_name_to_vocab_info:
        raise UnimplementedError(
            f"warm_start has vocabularies for {sorted(var_name_to_vocab_info)}, which jflow does "
            "not have: read the matrix by jflow.train.load_variable, put its rows in the order of "
            "the new vocabulary and make it the initializer of the variable"
        )
    former = var_name_to_prev_var_name or {}
    grouped: dict[str, list[Variable]] = {}
    for variable in _chosen(vars_to_warm_start):
        info = variable.save_slice_info
        name = variable.op.name if info is None else info.full_name
        grouped.setdefault(name, []).append(variable)
    unknown = sorted({*former} - {*grouped})
    if unknown:
        raise ValueError(
            "You provided the following variables in var_name_to_prev_var_name that were not used: "
            f"{unknown}. Perhaps you misspelled them? Here is the list of viable variable names: "
            f"{sorted(grouped)}"
        )
    pairs = [
        (former.get(name, name), parts[0] if parts[0].save_slice_info is None else parts)
        for name, parts in grouped.items()
    ]
    init_from_checkpoint(ckpt_to_initialize_from, pairs)


def _chosen(choice: Any) -> Iterable[Variable]:
    """Returns the variables to initialize, the parts of partitioned ones among them."""
    graph = get_default_graph()
    if choice is None:
        return []
    if isinstance(choice, str):
        return graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, scope=choice)
    if isinstance(choice, list) and all(isinstance(one, str) for one in choice):
        found = [graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=one) for one in choice]
        return dict.fromkeys(variable for each in found for variable in each)
    if isinstance(choice, list) and all(isinstance(one, Variable) for one in choice):
        return choice
    raise ValueError(
        "vars_to_warm_start must be a regular expression, or a list of only regular expressions or "
        f"only variables, got {choice!r:.80}"
    )
