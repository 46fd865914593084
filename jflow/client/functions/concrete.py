"""A function traced for one signature: a graph, registered as one step on a connection."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.cluster import Device
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.values import Array, is_key, narrowed, physical_form
from jflow.client.runtime.backend import Backend, Executable
from jflow.client.runtime.steps import add_origin, explain_step, place_step
from jflow.compiler.graph import Graph, Operation, Tensor, origin, tracing
from jflow.compiler.graph.effect_order import EffectOrder
from jflow.compiler.graph.hoisting import hoist_state
from jflow.compiler.graph.primitives import placeholder_p
from jflow.compiler.graph.request import empty_request_scope
from jflow.compiler.partition import prune
from jflow.compiler.pipeline import StepRequest
from jflow.compiler.placement import Explanation, Placer, Strategy
from jflow.errors import OpError
from jflow.plan.xla import internals
from jflow.plan.xla.compile import CompiledProgram
from jflow.plan.xla.jaxprs import shape_of
from jflow.state.effects import Effect


class Runner(Protocol):
    """What a traced function needs of a connection."""

    def register(
        self,
        graph: Graph,
        request: StepRequest,
        deadline: Deadline,
        strategy: Strategy | None,
        title: str,
    ) -> Executable:
        """Compiles and registers a step of a graph.

        A strategy of None is the connection's own; the title is what reports call the step.
        """

    def backend_and_placer(
        self, request: StepRequest, strategy: Strategy | None
    ) -> tuple[Backend, Placer]:
        """Returns where a step runs, and what places it there; the strategy is as for `register`.

        The placer is a new one, which keeps the graph that it places.
        """

    @property
    def timeout(self) -> float | None:
        """Time limit of a call in seconds, None for no limit."""

    @property
    def keeps_weak_types(self) -> bool:
        """Whether the arrays that steps return have JAX's weak types."""


class Concrete:
    """A function traced for one signature; its first call registers it.

    Results that are arguments or empty derivatives never reach a device: a call passes them on.

    Args:
      runner: the connection that runs it.
      jaxpr: its equations, with all accesses to variables at the top level.
      names: names of its arguments.
      strategy: what places it; None for the connection's.
      title: what reports call its steps; "" for the names of what it computes.
    """

    def __init__(
        self,
        runner: Runner,
        jaxpr: jex.ClosedJaxpr,
        names: Sequence[str],
        strategy: Strategy | None = None,
        title: str = "",
    ) -> None:
        self.graph = Graph()
        self._runner = runner
        self._title = title
        self._strategy = strategy
        self._jaxpr, self._names = jaxpr, names
        args = [
            self.graph.add(placeholder_p, [], [aval], name=origin.legal_name(name)).outputs[0]
            for name, aval in zip(names, jaxpr.in_avals, strict=True)
        ]
        outputs, effects = insert(self.graph, jaxpr, args)
        # Derivatives with respect to integers have the dtype float0, which only JAX knows.
        self._empty = {
            t: np.zeros(t.shape, t.dtype) for t in outputs if _is_empty(t) and t not in args
        }
        computed = tuple(dict.fromkeys(t for t in outputs if t not in {*args, *self._empty}))
        # Arguments that no operation needs are not fed: they never reach a device or the wire.
        needed = {t for op in prune(self.graph, effects, computed, args) for t in op.inputs}
        fed = tuple(tensor for tensor in args if tensor in needed)
        _refuse_empty(fed)
        self._request = StepRequest(tuple(effects), computed, fed, internals.debug_nans.value)
        self._registering = threading.Lock()
        self._executable: Executable | None = None
        self._is_prepared = False
        self._timeout = runner.timeout
        # Decided once, so that a call does no work for values that need no conversion.
        self._feed_indices = (
            None if len(fed) == len(args) else [args.index(tensor) for tensor in fed]
        )
        self._unwraps = _changes(_unwrap_conversion(tensor) for tensor in fed)
        is_weak = dict(zip(outputs, (aval.weak_type for aval in jaxpr.out_avals), strict=True))
        self._wraps = _changes(
            _wrap_conversion(tensor, runner.keeps_weak_types, is_weak[tensor])
            for tensor in computed
        )
        # Results are taken from the fetched values, followed by the arguments and the constants.
        position = {tensor: i for i, tensor in enumerate((*computed, *args, *self._empty))}
        result_positions = [position[tensor] for tensor in outputs]
        self._n_computed = len(computed)
        self._wanted = None if result_positions == list(range(len(computed))) else result_positions
        takes_all = self._feed_indices is None and not self._unwraps
        self._is_plain = takes_all and self._wanted is None and not self._wraps

    def __call__(self, args: Sequence[Any], deadline: Deadline | None = None) -> list[jax.Array]:
        """Runs the function.

        Args:
          args: the arguments, in the order of the jaxpr.
          deadline: the deadline of the call that traced it; None for later calls, which start here.

        Returns:
          The results, in the order of the jaxpr.
        """
        if deadline is None:
            deadline = FOREVER if self._timeout is None else Deadline(self._timeout)
        try:
            executable = self._executable or self._register(deadline)
            if self._is_plain:
                return executable.compute(args, deadline)
            values = executable.compute(self._feed_values(args), deadline)
        except OpError as error:
            add_origin(error, self.graph)
            raise
        return self._results(values, args)

    def single_program(self) -> tuple[CompiledProgram, Sequence[int] | None] | None:
        """Returns the only program of a call and its arguments' indices; None if a call does more.

        Indices of None mean all arguments in order. A function that has not run has no program.
        """
        executable = self._executable
        if executable is None or self._unwraps or self._wraps or self._wanted is not None:
            return None
        program = executable.single_program(len(self._request.fed))
        return None if program is None else (program, self._feed_indices)

    # For a coordinator, which runs it without waiting --------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the step is compiled and registered, so that `start` does neither."""
        return self._is_prepared

    @property
    def jaxpr(self) -> jex.ClosedJaxpr:
        """The traced equations, with all accesses to variables at the top level."""
        return self._jaxpr

    def on(self, runner: Runner, jaxpr: jex.ClosedJaxpr) -> Concrete:
        """Returns the same traced function for another connection, where it is not registered yet.

        Args:
          runner: the connection.
          jaxpr: its equations there; other arguments and results make it another function.
        """
        if jaxpr is not self._jaxpr:
            n = len(jaxpr.in_avals)
            names = self._names if n == len(self._names) else [f"argument_{i}" for i in range(n)]
            return Concrete(runner, jaxpr, names, self._strategy, self._title)
        other = copy.copy(self)
        other._runner, other._timeout = runner, runner.timeout
        other._registering, other._executable = threading.Lock(), None
        other._is_prepared = False
        return other

    def batch(self, n: int) -> Concrete:
        """Returns a function that makes `n` calls of this one in sequence, as one step.

        Its arguments are those of all calls, its results likewise.
        """
        n_args = len(self._names)

        def calls(*args: Any) -> list[Any]:
            results: list[Any] = []
            for i in range(n):
                own_args = args[i * n_args : (i + 1) * n_args]
                results += jax.core.eval_jaxpr(self._jaxpr.jaxpr, self._jaxpr.consts, *own_args)
            return results

        jaxpr = tracing.make_jaxpr(calls, [shape_of(aval) for aval in self._jaxpr.in_avals] * n)
        names = [f"{name}_{i}" for i in range(n) for name in self._names]
        title = self._title and f"{n} calls of {self._title}"
        return Concrete(self._runner, hoist_state(jaxpr), names, self._strategy, title)

    def prepare(self, deadline: Deadline) -> None:
        """Compiles and registers the function, unless it is registered already."""
        (self._executable or self._register(deadline)).prepare(deadline)
        self._is_prepared = True

    def feeds(self, args: Sequence[Any]) -> list[Array]:
        """Converts arguments to the arrays that a step is fed."""
        return [narrowed(value) for value in self._feed_values(args)]

    def start(
        self, feeds: Sequence[Array], deadline: Deadline, effect: Effect | None = None
    ) -> Future[list[Array]]:
        """Starts a step without blocking; `prepare` must have returned before.

        Args:
          feeds: what `feeds` has returned.
          deadline: that of the step.
          effect: see `Executable.start`.

        Returns:
          The values that `host_results` takes. Errors do not have the user's line yet.
        """
        executable = self._executable
        assert executable is not None, "prepare comes before start"
        return executable.start(feeds, deadline, effect=effect)

    def host_results(self, values: list[Any], args: Sequence[Any]) -> list[Any]:
        """Converts fetched values to results: NumPy arrays, but JAX arrays for random keys."""
        for i, wrap in self._wraps:
            if wrap is not _as_weak:
                values[i] = wrap(values[i])
        if self._wanted is None:
            return values
        n = self._n_computed
        others = (*map(_on_host, args), *self._empty.values())
        return [values[i] if i < n else others[i - n] for i in self._wanted]

    def with_origin(self, error: BaseException) -> BaseException:
        """Returns the error of a step with the user's line that made the failed operation."""
        if isinstance(error, OpError):
            add_origin(error, self.graph)
        return error

    @property
    def argument_text(self) -> str:
        """The names and types of the arguments, such as "x: float32[3]"."""
        pairs = zip(self._names, self._jaxpr.in_avals, strict=True)
        return ", ".join(f"{name}: {aval.str_short()}" for name, aval in pairs) or "none"

    def __repr__(self) -> str:
        return f"<jflow.client.functions.Concrete of {len(self.graph.get_operations())} operations>"

    def _feed_values(self, args: Sequence[Any]) -> list[Any]:
        fed = [*args] if self._feed_indices is None else [args[i] for i in self._feed_indices]
        for i, unwrap in self._unwraps:
            fed[i] = unwrap(fed[i])
        return fed

    def _results(self, values: list[jax.Array], args: Sequence[Any]) -> list[jax.Array]:
        for i, wrap in self._wraps:
            values[i] = wrap(values[i])
        if self._wanted is None:
            return values
        n = self._n_computed
        others = (*args, *self._empty.values()) if self._empty else args
        return [values[i] if i < n else _as_array(others[i - n]) for i in self._wanted]

    def _register(self, deadline: Deadline) -> Executable:
        with deadline.holding(self._registering, "waiting for the function to be compiled"):
            executable = self._executable
            if executable is None:
                executable = self._executable = self._runner.register(
                    self.graph, self._request, deadline, self._strategy, self._title
                )
        deadline.check("compiling the function")
        return executable

    def placement(self) -> dict[Operation, Device]:
        """Returns the device of each operation."""
        where = self._runner.backend_and_placer(self._request, self._strategy)
        return place_step(self.graph, self._request, *where, Deadline(self._timeout))

    def explain(self) -> Explanation:
        """Explains the device of each operation."""
        where = self._runner.backend_and_placer(self._request, self._strategy)
        return explain_step(self.graph, self._request, *where, Deadline(self._timeout))


class PreparedCall(NamedTuple):
    """A call that is traced but has not run.

    Attributes:
      run: the traced function.
      out_tree: the structure of its result.
      args: the arguments that `run` takes.
    """

    run: Concrete
    out_tree: Any
    args: list[Any]


Change = Callable[[Any], Any]


def _changes(changes: Iterable[Change | None]) -> list[tuple[int, Change]]:
    """Returns the changes that are not None, each with the index of its value."""
    return [(i, change) for i, change in enumerate(changes) if change is not None]


def _unwrap_conversion(tensor: Tensor) -> Change | None:
    """Returns the conversion of an argument to its physical form; None if it needs none."""
    if is_key(tensor.dtype):
        return internals.key_data
    physical = physical_form(tensor.dtype)
    return physical.unwrap if physical else None


def _wrap_conversion(tensor: Tensor, keeps_weak_types: bool, is_weak: bool) -> Change | None:
    """Returns the conversion of a fetched value to its `jax.jit` type; None if it needs none."""
    if is_key(tensor.dtype):
        return internals.key_maker(tensor.dtype)
    physical = physical_form(tensor.dtype)
    if physical is not None:
        return physical.wrap
    if is_weak and not (keeps_weak_types and getattr(tensor.aval, "weak_type", False)):
        return _as_weak
    return None


@jax.jit
def _as_weak(x: jax.Array) -> jax.Array:
    """Returns the value with a weak type, which results computed from Python numbers have."""
    convert_p = jex.primitives.convert_element_type_p
    weak: jax.Array = convert_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)
    return weak


def _as_array(value: Any) -> jax.Array:
    if isinstance(value, jax.Array) or getattr(value, "dtype", None) == jax.dtypes.float0:
        return value  # type: ignore[no-any-return]
    return jax.numpy.asarray(value)


def _on_host(value: Any) -> Any:
    return value if is_key(getattr(value, "dtype", None)) else np.asarray(value)


def _is_empty(tensor: Tensor) -> bool:
    return bool(tensor.dtype == jax.dtypes.float0)


def _refuse_empty(fed: Iterable[Tensor]) -> None:
    for tensor in fed:
        if _is_empty(tensor):
            raise TypeError(
                f"the function computes with the argument {tensor.op.name!r}, whose dtype is "
                "float0, that of derivatives with respect to integers; remove it, or pass zeros of "
                "another dtype"
            )


def insert(
    graph: Graph, jaxpr: jex.ClosedJaxpr, args: Sequence[Tensor]
) -> tuple[list[Tensor], list[Operation]]:
    """Adds the equations of a traced function to a graph, with their source locations and scopes.

    Returns:
      The results, and the operations with effects, which must run even if no result needs them.
    """
    order = EffectOrder()
    inputs = [tensor.var for tensor in args]
    # The function was traced inside the same blocks, so its equations carry their requests already.
    with empty_request_scope():
        outputs = graph.inline(
            jaxpr, inputs, origin.name_of, location_of=origin.location_of, order=order
        )
    return outputs, order.effects
