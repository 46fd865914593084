"""`Session`: runs a graph, in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Self

from jflow.base import forks
from jflow.base.cards import Card, Carded, CardTable
from jflow.base.cluster import Device
from jflow.base.deadline import Deadline
from jflow.base.handles import Closing
from jflow.base.options import ConfigProto, RunOptions
from jflow.base.tracebacks import handled, hide_frames
from jflow.client.runtime.backend import Backend, DeviceInfo
from jflow.client.runtime.saving import SaveReport, StateToSave, restore_state, save_state
from jflow.client.runtime.steps import (
    Replacement,
    add_origin,
    explain_step,
    named_strategy,
    names_text,
    place_step,
    replace_state,
)
from jflow.client.runtime.target import checked_config, checked_target, open_backend, reset_target
from jflow.client.runtime.tracing import RunMetadata, run_with_metadata
from jflow.client.session.fetches import key_of, parse_feed_list, parse_fetches
from jflow.client.session.repetition import Repetition
from jflow.client.session.settings import SessionSettings
from jflow.client.session.steps import RunExecutable, SessionSteps
from jflow.compiler.graph import Graph, Operation, get_default_graph, stack
from jflow.compiler.pipeline import StepRequest
from jflow.compiler.placement import Explanation
from jflow.errors import OpError
from jflow.state.records.graph_def import GraphDef


@forks.guarded(
    *("run", "run_async", "run_many", "list_devices", "placement", "explain", "replace", "reset"),
    *("save_state", "restore_state"),
)
class Session(Carded, Closing):
    """Runs a graph in this process or on a cluster.

    A local session has its own copy of every variable. A session on a cluster uses the variables
    in the cluster's containers, which other sessions share and which outlive it. Several threads
    may call `run` at the same time.

    Args:
      target: "" for this process, or "grpc://host:port" for any server of a cluster. It may go on
        with "?cluster=name&task=/job:ps/task:0"; a server that differs refuses (docs/security.md).
      graph: the graph to run; None for the default graph.
      config: options; on a server that has options for its sessions, those that are not set here
        are the server's.

    Raises:
      TypeError: if an argument has the wrong type.
      NotFoundError: if the target does not start with "grpc://".
      ValueError: if its address is malformed.
    """

    _instead_of_copy = "open another one: jflow.Session(session.target, graph=session.graph)"

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: ConfigProto | None = None
    ) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a Graph, got {type(graph).__name__}")
        checked = checked_config(config)
        self._graph = get_default_graph() if graph is None else graph
        self._target = checked_target(target)
        self._backend: Backend = open_backend(target, checked)
        self._settings = SessionSettings(checked, self._backend)
        self._steps = SessionSteps(self._graph, self._backend, self._settings)
        self._closed = False
        self._blocks: ExitStack | None = None

    @property
    def graph(self) -> Graph:
        """The graph that the session runs."""
        return self._graph

    @property
    def graph_def(self) -> GraphDef:
        """The definition of the graph; see `Graph.as_graph_def`."""
        return self._graph.as_graph_def()

    @property
    def target(self) -> str:
        """The address of the server as given; "" for this process."""
        return self._target

    @handled
    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Runs one step, in which each operation that the fetches need runs at most once.

        Args:
          fetches: tensors, variables, operations or their names, in any structure of lists,
            tuples, dicts, their subclasses, dataclasses, attrs classes and JAX pytrees.
          feed_dict: values by tensor. An operation whose outputs are all fed does not run.
          options: options of this step.
          run_metadata: gets what the options ask for: a trace of the step, the text of its plans.

        Returns:
          The structure of `fetches`, with a NumPy array for each tensor (a NumPy scalar if it is
          a scalar) and None for each operation.

        Raises:
          TypeError, ValueError: if a fetch or feed is not in this graph, or a fed value does not
            have the tensor's dtype and shape.
          RuntimeError: if the session is closed or the graph is empty.
          InvalidArgumentError: if a placeholder is not fed, a device does not exist, or colocated
            operations request different devices.
          FailedPreconditionError: if the step reads a variable that is not initialized.
          DeadlineExceededError: if the time limit passes at any point of the call; the session
            stays usable.
          UnavailableError: if a task that the step needs cannot be reached; the session stays
            usable.
          AbortedError: if the server has lost the state of the session; open a new one.
        """
        try:
            self._check_open()
            deadline = self._settings.deadline(options)
            run: RunExecutable | None = None
            if run_metadata is not None:
                run = partial(run_with_metadata, options=options, metadata=run_metadata)
            key = key_of(fetches, feed_dict)
            if key is not None:
                known_step = self._steps.find(key)
                if known_step is not None:
                    return known_step.run(feed_dict or {}, deadline, run)
            return self._steps.run(key, fetches, feed_dict, deadline, run)
        except Exception as error:
            hide_frames(error)
            raise

    @handled
    def run_async(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Future[Any]:
        """Starts a step like `run`, and returns a future of its result without waiting for it.

        Steps that were started run at the same time. The first call compiles the step, which
        blocks.

        Args:
          fetches, feed_dict, options: as for `run`; fed arrays may change afterwards.

        Returns:
          A future. Cancelling it cancels the step, which may then have been applied in part.

        Raises:
          UnimplementedError: if the step calls Python functions and runs on a cluster.
          OpError, RuntimeError, TypeError, ValueError: as `run` before the step begins; what it
            raises later the future does.
        """
        self._check_open()
        return self._steps.start(fetches, feed_dict, self._settings.deadline(options))

    @handled
    def run_many(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        *,
        steps: int,
        stacked: bool = False,
        options: RunOptions | None = None,
    ) -> Any:
        """Runs a step several times, one after another, for one request to the cluster.

        Every step is fed the same values. Steps of other sessions can run in between.

        Args:
          fetches, feed_dict: as for `run`.
          steps: the number of steps, at least 1.
          stacked: whether to return the values of all steps, rather than of the last one.
          options: options; the time limit is that of all steps together.

        Returns:
          As `run`, of the last step; if stacked, each array has a first axis for the steps.

        Raises:
          ValueError: if there is no step.
          InvalidArgumentError: if stacked values differ in shape.
          UnavailableError: if the connection is lost; it is then unknown how many were applied.
          OpError, RuntimeError, TypeError, ValueError: as `run`; the message says which step has
            failed, and those before it stay applied.
        """
        self._check_open()
        repetition = Repetition(steps, stacked)
        deadline = self._settings.deadline(options)
        return self._steps.repeat(fetches, feed_dict, deadline, repetition)

    def _run_by(self, run: RunExecutable, fetches: Any) -> Any:
        """Like the public `run`, but `run` runs the executable."""
        self._check_open()
        return self._steps.run(None, fetches, None, self._settings.deadline(), run)

    def make_callable(
        self,
        fetches: Any,
        feed_list: Sequence[Any] | None = None,
        accept_options: bool = False,
    ) -> Callable[..., Any]:
        """Returns a function that takes the values to feed and runs `fetches`.

        Args:
          fetches: as for `run`.
          feed_list: the tensors to feed; the function takes a value for each, in this order.
          accept_options: whether the function takes `options` and `run_metadata`, by keyword.

        Raises:
          TypeError: if `feed_list` is not a list or tuple.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError(f"feed_list must be a list or tuple, got {type(feed_list).__name__}")
        keys = list(feed_list or ())

        def call(*values: Any, **options: Any) -> Any:
            if not {*options} <= ({"options", "run_metadata"} if accept_options else set()):
                raise TypeError(
                    f"unexpected arguments {', '.join(options)}; options and run_metadata require "
                    "make_callable(accept_options=True)"
                )
            if len(values) != len(keys):
                raise ValueError(
                    f"expected as many values as tensors in feed_list ({len(keys)}), got "
                    f"{len(values)}"
                )
            return self.run(fetches, dict(zip(keys, values, strict=True)), **options)

        return call

    def placement(
        self, fetches: Any, feed_list: Sequence[Any] | None = None
    ) -> dict[Operation, Device]:
        """Returns the device of each operation that a step needs, without running it.

        `jflow.inspect` draws the result.

        Args:
          fetches: as for `run`.
          feed_list: the tensors that the step would be fed.

        Raises:
          The errors of `run` that do not depend on fed values or state.
        """
        request, deadline = self._request(fetches, feed_list), self._settings.complete()
        return place_step(self._graph, request, self._backend, self._settings.placer, deadline)

    def explain(self, fetches: Any, feed_list: Sequence[Any] | None = None) -> Explanation:
        """Explains the device of each operation that a step needs, without running it.

        Printed, it is a table with the predicted time of the step and a lower bound; `reasons` and
        `to_json()` have the same as data, and `jflow.inspect` draws it.

        Args:
          fetches: as for `run`.
          feed_list: the tensors that would be fed.

        Raises:
          As `run` before the step begins.
        """
        request, deadline = self._request(fetches, feed_list), self._settings.complete()
        return explain_step(self._graph, request, self._backend, self._settings.placer, deadline)

    def _request(self, fetches: Any, feed_list: Sequence[Any] | None) -> StepRequest:
        parsed = parse_fetches(self._graph, fetches)
        fed = parse_feed_list(self._graph, feed_list or ())
        return StepRequest(parsed.targets, parsed.tensors, fed)

    def replace(
        self,
        strategy: str | Callable[..., Any] = "auto",
        *,
        fetches: Any = None,
        feed_list: Sequence[Any] | None = None,
        min_gain: float | None = 0.1,
        n_steps: int = 1000,
    ) -> Replacement:
        """Moves variables and queues to better devices between steps, without losing an update.

        The strategy places the steps that the session has run, weighted by how often, with all
        state free that nothing pins. What it puts elsewhere moves if the steps are predicted to be
        faster with it there. Colocated state moves together. All sessions go on: steps that use the
        state wait for the move, and then use it where it is.

        Args:
          strategy: as `ConfigProto.placement`.
          fetches: as for `run`, to place this one step instead; it need not have run.
          feed_list: the tensors that this step would be fed.
          min_gain: the least fraction of a step's predicted time that a move has to save; None to
            move whatever the strategy places elsewhere.
          n_steps: the expected number of steps; they have to save more time than the moves take.

        Returns:
          What has moved, and the predictions.

        Raises:
          InvalidArgumentError: if there is no such strategy, or its placement breaks a constraint.
          AlreadyExistsError: if there is other state of that name on the device to move to.
          DeadlineExceededError: if steps that use the state do not end in time, such as those that
            wait for a queue and also write variables; nothing of it has moved then.
          AbortedError: if another session moves it at the same time, or resets its container.
          UnavailableError: if a task of the cluster does not respond.
        """
        if min_gain is not None and not min_gain >= 0:
            raise ValueError(f"min_gain must be at least 0, or None, got {min_gain}")
        chosen_strategy = named_strategy(strategy)
        deadline = self._settings.complete()
        steps = self._steps.n_runs()
        if fetches is not None:
            request = self._request(fetches, feed_list)
            place_step(self._graph, request, self._backend, self._settings.placer, deadline)
            steps = {request: 1}
        if not steps:
            return Replacement((), 0.0, 0.0, 0.0)
        return replace_state(
            self._graph,
            steps,
            self._backend,
            self._settings.placer,
            chosen_strategy,
            min_gain=min_gain,
            n_steps=n_steps,
            deadline=deadline,
        )

    def save_state(
        self,
        prefix: str,
        states: Sequence[StateToSave],
        *,
        is_consistent: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> SaveReport:
        """Saves variables and resources as a checkpoint; most programs use `train.Saver`.

        The checkpoint contains each step of this session as a whole or not at all; of steps of
        other sessions, this holds for what each task does.

        Args:
          prefix: the path of the checkpoint, as for `jflow.checkpoint.save`.
          states: what to save, under which keys.
          is_consistent: whether steps of all sessions that change the state are held back until
            every task has its snapshot.
          about: short texts to keep in the checkpoint.

        Raises:
          FailedPreconditionError: if a variable is not initialized.
          NotFoundError: if the directory does not exist.
          PermissionDeniedError: if the path is outside the checkpoint roots of a task.
          ResourceExhaustedError: if the disk is full; a former checkpoint is kept.
          DeadlineExceededError: if steps that change the state do not end in time.
          UnavailableError, AbortedError: if a task is lost; a former checkpoint is kept, or the new
            one is complete.
        """
        return self._with_state(
            save_state, prefix, states, is_consistent=is_consistent, about=about or {}
        )

    def restore_state(self, prefix: str, states: Sequence[StateToSave]) -> SaveReport:
        """Restores variables and resources from a checkpoint, at one moment for all steps.

        A variable need not be initialized. If anything cannot be restored, nothing is.

        Args:
          prefix, states: as for `save_state`.

        Raises:
          DataLossError: if a file of the checkpoint is damaged.
          InvalidArgumentError: if something has another dtype or shape in the checkpoint.
          NotFoundError: if there is no such checkpoint, or it has not all keys.
          OpError: as `save_state`.
        """
        return self._with_state(restore_state, prefix, states)

    def _with_state(
        self,
        act: Callable[..., SaveReport],
        prefix: str,
        states: Sequence[StateToSave],
        **options: Any,
    ) -> SaveReport:
        self._check_open()
        deadline = self._settings.complete()
        placer = self._settings.placer
        try:
            return act(self._graph, states, self._backend, placer, prefix, deadline, **options)
        except OpError as error:
            add_origin(error, self._graph)
            raise

    def list_devices(self) -> list[DeviceInfo]:
        """Returns the devices of all tasks that are up, those of the session's server first.

        Raises:
          UnavailableError: if the session's server does not respond within the connect timeout.
          DeadlineExceededError: if the operation timeout passes before the tasks have responded.
        """
        return self._backend.list_devices(self._settings.complete())

    def close(self) -> None:
        """Cancels running steps and closes the session. Shared state stays. May be called again."""
        if not self._closed:
            self._closed = True
            self._backend.close()

    @staticmethod
    def reset(
        target: str, containers: Sequence[str] | None = None, config: ConfigProto | None = None
    ) -> None:
        """Frees containers on all tasks of a cluster and closes all sessions of one server.

        The variables in a freed container have to be initialized before they are used again.

        Args:
          target: the server, as for `Session`; "" does nothing. Name the cluster in it, or set
            JFLOW_CLUSTER, where another cluster may have taken the address.
          containers: names of containers; None or an empty list for the default container.
          config: options, of which the two timeouts are used.

        Raises:
          NotFoundError: if the target does not start with "grpc://".
          UnavailableError: if a task cannot be reached.
          DeadlineExceededError: if the operation timeout passes.
        """
        checked = checked_config(config)
        deadline = Deadline(checked.operation_timeout_in_ms / 1000 or None)
        reset_target(checked_target(target), list(containers or [""]), checked, deadline)

    def as_default(self) -> AbstractContextManager[Any]:
        """Returns a context manager in which `tensor.eval()` and `op.run()` use this session."""
        return stack.sessions.pushed(self)

    def __enter__(self) -> Self:
        if self._blocks is not None:
            raise RuntimeError("a session's `with` block cannot be entered again inside itself")
        self._blocks = ExitStack()
        self._blocks.enter_context(self._graph.as_default())
        self._blocks.enter_context(self.as_default())
        return self

    def _leave(self, failed: bool) -> None:
        blocks, self._blocks = self._blocks, None
        try:
            if blocks is not None:
                blocks.close()
        finally:
            self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<jflow.Session {state}on {self._target or 'this process'}>"

    def _card(self) -> Card:
        steps = self._steps.requests()
        rows = [(names_text(one.fetches + one.targets), names_text(one.fed)) for one in steps]
        facts = (
            ("server", self._target or "this process"),
            ("state", "closed" if self._closed else "open"),
            ("graph", f"{len(self._graph.get_operations()):,} operations"),
            ("placement", self._settings.placement_name),
        )
        tables = (CardTable("steps", ("fetches", "feeds"), rows),)
        return Card("Session", "", facts, tables)
