"""Connections: where functions run and where eager variables live."""

from __future__ import annotations

import itertools
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import jax
import jax.extend.core as jex
from jax.api_util import shaped_abstractify

from jflow.base import forks
from jflow.base.cards import Card, Carded, CardTable
from jflow.base.cluster import DeviceSpec, Task
from jflow.base.deadline import Deadline
from jflow.base.handles import Closing
from jflow.base.options import ConfigProto
from jflow.client.functions.accesses import accessed_at, accessing
from jflow.client.functions.concrete import Concrete
from jflow.client.runtime.backend import Backend, DeviceInfo, Executable
from jflow.client.runtime.saving import SaveReport, StateToSave, restore_state, save_state
from jflow.client.runtime.steps import named_strategy, placer_of, register_step, strategy_text
from jflow.client.runtime.target import checked_config, checked_target, open_backend
from jflow.compiler.graph import Graph, Operation, Tensor, VariableRef, owners, tracing
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.members import visible
from jflow.compiler.graph.primitives import EFFECTS, initialize_p
from jflow.compiler.pipeline import StepRequest
from jflow.compiler.placement import DEFAULT_STRATEGY, Placer, Strategy
from jflow.plan.xla import internals
from jflow.plan.xla.jaxprs import shape_of
from jflow.state.members import MemberList
from jflow.state.watch import CoordinatorStatus

_MAX_ACCESSES = 512
"""The number of compiled variable accesses that a connection keeps."""


@forks.guarded(
    *("list_devices", "claim", "register", "backend_and_placer", "step", "access", "create"),
    ignored=("close",),
)
class Connection(Carded, Closing):
    """Runs functions and owns eager variables, in this process or on a cluster.

    On a cluster, variables outlive the connection, and all connections to the cluster share them by
    name, container and device. In this process they are freed with the connection.

    As a context manager it is current in this thread inside the block, and closed at its end.

    Args:
      target: "" for this process, or "grpc://host:port" for any server of a cluster.
      config: options.
      placement: what chooses the devices of functions, in place of `ConfigProto.placement`.

    Raises:
      TypeError: if an argument has the wrong type.
      NotFoundError: if the target does not start with "grpc://".
      InvalidArgumentError: if there is no such placement strategy.
      ValueError: if its address is malformed.
    """

    _instead_of_copy = "another process opens one of its own: jflow.connect(connection.target)"

    def __init__(
        self,
        target: str = "",
        config: ConfigProto | None = None,
        *,
        placement: str | Callable[..., Any] | None = None,
    ) -> None:
        self._config = checked_config(config)
        if placement is not None:
            self._config.placement = placement
        self._strategy = named_strategy(self._config.placement)
        self._target = checked_target(target)
        self._backend = self._open_backend()
        self._registering = threading.Lock()
        self._accesses: dict[Any, Concrete] = {}
        self._calls: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count()
        self._suffix = secrets.token_hex(8)
        self._is_closed = False
        self._block: ExitStack | None = None
        self._claim: tuple[str, int] | None = None
        self._created: dict[tuple[str, DeviceSpec], VariableRef] = {}
        self.timeout = self._config.operation_timeout_in_ms / 1000 or None
        self.keeps_weak_types = self._backend.keeps_weak_types
        self.has_one_device = self._backend.has_one_device

    @property
    def target(self) -> str:
        """The address of the server as given; "" for this process."""
        return self._target

    def check(self, timeout: float | None = None) -> None:
        """Contacts the server; does nothing in this process.

        Args:
          timeout: the longest time to wait in seconds; None for that of the options.

        Raises:
          UnavailableError: if the server does not respond within the connect timeout.
          RestartedError: if the server was started again, and has lost what this connection used
            there; one call says so.
        """
        self._backend.inventory((), Deadline(self.timeout if timeout is None else timeout))

    def incarnation(self) -> int:
        """Returns a random number that identifies the life of the server; 0 in this process."""
        return self._backend.incarnation(Deadline(self.timeout))

    def members(self, deadline: Deadline) -> MemberList | None:
        """Returns the members of the cluster; None in this process. Raises as `check`."""
        return self._backend.members(deadline)

    @property
    def is_lost(self) -> bool:
        """Whether the connection to the server was made and has ended."""
        return self._backend.is_lost

    @property
    def is_open(self) -> bool:
        """Whether the connection was not closed."""
        return not self._is_closed

    @property
    def session(self) -> str:
        """The name of the connection's session, which owns the resources that are not shared."""
        return self._backend.owner

    def disable_reconnect(self) -> None:
        """Makes calls fail immediately with UnavailableError once the connection is lost.

        Without it, they connect again where they can, which takes time.
        """
        self._backend.reconnects = self._backend.restarts.are_outlived = False

    def list_devices(self) -> list[DeviceInfo]:
        """Returns the devices of all tasks that are up, those of the server first.

        Raises:
          UnavailableError: if the server does not respond within the connect timeout.
          DeadlineExceededError: if the operation timeout passes before the tasks have responded.
        """
        return self._backend.list_devices(Deadline(self.timeout))

    def claim(self, name: str, epoch: int = 0) -> int:
        """Claims a name for this program; programs that claimed it earlier are fenced off.

        All that this connection does from now on is under the claim. Once another program claims
        the name, every task refuses it, for ever: steps, saves and restores raise `FencedError`,
        and change nothing. Claims are kept by the tasks and in checkpoints.

        Args:
          name: such as that of a training run.
          epoch: what `claim` has returned on another connection of this program, which this one is
            to share; 0 to make a new claim.

        Returns:
          The epoch of the claim, which is higher than those of all claims before.

        Raises:
          FencedError: if there was a later claim than that of `epoch`.
          UnavailableError: if the server does not respond. Other tasks that are down learn of the
            claim with the first call that uses them.
        """
        self._check_open()
        own = self._backend.claim(name, epoch, Deadline(self.timeout))
        self._claim = name, own
        return own

    @property
    def variables(self) -> list[StateToSave]:
        """The eager variables made on this connection, with their checkpoint keys.

        Keys are their names; those of unnamed ones count them, so that a program which makes the
        same variables in the same order finds them again.
        """
        return [StateToSave(key, ref) for (key, _), ref in self._created.items()]

    def reopen(self) -> None:
        """Reconnects to a cluster that has lost a task.

        Functions are registered again when they are next called, and variables are looked for where
        they were. What runs ends with `CancelledError`. A claim is kept.

        Raises:
          FencedError: if there was a later claim.
          UnavailableError: if the server does not respond.
        """
        self._check_open()
        lost_backend, self._backend = self._backend, self._open_backend()
        lost_backend.close()
        self._forget_calls()
        if self._claim is not None:
            self.claim(*self._claim)

    def another(self) -> Connection:
        """Returns a new connection to the same cluster, with the same options."""
        return Connection(self._target, self._config)

    def _open_backend(self) -> Backend:
        """Opens a backend that outlives restarts of tasks, which a session's backend does not."""
        backend = open_backend(self._target, self._config)
        backend.restarts.are_outlived = bool(self._target)
        return backend

    def save_state(
        self,
        prefix: str,
        states: Sequence[StateToSave],
        *,
        is_consistent: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> SaveReport:
        """Saves eager state; see `jflow.checkpoint.save` and `Session.save_state`."""
        self._check_open()
        return save_state(
            Graph(),
            states,
            self._backend,
            self._placer(),
            prefix,
            Deadline(self.timeout),
            about=about or {},
            is_consistent=is_consistent,
        )

    def restore_state(self, prefix: str, states: Sequence[StateToSave]) -> SaveReport:
        """Restores eager state; see `jflow.checkpoint.restore` and `Session.restore_state`."""
        self._check_open()
        deadline, placer = Deadline(self.timeout), self._placer()
        return restore_state(Graph(), states, self._backend, placer, prefix, deadline)

    def close(self) -> None:
        """Cancels running functions and closes the connection. May be called again."""
        self._is_closed = True
        owners.forget(self)
        self._backend.close()
        self._forget_calls()

    def _forget_calls(self) -> None:
        # Functions can outlive the connection and must not keep its state.
        self._accesses.clear()
        for function in list(self._calls):
            function.forget(self)
        self._calls.clear()

    def __enter__(self) -> Self:
        if self._block is not None:
            raise RuntimeError("a connection's `with` block cannot be entered again inside itself")
        owners.forget(self)
        self._block = ExitStack()
        self._block.enter_context(owners.owned_by(self))
        return self

    def _leave(self, failed: bool) -> None:
        block, self._block = self._block, None
        try:
            if block is not None:
                block.close()
        finally:
            self.close()

    def __eq__(self, other: object) -> bool:
        # Two connections to one cluster have the same variables.
        if isinstance(other, Connection) and self._target:
            return self._target == other._target
        return self is other

    def __hash__(self) -> int:
        return hash(self._target) if self._target else id(self)

    def __repr__(self) -> str:
        state = "closed " if self._is_closed else ""
        return f"<jflow.Connection {state}to {self._target or 'this process'}>"

    def _card(self) -> Card:
        rows = [
            (ref.name, str(ref.shape), ref.dtype.name, ref.container, str(ref.spec))
            for ref in [*self._created.values()]
        ]
        lost = "lost: the next call connects again" if self.is_lost else "open"
        facts = (
            ("server", self._target or "this process"),
            ("state", "closed" if self._is_closed else lost),
            ("placement", strategy_text(self._config.placement)),
            ("page", _page_text(self._backend.page())),
            ("claim", None if self._claim is None else f"{self._claim[0]}, epoch {self._claim[1]}"),
            ("functions", f"{len(self._calls):,} compiled here"),
        )
        head = ("name", "shape", "dtype", "container", "device")
        own = CardTable("variables made here", head, rows)
        return Card("Connection", "", facts, (own,))

    def __dir__(self) -> list[str]:
        return visible(
            super().__dir__(),
            *("access", "another", "backend_and_placer", "calls_of", "check", "concrete", "create"),
            *("default_device", "disable_reconnect", "first_task", "has_one_device"),
            *("incarnation", "is_lost", "is_open", "keeps_weak_types", "members", "note", "peek"),
            *("publish_coordinator", "register", "reopen", "restore_state", "save_state"),
            *("session", "sharding_of", "step", "timeout", "unnamed", "variables"),
        )

    def publish_coordinator(self, status: CoordinatorStatus | None, deadline: Deadline) -> None:
        """Tells the server the status of this program's coordinator, for watchers."""
        self._backend.publish_coordinator(status, deadline)

    # For functions and variables --------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        request: StepRequest,
        deadline: Deadline,
        strategy: Strategy | None = None,
        title: str = "",
    ) -> Executable:
        """Compiles and registers a step of a graph; `strategy` defaults to the connection's."""
        with deadline.holding(self._registering, "waiting for other functions to be registered"):
            where = self.backend_and_placer(request, strategy)
            return register_step(graph, request, *where, deadline, title=title)

    def backend_and_placer(
        self, request: StepRequest, strategy: Strategy | None
    ) -> tuple[Backend, Placer]:
        """See `Runner.backend_and_placer`."""
        return self._backend, placer_of(self._config, strategy or self._strategy, request.fetches)

    def _placer(self) -> Placer:
        """Returns the placer of state, which no step uses."""
        return placer_of(self._config, self._strategy)

    def default_device(self, values: Iterable[Any]) -> DeviceSpec | None:
        """Returns the device that a call with these arguments requests, as `jax.jit` would."""
        return self._backend.default_device(values)

    def step(
        self,
        graph: Graph,
        target: Operation,
        fetches: Sequence[Tensor],
        fed: Sequence[Tensor],
        deadline: Deadline,
    ) -> Executable:
        """Compiles and registers a step that runs one operation of a graph.

        Raises:
          RuntimeError: if the connection is closed.
        """
        self._check_open()
        checks_nans = internals.debug_nans.value
        request = StepRequest((target,), tuple(fetches), tuple(fed), checks_nans)
        return self.register(graph, request, deadline, DEFAULT_STRATEGY)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} is closed; call jflow.connect again")

    def calls_of(self, function: Any) -> dict[Any, Any]:
        """Returns a function's compiled calls here; freed with the function or the connection."""
        calls = self._calls.get(function)
        return self._calls.setdefault(function, {}) if calls is None else calls

    def access(self, primitive: jex.Primitive, args: tuple[Any, ...], params: Any) -> Any:
        """Reads or writes an eager variable immediately; a write returns None.

        Raises:
          RuntimeError: if the connection is closed and the current one is not to the same cluster.
        """
        if self._is_closed:
            return self._successor(params["variable"]).access(primitive, args, params)
        fetch = primitive not in EFFECTS
        avals = tuple(map(shaped_abstractify, args))
        checks_nans = internals.debug_nans.value
        key = (primitive, params["variable"], _identity(params.get("body")), avals, checks_nans)
        concrete = self._accesses.get(key)
        deadline = None
        if concrete is None:
            deadline = Deadline(self.timeout)

            def access(*values: Any) -> tuple[Any, ...]:
                value = primitive.bind(*values, **params)
                return (value,) if fetch else ()

            title = f"{primitive.name} {params['variable'].name}"
            concrete = self._accesses[key] = self.concrete(access, args, title)
            if len(self._accesses) > _MAX_ACCESSES:
                self._accesses.pop(next(iter(self._accesses)), None)
        values = concrete(args, deadline)
        return values[0] if fetch else None

    def _successor(self, variable: VariableRef) -> Connection:
        """Returns the current connection if it is to the same cluster; raises otherwise."""
        now = owners.innermost()
        if isinstance(now, Connection) and now == self and not now._is_closed:
            return now
        raise RuntimeError(
            f"{variable} belongs to {self!r}; call jflow.connect and make the variable again"
        )

    def create(self, ref: VariableRef, initial: Any) -> VariableRef:
        """Initializes an eager variable, unless its container already has it.

        Returns:
          The variable with its actual container and device.
        """
        made_here = not callable(initial)

        def create(ref: VariableRef, *values: Any) -> None:
            value = values[0] if made_here else initial()
            initialize_p.bind(jax.numpy.asarray(value), variable=ref)

        args = (initial,) if made_here else ()
        concrete = self.concrete(accessing([ref], create), args, f"initialize {ref.name}")
        concrete(args)
        (placed,) = accessed_at(concrete, [ref])
        self.note(placed)
        return placed

    def note(self, ref: VariableRef) -> None:
        """Notes a variable as made on this connection; see `variables`."""
        self._created[ref.name.replace(self._suffix, ""), ref.spec] = ref

    def first_task(self) -> Task:
        """Returns the first task of the cluster, by job and index."""
        return min(self._backend.inventory((), Deadline(self.timeout)).tasks)

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """Returns the value of a variable in this process, None if it has none; never blocks."""
        return self._backend.peek(ref)

    def sharding_of(self, ref: VariableRef) -> str:
        """Returns how a variable is sharded over its mesh, as text; "" if it has no value."""
        return self._backend.sharding_of(ref, Deadline(self.timeout))

    def unnamed(self, title: str = "unnamed") -> str:
        """Returns a unique name that begins with `title`."""
        return f"{title}_{self._suffix}_{next(self._numbers)}"

    def concrete(self, fun: Callable[..., Any], args: Sequence[Any], title: str) -> Concrete:
        """Returns a traced function of such arguments, which accesses state where it is.

        Raises:
          RuntimeError: if the connection is closed.
        """
        self._check_open()
        shapes = [shape_of(shaped_abstractify(arg)) for arg in args]
        # What is accessed stays where it is, so there is nothing for a strategy to choose.
        return Concrete(
            self,
            hoist_state(tracing.make_jaxpr(fun, shapes)),
            ["value"] * len(shapes),
            DEFAULT_STRATEGY,
            title,
        )


def _page_text(page: str) -> str:
    """Returns where the live page of a cluster is; without its token, as notebooks are shared."""
    return page and f"{page.partition('#')[0]}, with the token that `jflow status` says"


def _identity(body: jex.ClosedJaxpr | None) -> Any:
    """Returns a hashable key of an update's body; equal keys mean equal updates."""
    return body if body is None or body.consts else str(body)
