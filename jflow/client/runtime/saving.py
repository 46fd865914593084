"""Saves and restores the state of a graph on whichever devices it is now."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.progress import shown_if_long
from jflow.base.values import SaveSliceInfo, is_known
from jflow.client.runtime.backend import Backend
from jflow.client.runtime.moving import retry_while_moved
from jflow.client.runtime.steps import learn_moved, place_step
from jflow.compiler.graph import Graph, VariableRef
from jflow.compiler.graph.primitives import ResourceRef
from jflow.compiler.pipeline import StepRequest
from jflow.compiler.placement import Placer
from jflow.compiler.placement.placer import state_id
from jflow.errors import InvalidArgumentError
from jflow.net.wire import file_system_id
from jflow.plan import VARYING
from jflow.state.core import ClusterState
from jflow.state.moves import StateId
from jflow.state.saves import SaveReport as SaveReport
from jflow.state.saves import StateItem, StateItems, StateSlice, StateSource


@dataclass(frozen=True)
class StateToSave:
    """A variable or resource with its key in a checkpoint.

    Attributes:
      key: the key.
      ref: the variable or resource.
      part: the slice of the tensor under this key that a variable holds; None for all of it.
      reshapes: whether a variable takes a tensor of another shape with as many elements.
      sources: where else a restore finds a variable, in checkpoints that lack the key.
    """

    key: str
    ref: VariableRef | ResourceRef
    part: SaveSliceInfo | None = None
    reshapes: bool = False
    sources: tuple[StateSource, ...] = ()


def save_state(
    graph: Graph,
    states: Sequence[StateToSave],
    backend: Backend,
    placer: Placer,
    prefix: str,
    deadline: Deadline,
    *,
    about: Mapping[str, str],
    is_consistent: bool,
) -> SaveReport:
    """Saves state; see `jflow.Session.save_state`.

    Args:
      graph: the graph that the state is used in.
      states: what to save.
      backend, placer: as for `register_step`.
      prefix: as for `Backend.to_tasks`.
      deadline: the deadline of the call.
      about, is_consistent: as for `ClusterState.save`.
    """

    def save() -> SaveReport:
        items = _items(graph, states, backend, placer, deadline)
        path, packed = backend.to_tasks(prefix, items, deadline)
        record = backend.call_state(
            ClusterState.save, path, packed, is_consistent, about, deadline=deadline
        )
        return SaveReport.from_bytes(record)

    learn = partial(learn_moved, graph, backend, placer)
    with shown_if_long(f"saving {len(states)} variables and resources to {prefix}"):
        return retry_while_moved(save, learn, deadline)


def restore_state(
    graph: Graph,
    states: Sequence[StateToSave],
    backend: Backend,
    placer: Placer,
    prefix: str,
    deadline: Deadline,
) -> SaveReport:
    """Restores state; see `jflow.Session.restore_state`. The arguments are as for `save_state`."""

    def restore() -> SaveReport:
        items = _items(graph, states, backend, placer, deadline)
        path, packed = backend.to_tasks(prefix, items, deadline)
        record = backend.call_state(ClusterState.restore, path, packed, deadline=deadline)
        backend.was_restored(items, deadline)
        return SaveReport.from_bytes(record)

    learn = partial(learn_moved, graph, backend, placer)
    with shown_if_long(f"restoring {len(states)} variables and resources from {prefix}"):
        return retry_while_moved(restore, learn, deadline)


def _items(
    graph: Graph,
    states: Sequence[StateToSave],
    backend: Backend,
    placer: Placer,
    deadline: Deadline,
) -> StateItems:
    handles = [graph.handle_of(state.ref) for state in states]
    request = StepRequest(tuple(dict.fromkeys(handles)), (), ())
    devices = place_step(graph, request, backend, placer, deadline)
    return StateItems(
        tuple(
            _item(state, state_id(state.ref, devices[handle], backend.owner))
            for state, handle in zip(states, handles, strict=True)
        )
    )


def _item(state: StateToSave, name: StateId) -> StateItem:
    ref, part, sources = state.ref, _part(state), state.sources
    names = (state.key, name.device, name.kind, name.container, name.name, name.owner)
    if not isinstance(ref, VariableRef):
        return StateItem(*names, definition=ref.definition, part=part, sources=sources)
    return StateItem(
        *names,
        dtype=ref.dtype.name,
        shape=_sizes(ref),
        part=part,
        reshapes=state.reshapes,
        sharding=ref.sharding,
        sources=sources,
    )


def _sizes(ref: VariableRef) -> tuple[int, ...]:
    return tuple(size if is_known(size) else VARYING for size in ref.shape)


def _part(state: StateToSave) -> StateSlice | None:
    if state.part is None:
        return None
    if not isinstance(state.ref, VariableRef) or state.part.var_shape != state.ref.shape:
        raise InvalidArgumentError(
            f"{state.ref} has the slice {state.part}, which does not fit its shape"
        )
    return StateSlice(state.part.full_shape, state.part.var_offset)


_REMOTE = "://"


def path_on_tasks(path: str, file_systems: Mapping[Task, str]) -> str:
    """Converts a path of this process to the path that the tasks of a cluster are given.

    A relative path refers to the working directory of this process, which only tasks that see the
    same files can reach. An absolute path or a URL is resolved by each task.

    Args:
      path: the path.
      file_systems: of the tasks that write or read it, as `file_system_id` identifies them.

    Returns:
      An absolute path without links in its directory, or the path itself if that is not relative.

    Raises:
      InvalidArgumentError: if it is relative, and a task does not see the files of this process.
    """
    if os.path.isabs(path) or _REMOTE in path or "\0" in path:
        return path
    own = file_system_id()
    others = [task for task, found in file_systems.items() if not own or found != own]
    if others:
        names = ", ".join(map(str, others))
        raise InvalidArgumentError(
            f"{path!r} is relative to the working directory of this process, whose files {names} "
            "does not see: it is on another machine, or in a container of its own; use an absolute "
            "path that means one directory on all tasks with saved state, or a URL such as "
            "'gs://bucket/model'",
            task=str(others[0]),
        )
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)
