"""`jflow.checkpoint.save` and `restore`: any state of a session or connection, by its keys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from jflow.client.binding import BoundState
from jflow.client.functions import Connection
from jflow.client.ops import Variable
from jflow.client.runtime.saving import SaveReport, StateToSave
from jflow.client.session import Session
from jflow.client.stateful import Handle
from jflow.compiler.graph import Graph, GraphKeys, VariableRef, get_default_session
from jflow.compiler.graph.primitives import host_p
from jflow.compiler.placement.placer import StateRef, refs_of
from jflow.errors import InvalidArgumentError
from jflow.state.resources import TRANSIENT
from jflow.training.checkpoints.positions import SavableIterator, apart, restored, texts

_PLAIN = (str, bytes, np.ndarray, jax.Array)


def save(
    path: str | os.PathLike[str],
    state: Any = None,
    *,
    consistent: bool = False,
    about: Mapping[str, str] | None = None,
) -> SaveReport:
    """Saves state as a checkpoint: variables, queues, accumulators, readers and iterator states.

    Iterators of this process, such as those of `jflow.data`, can be among them: their positions.

    Each task writes what it holds. A relative path is one of this process, so it is refused where a
    task with some of the state does not see its files; an absolute one is a path of each such task.
    The checkpoint replaces a former one of that path at one moment. Steps go on meanwhile. Steps of
    the session or connection are in it whole or not at all; of the steps of others, what each task
    does is.

    Args:
      path: the path of the checkpoint, such as "runs/model-100"; missing folders are made.
      state: what to save: a session, for all state that its graph uses; or variables and resources
        of one graph or connection, in a list, or in dicts, nested or not, whose keys become theirs,
        joined by "/"; a `train.Optimizer` is its state, a `BoundState` its variables by path. None
        for the default session.
      consistent: whether steps of all sessions that change the state are held back until every
        task has its snapshot, so that each of them is in it whole or not at all.
      about: short texts to keep in the checkpoint.

    Returns:
      Where it is, which tasks wrote it, how many bytes of variables it has, and how long steps were
      held back.

    Raises:
      DeadlineExceededError: if steps that change the state do not end in time.
      FailedPreconditionError: if a variable is not initialized.
      InvalidArgumentError: if the path is relative, and a task is on another machine or in a
        container of its own.
      NotFoundError: if there is a file where the directory has to be.
      PermissionDeniedError: if the path is outside the checkpoint roots of a task.
      ResourceExhaustedError: if the disk is full; a former checkpoint is kept.
      TypeError, ValueError: if `state` is nothing that can be saved.
    """
    wanted = _wanted(state)
    texts_of = {**(about or {}), **texts(wanted.iterators)}
    return wanted.place.save_state(
        os.fspath(path), wanted.states, is_consistent=consistent, about=texts_of
    )


def restore(path: str | os.PathLike[str], state: Any = None) -> SaveReport:
    """Restores state from a checkpoint atomically: if anything cannot be restored, nothing is.

    Variables need not be initialized. The cluster may have other tasks than the one that was saved,
    and partitioned variables other parts. What waits for a queue goes on waiting for what it has
    now. The path may also be a directory that Orbax has written. This process must see the path if
    there are iterators, which go to their positions.

    Args:
      path, state: as for `save`.

    Returns:
      Where it is, which tasks read it, how many bytes of variables were read, and how long steps
      were held back.

    Raises:
      DataLossError: if a file is damaged.
      InvalidArgumentError: if something has another dtype, shape or definition, or as `save`.
      NotFoundError: if there is no such checkpoint, or it lacks a key.
      TypeError, ValueError: as `save`.
    """
    wanted = _wanted(state)
    with restored(path, wanted.iterators):
        return wanted.place.restore_state(os.fspath(path), wanted.states)


@dataclass(frozen=True)
class _Wanted:
    """The state to save or restore, and the session or connection that does it."""

    place: Session | Connection
    states: list[StateToSave]
    iterators: Mapping[str, SavableIterator]


@runtime_checkable
class HasSavedState(Protocol):
    """What is saved as its state: an optimizer, a table of embeddings, the fit of a Keras model."""

    def saved_state(self) -> Any:
        """Returns variables and resources in dicts and lists, or a single one."""


def _wanted(state: Any) -> _Wanted:
    if state is None:
        state = get_default_session()
        if state is None:
            raise ValueError(
                "there is no default session; pass the session, or variables and resources"
            )
    if isinstance(state, Session):
        _, iterators = apart(state.graph.get_collection(GraphKeys.SAVEABLE_OBJECTS))
        return _Wanted(state, _of_graph(state.graph), iterators)
    iterators = {}
    states = [*_entries(state, "", iterators)]
    if not states:
        raise ValueError(f"there is nothing to save in {state!r}")
    owners = {id(one.ref.owner): one.ref.owner for one in states}
    if len(owners) > 1:
        raise ValueError("what is saved together must be of one graph or of one connection")
    (owner,) = owners.values()
    if isinstance(owner, Connection):
        return _Wanted(owner, states, iterators)
    session = get_default_session()
    if not isinstance(session, Session) or session.graph is not owner:
        raise ValueError(
            f"{states[0].ref} belongs to a graph; save it inside `with session:` of that graph"
        )
    return _Wanted(session, states, iterators)


def _entries(
    state: Any, prefix: str, iterators: dict[str, SavableIterator]
) -> Iterator[StateToSave]:
    """Yields the variables and resources in nested dicts and lists, with their keys.

    Iterators are added to `iterators`.
    """
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _entries(value, f"{prefix}/{key}" if prefix else str(key), iterators)
    elif isinstance(state, HasSavedState | BoundState):
        own = state.variables if isinstance(state, BoundState) else state.saved_state()
        yield from _entries(own, prefix, iterators)
    elif isinstance(state, Variable):
        yield _state_to_save(state.operations.ref, state, prefix)
    elif isinstance(state, Handle):
        yield _state_to_save(state.ref, None, prefix)
    elif isinstance(state, SavableIterator):
        iterators[prefix or "0"] = state
    elif isinstance(state, Iterable) and not isinstance(state, _PLAIN):
        for number, value in enumerate(state):
            is_leaf = isinstance(value, Variable | Handle)
            is_slice = getattr(value, "save_slice_info", None) is not None
            if is_leaf and (is_slice or not prefix):
                yield from _entries(value, prefix, iterators)
            else:
                key = f"{prefix}/{number}" if prefix else str(number)
                yield from _entries(value, key, iterators)
    else:
        raise TypeError(
            f"expected variables, queues, accumulators, readers or iterator states, in dicts and "
            f"lists, got {type(state).__name__} at {prefix or 'the top'!r}; a plain array can be "
            "saved as a Variable"
        )


def _of_graph(graph: Graph) -> list[StateToSave]:
    """Returns all state that the operations of a graph use."""
    listed = [
        *graph.get_collection(GraphKeys.GLOBAL_VARIABLES),
        *graph.get_collection(GraphKeys.LOCAL_VARIABLES),
    ]
    variables = {variable.operations.ref: variable for variable in listed}
    transient = _transient(graph)
    refs = [ref for ref in refs_of(graph).values() if ref not in transient]
    states = [_state_to_save(ref, variables.get(ref)) for ref in refs]
    if not states:
        raise InvalidArgumentError("the graph of the session uses no state")
    return states


def _state_to_save(ref: StateRef, variable: Variable | None, key: str = "") -> StateToSave:
    """Returns state to save, of a variable if there is one, by a key or by what is its own."""
    if variable is None:
        return StateToSave(key or _key(ref), ref)
    info = variable.save_slice_info
    own = _key(ref) if info is None else info.full_name
    return StateToSave(key or own, ref, info, sources=() if key else variable.restore_sources)


def _transient(graph: Graph) -> set[StateRef]:
    """Returns the resources in which no operation keeps anything, such as lookup tables."""
    calls = [op.eqn for op in graph.get_operations() if op.eqn.primitive is host_p]
    used = {ref for eqn in calls for ref in eqn.params["resources"]}
    keeping = (eqn for eqn in calls if eqn.params["function"] not in TRANSIENT)
    return used - {ref for eqn in keeping for ref in eqn.params["resources"]}


def _key(ref: StateRef) -> str:
    """The key of state that has none: its name, after its container and kind if it has to be."""
    name = ref.name if isinstance(ref, VariableRef) else f"{ref.kind}/{ref.name}"
    return f"{ref.container}//{name}" if ref.container else name
