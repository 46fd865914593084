"""`Saver`: saves and restores the variables of a graph, with TensorFlow's names and rules."""

from __future__ import annotations

import logging
import operator
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jflow.base.files import replacing
from jflow.client.export.graphs import save_graph
from jflow.client.ops import Variable
from jflow.client.runtime.saving import StateToSave
from jflow.client.session import Session
from jflow.compiler.graph import Graph, GraphKeys, get_default_graph
from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnimplementedError,
)
from jflow.state.checkpoint_files import local_path
from jflow.state.records.failures import failure
from jflow.training.checkpoints.checkpoint_state import (
    STATE_FILE,
    get_checkpoint_mtimes,
    remove_checkpoint,
    update_checkpoint_state,
)
from jflow.training.checkpoints.positions import SavableIterator, apart, restored, texts

_LOG = logging.getLogger(__name__)

_FAILED = (
    "Restoring from checkpoint failed. This is most likely due to {} from the checkpoint. Please "
    "ensure that you have not altered the graph expected based on the checkpoint. Original error: "
    "{}"
)


class SaverDef:
    """The formats of TensorFlow's checkpoints, which `Saver` takes and that are one here."""

    V1 = 1
    V2 = 2


class Saver:
    """Saves the variables of a graph as checkpoints, and restores them.

    Each task writes the variables that it holds to a file of its own; paths are as for
    `jflow.checkpoint.save`. A checkpoint is there as a whole or not at all, whenever a task is
    killed. Steps go on while it is written, and updates of the session's own steps are in it whole
    or not at all.

    Args:
      var_list: the variables: a list, whose names become the keys, or a dict by key, whose values
        are variables, partitioned variables or lists of the slices of one; None for all global
        variables of the default graph, and what is in its collection of saveable objects. Iterators
        of this process may be among them, such as those of `jflow.data`; their positions are saved.
      reshape: whether a restored variable takes a tensor of another shape that has as many
        elements.
      sharded: accepted for TensorFlow's sake; each task always writes a file of its own.
      max_to_keep: how many of the latest checkpoints are kept; 0 or None for all.
      keep_checkpoint_every_n_hours: one checkpoint is kept in addition for so many hours of work.
      name: accepted for TensorFlow's sake; a saver adds no operations to the graph.
      restore_sequentially: likewise.
      defer_build: whether the variables are looked up at `build` or at the first use; only
        without a `var_list`.
      allow_empty: whether there may be no variables; nothing is saved or restored then.
      write_version: `SaverDef.V1` or `SaverDef.V2`; without effect, because there is one format.
      pad_step_number: whether the step in the names of files has at least eight digits.
      save_relative_paths: whether the list of checkpoints has paths relative to its directory.

    Raises:
      TypeError: if `var_list` is of another type, or has anything but variables.
      ValueError: if there are no variables, or two with one name; if the build is deferred of a
        `var_list`, or the version is neither of these.
    """

    def __init__(  # noqa: PLR0913 - the arguments are TensorFlow's
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        *,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = SaverDef.V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
    ) -> None:
        if defer_build and var_list:
            raise ValueError(
                "only a Saver of all variables can look them up later; leave out defer_build=True, "
                "or the var_list"
            )
        if write_version not in {SaverDef.V1, SaverDef.V2}:
            raise ValueError(
                f"write_version must be SaverDef.V1 or SaverDef.V2, got {write_version!r:.80}"
            )
        self._var_list = var_list
        self._reshape = reshape
        self._max_to_keep = max_to_keep or 0
        self._every_s = 3600 * keep_checkpoint_every_n_hours
        self._allow_empty = allow_empty
        self._pads_step = pad_step_number
        self._has_relative_paths = save_relative_paths
        self._states: list[StateToSave] | None = None
        self._iterators: Mapping[str, SavableIterator] = {}
        self._latest: list[tuple[str, float]] = []
        self._surplus: list[tuple[str, float]] = []  # removed once the list is written
        self._written: tuple[Graph, list[int], str] | None = None
        self._next_permanent = time.time() + self._every_s
        if not defer_build:
            self.build()

    def __repr__(self) -> str:
        n = "unknown" if self._states is None else len(self._states)
        return f"<jflow.train.Saver of {n} variables>"

    def build(self) -> None:
        """Looks up the variables, if that was deferred. Raises as the constructor."""
        if self._states is not None:
            return
        variables = self._var_list
        if variables is None:
            graph = get_default_graph()
            variables = [
                *graph.get_collection(GraphKeys.GLOBAL_VARIABLES),
                *graph.get_collection(GraphKeys.SAVEABLE_OBJECTS),
            ]
        variables, self._iterators = apart(variables)
        states = states_to_save(variables, reshape=self._reshape)
        if not states and not self._allow_empty:
            raise ValueError("No variables to save")
        self._states = states

    # Saving -----------------------------------------------------------------------------------

    def save(
        self,
        sess: Session,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
    ) -> str | None:
        """Saves the variables, and removes checkpoints that are not kept any longer.

        Args:
          sess: the session.
          save_path: the path of the checkpoint, without the step; missing folders are made.
          global_step: appended to the path: a number, or an integer variable or tensor.
          latest_filename: the name of the list of checkpoints there; "checkpoint" if None.
          meta_graph_suffix: what the name of the exported graph ends with.
          write_meta_graph: whether the graph is exported next to it, if it can be.
          write_state: whether the list is updated.

        Returns:
          The path of the checkpoint, `save_path-global_step`; None if there are no variables.

        Raises:
          FailedPreconditionError: if a variable is not initialized.
          ResourceExhaustedError: if the disk is full; older checkpoints are kept.
          TypeError: if `sess` is not a session.
          ValueError: if the directory cannot be made, or `latest_filename` is not a plain name, or
            the name of the checkpoint.
          OpError: as `Session.save_state`.
        """
        self.build()
        _check_session(sess)
        path = self._path(sess, os.fspath(save_path), global_step, latest_filename or STATE_FILE)
        if not self._states:
            return None
        directory = os.path.dirname(path)
        try:
            sess.save_state(path, self._states, about=texts(self._iterators))
            if write_meta_graph:
                self._write_graph(local_path(f"{path}.{meta_graph_suffix}"), sess.graph)
            if write_state:
                self._record(path, directory, latest_filename, meta_graph_suffix)
        except (FailedPreconditionError, NotFoundError, FileNotFoundError) as error:
            if not os.path.isdir(local_path(directory) or "."):
                raise ValueError(
                    f"Parent directory of {path} doesn't exist, can't save."
                ) from error
            raise
        return path

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """The arguments for an equal saver of another graph; None if it has a `var_list`."""
        if self._var_list is not None:
            return None
        return {
            "reshape": self._reshape,
            "max_to_keep": self._max_to_keep,
            "keep_checkpoint_every_n_hours": self._every_s / 3600,
            "allow_empty": self._allow_empty,
            "pad_step_number": self._pads_step,
            "save_relative_paths": self._has_relative_paths,
        }

    def _write_graph(self, path: str, graph: Graph) -> None:
        """Writes the graph next to a checkpoint, or copies the last file if it has not grown.

        The variables are saved already, so a graph that cannot be written is only reported.
        """
        size = [len(graph.get_operations())]
        size += [len(graph.get_collection(key)) for key in graph.get_all_collection_keys()]
        try:
            last = self._written
            if last is None or last[:2] != (graph, size) or not _is_copied(last[2], path):
                save_graph(path, graph)
            self._written = (graph, size, path)
        except (UnimplementedError, OSError) as error:
            _LOG.warning("the graph is not saved as %s: %s", path, error)

    def _path(self, sess: Session, path: str, global_step: Any, name: str) -> str:
        """The path of a new checkpoint. Raises ValueError if it collides with the list's name."""
        if os.path.split(name)[0]:
            raise ValueError("'latest_filename' must not contain path components")
        if global_step is not None:
            step = _step(sess, global_step)
            return f"{path}-{step:08d}" if self._pads_step else f"{path}-{step}"
        if os.path.basename(path) == name:
            raise ValueError(f"'latest_filename' collides with 'save_path': {name!r} and {path!r}")
        return path

    def _record(
        self, path: str, directory: str, latest_filename: str | None, meta_graph_suffix: str
    ) -> None:
        """Lists a new checkpoint, and removes the oldest ones if there are too many.

        Raises:
          ResourceExhaustedError: if the disk is full; the former list is kept.
        """
        if self._max_to_keep:
            self._latest = [one for one in self._latest if one[0] != path]
            self._latest.append((path, time.time()))
            if len(self._latest) > self._max_to_keep:
                self._surplus.append(self._latest.pop(0))
        try:
            update_checkpoint_state(
                directory,
                path,
                self.last_checkpoints,
                latest_filename,
                save_relative_paths=self._has_relative_paths,
            )
        except OSError as error:
            name = os.path.join(directory, latest_filename or STATE_FILE)
            done = f"written, so {path!r}, which is saved, is not listed yet"
            raise failure(error, name, done) from error
        surplus, self._surplus = self._surplus, []
        for name, saved in surplus:
            if saved > self._next_permanent:
                self._next_permanent += self._every_s
                continue
            try:
                remove_checkpoint(name, meta_graph_suffix)
            except (OpError, OSError) as error:
                _LOG.warning("%s cannot be removed: %s", name, error)

    @property
    def last_checkpoints(self) -> list[str]:
        """The paths of the checkpoints that are kept, from the oldest to the latest."""
        return [path for path, _ in self._latest]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: Iterable[Any]) -> None:
        """Sets which checkpoints are kept: pairs of a path and seconds since 1970."""
        self._latest = [(path, when) for path, when in last_checkpoints_with_time]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Sets which checkpoints are kept, as if saved just now."""
        if not isinstance(last_checkpoints, list):
            raise TypeError(f"expected a list of paths, got {type(last_checkpoints).__name__}")
        self._latest = [(path, float("inf")) for path in last_checkpoints]

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Continues the list of an earlier process: those that exist count as kept."""
        with_times = [(path, get_checkpoint_mtimes([path])) for path in checkpoint_paths]
        self._latest = [(path, times[0]) for path, times in with_times if times]

    # Restoring --------------------------------------------------------------------------------

    def restore(self, sess: Session, save_path: str | os.PathLike[str] | None) -> None:
        """Restores the variables, which need not be initialized; all of them, or none.

        Args:
          sess: the session.
          save_path: what `save` has returned.

        Raises:
          ValueError: if there is no such checkpoint.
          NotFoundError: if it lacks a variable.
          InvalidArgumentError: if a variable has another dtype or shape in it.
          DataLossError: if a file of it is damaged.
          OpError: as `Session.restore_state`.
        """
        self.build()
        if not self._states:
            return
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        _check_session(sess)
        path = os.fspath(save_path)
        try:
            with restored(path, self._iterators):
                sess.restore_state(path, self._states)
        except NotFoundError as error:
            if error.op is None:  # not a key, but the checkpoint itself
                raise ValueError(
                    f"The passed save_path is not a valid checkpoint: {path} ({error.message})"
                ) from error
            raise _explained(error, "a Variable name or other graph key that is missing") from None
        except InvalidArgumentError as error:
            raise _explained(error, "a mismatch between the current graph and the graph") from None


def states_to_save(var_list: Any, *, reshape: bool = False) -> list[StateToSave]:
    """The variables of a `var_list`, with their keys. Raises TypeError, ValueError as `Saver`."""
    states: list[StateToSave] = []
    if isinstance(var_list, Mapping):
        for key, value in var_list.items():
            states += _states(str(key), _parts(value), reshape)
    elif isinstance(var_list, Iterable) and not isinstance(var_list, str | Variable):
        for value in var_list:
            states += _states(None, _parts(value), reshape)
    else:
        raise TypeError(
            f"var_list must be a list of variables or a dict of them by name, got "
            f"{type(var_list).__name__}"
        )
    whole: set[str] = set()
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for state in states:
        at = (state.key, () if state.part is None else state.part.var_offset)
        if state.key in whole or at in seen:
            raise ValueError(f"At least two variables have the same name: {state.key}")
        seen.add(at)
        if state.part is None:
            whole.add(state.key)
    return states


def _parts(value: Any) -> list[Variable]:
    """Returns the variables of one entry: itself, or the slices of a partitioned one."""
    if isinstance(value, Variable):
        return [value]
    parts = [*value] if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for part in parts:
        if not isinstance(part, Variable):
            raise TypeError(f"Variable to save is not a Variable: {part!r}")
    return parts


def _states(key: str | None, parts: Sequence[Variable], reshape: bool) -> list[StateToSave]:
    states = []
    for part in parts:
        info = getattr(part, "save_slice_info", None)
        ref = part.operations.ref
        own = ref.name if info is None else info.full_name
        sources = part.restore_sources if key in {None, own} else ()
        states.append(StateToSave(key or own, ref, info, reshape, sources))
    if key is not None and len(parts) > 1 and any(state.part is None for state in states):
        raise ValueError(f"{key!r} has several variables, which are not slices of one tensor")
    return states


def _check_session(sess: Any) -> None:
    if not isinstance(sess, Session):
        raise TypeError(f"'sess' must be a Session; {sess!r}")


def _is_copied(source: str, target: str) -> bool:
    """Copies a file if it still exists; returns whether it did."""
    try:
        with open(source, "rb") as file, replacing(target) as copy:
            shutil.copyfileobj(file, copy)
    except FileNotFoundError:
        return False
    return True


def _step(sess: Session, global_step: Any) -> int:
    try:
        return operator.index(global_step)
    except TypeError:
        return int(sess.run(global_step))


def _explained(error: OpError, cause: str) -> OpError:
    message = _FAILED.format(cause, error.message)
    return type(error)(message, op=error.op, task=error.task)
