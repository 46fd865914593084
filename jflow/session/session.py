"""`Session`: runs a graph, in this process or on a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple, Self

from jflow import _forks
from jflow.closing import Closing
from jflow.cluster import Device
from jflow.deadline import FOREVER, Deadline
from jflow.errors import OpError
from jflow.graph import Graph, Operation, Tensor, get_default_graph, stack
from jflow.pipeline import StepRequest
from jflow.placement import Explanation
from jflow.runtime.backend import Backend, DeviceInfo, Executable
from jflow.runtime.config import ConfigProto, RunOptions
from jflow.runtime.steps import add_origin, explain_step, place_step, placer_of, register_step
from jflow.runtime.target import checked_config, checked_target, open_backend, reset_target
from jflow.session.fetches import FeedSlot, Fetches, parse_feed_list, parse_feeds, parse_fetches
from jflow.tracebacks import handled, hide_frames
from jflow.xla import internals

_SINGLE = frozenset({Tensor, Operation})


class _Known(NamedTuple):
    """A step with a single fetch that has run before."""

    executable: Executable
    slots: tuple[FeedSlot, ...]
    fetches: Fetches


@_forks.guarded("run", "list_devices", "placement", "explain", "reset")
class Session(Closing):
    """Runs a graph in this process or on a cluster.

    A local session has its own copy of every variable. A session on a cluster uses the variables
    in the cluster's containers, which other sessions share and which outlive it. Several threads
    may call `run` at the same time.

    Args:
      target: "" for this process, or "grpc://host:port" for any server of a cluster.
      graph: the graph to run; None for the default graph.
      config: options.

    Raises:
      TypeError: if an argument has the wrong type.
      NotFoundError: if the target does not start with "grpc://".
      ValueError: if its address is malformed.
    """

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: ConfigProto | None = None
    ) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a Graph, got {type(graph).__name__}")
        self._config = checked_config(config)
        self._graph = get_default_graph() if graph is None else graph
        self._target = checked_target(target)
        self._backend: Backend = open_backend(target, self._config)
        self._placer = placer_of(self._config)
        self._executables: dict[StepRequest, Executable] = {}
        # Two tables, because a step has another executable while `jax_debug_nans` is on.
        self._known: tuple[dict[Any, _Known], dict[Any, _Known]] = ({}, {})
        self._default_timeout = self._config.operation_timeout_in_ms / 1000 or None
        self._registering = threading.Lock()
        self._closed = False
        self._blocks: ExitStack | None = None

    @property
    def graph(self) -> Graph:
        """The graph that the session runs."""
        return self._graph

    @property
    def target(self) -> str:
        """The address of its server as given, "" for this process."""
        return self._target

    @handled
    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Runs one step: each operation that the fetches need, at most once.

        Args:
          fetches: tensors, variables, operations or their names, in any structure of lists,
            tuples, dicts, their subclasses, dataclasses, attrs classes and JAX pytrees.
          feed_dict: values by tensor. An operation whose outputs are all fed does not run.
          options: options of this step.

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
            if self._closed:
                raise RuntimeError("Attempted to use a closed Session.")
            deadline = self._deadline(options)
            key: Any = None
            if type(fetches) in _SINGLE and (not feed_dict or type(feed_dict) is dict):
                key = (fetches, *feed_dict) if feed_dict else fetches
                known = self._known[internals.debug_nans.value].get(key)
                if known is not None:
                    return self._run_known(known, feed_dict or {}, deadline)
            return self._run_new(key, fetches, feed_dict, deadline)
        except Exception as error:
            hide_frames(error)
            raise

    def _run_new(
        self, key: Any, fetches: Any, feed_dict: Mapping[Any, Any] | None, deadline: Deadline
    ) -> Any:
        """Runs a step; unless `key` is None, stores under it what `_run_known` needs."""
        parsed = parse_fetches(self._graph, fetches)
        feeds = parse_feeds(self._graph, feed_dict)
        if self._graph.is_empty:
            raise RuntimeError("The Session graph is empty; add operations before calling run()")
        checks_nans = internals.debug_nans.value
        fetched = parsed.tensors
        if feeds:
            fetched = tuple(tensor for tensor in fetched if tensor not in feeds)
        try:
            request = StepRequest(parsed.targets, fetched, tuple(feeds), checks_nans)
            executable = self._executable(request, deadline)
            values = executable.run(list(feeds.values()), deadline)
        except OpError as error:
            add_origin(error, self._graph)
            raise
        is_same = len(fetched) == len(parsed.tensors) and len(feeds) == len(feed_dict or ())
        if key is not None and is_same:
            self._known[checks_nans][key] = _Known(executable, tuple(map(FeedSlot, feeds)), parsed)
        return parsed.fill(feeds | dict(zip(fetched, values, strict=True)))

    def _run_known(self, known: _Known, feed_dict: Mapping[Any, Any], deadline: Deadline) -> Any:
        """Runs a step with a single fetch that has run before."""
        feeds = [
            slot.take(value) for slot, value in zip(known.slots, feed_dict.values(), strict=True)
        ]
        try:
            values = known.executable.run(feeds, deadline)
        except OpError as error:
            add_origin(error, self._graph)
            raise
        return known.fetches.fill_single(values)

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None
    ) -> Callable[..., Any]:
        """Returns a function that runs `fetches` and takes the values to feed.

        Args:
          fetches: as for `run`.
          feed_list: the tensors to feed; the function takes a value for each, in this order.

        Raises:
          TypeError: if `feed_list` is not a list or tuple.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError(f"feed_list must be a list or tuple, got {type(feed_list).__name__}")
        keys = list(feed_list or ())

        def call(*values: Any) -> Any:
            if len(values) != len(keys):
                raise ValueError(
                    f"expected as many values as tensors in feed_list ({len(keys)}), got "
                    f"{len(values)}"
                )
            return self.run(fetches, dict(zip(keys, values, strict=True)))

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
        request = self._request(fetches, feed_list)
        return place_step(self._graph, request, self._backend, self._placer, self._deadline())

    def explain(self, fetches: Any, feed_list: Sequence[Any] | None = None) -> Explanation:
        """Why each operation that a step needs would run where it would.

        Printed, it is a table with the predicted time of the step and a lower bound; `reasons` and
        `to_json()` have the same as data, and `jflow.inspect` draws it.

        Args:
          fetches: as for `run`.
          feed_list: the tensors that would be fed.

        Raises:
          As `run` before the step begins.
        """
        request = self._request(fetches, feed_list)
        return explain_step(self._graph, request, self._backend, self._placer, self._deadline())

    def _request(self, fetches: Any, feed_list: Sequence[Any] | None) -> StepRequest:
        parsed = parse_fetches(self._graph, fetches)
        fed = parse_feed_list(self._graph, feed_list or ())
        return StepRequest(parsed.targets, parsed.tensors, fed)

    def list_devices(self) -> list[DeviceInfo]:
        """Returns the devices of all tasks that are up, those of the session's server first.

        Raises:
          UnavailableError: if the session's server does not answer within the connect timeout.
          DeadlineExceededError: if the operation timeout passes before the tasks have answered.
        """
        return self._backend.list_devices(self._deadline())

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
          target: "grpc://host:port" for the server; "" does nothing.
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
        """A block in which `tensor.eval()` and `op.run()` use this session, which stays open."""
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

    def _executable(self, request: StepRequest, deadline: Deadline) -> Executable:
        executable = self._executables.get(request)
        if executable is None:
            with deadline.holding(self._registering, "waiting for other steps to be registered"):
                executable = self._executables.get(request)
                if executable is None:
                    executable = register_step(
                        self._graph, request, self._backend, self._placer, deadline
                    )
                    self._executables[request] = executable
            deadline.check("compiling the step")
        return executable

    def _deadline(self, options: RunOptions | None = None) -> Deadline:
        timeout = self._default_timeout
        if options is not None:
            timeout = options.timeout_in_ms / 1000 or timeout
        return FOREVER if timeout is None else Deadline(timeout)

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<jflow.Session {state}on {self._target or 'this process'}>"
