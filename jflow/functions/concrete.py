"""A function for arguments of one kind: its own small graph, registered where it runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.extend.core as jex

from jflow.cluster import Device
from jflow.deadline import FOREVER, Deadline
from jflow.errors import OpError
from jflow.graph import Graph, Operation, StateOrder, Tensor, origin, request
from jflow.graph.carrier import carrier_of
from jflow.graph.primitives import placeholder_p
from jflow.session import Step, StepKey, add_origin


class Runner(Protocol):
    """What a function needs from the connection that runs it."""

    def register(self, graph: Graph, key: StepKey, deadline: Deadline) -> Step:
        """Makes a step of a graph ready to run."""

    def place(self, graph: Graph, key: StepKey, deadline: Deadline) -> dict[Operation, Device]:
        """A device for each operation of a step."""

    @property
    def timeout(self) -> float | None:
        """Longest time for a call in seconds, None for no limit."""


class Concrete:
    """A traced function; its first call registers it.

    Args:
      runner: where.
      jaxpr: its equations, accesses to variables at the top level.
      names: what to call its arguments.
    """

    def __init__(self, runner: Runner, jaxpr: jex.ClosedJaxpr, names: Sequence[str]) -> None:
        self.graph = Graph()
        self._runner = runner
        args = [
            self.graph.add(placeholder_p, [], [aval], name=legal(name)).outputs[0]
            for name, aval in zip(names, jaxpr.in_avals, strict=True)
        ]
        outputs, effects = insert(self.graph, jaxpr, args)
        computed = tuple(dict.fromkeys(t for t in outputs if t not in args))
        self._key = StepKey(tuple(effects), computed, tuple(args))
        self._registering = threading.Lock()
        self._step: Step | None = None
        self._timeout = runner.timeout
        carriers = [carrier_of(tensor.dtype) for tensor in (*args, *computed)]
        self._unwraps = [c.unwrap if c else None for c in carriers[: len(args)]]
        self._wraps = [c.wrap if c else None for c in carriers[len(args) :]]
        # Where each result is found among the fetched values and, behind them, the arguments.
        position = {tensor: i for i, tensor in enumerate((*computed, *args))}
        wanted = [position[tensor] for tensor in outputs]
        self._is_plain = not any(carriers) and wanted == list(range(len(computed)))
        self._wanted = wanted

    def __call__(self, args: Sequence[Any], deadline: Deadline | None = None) -> list[jax.Array]:
        """Runs it; arguments and results are in the order of the jaxpr's.

        Args:
          args: the arguments.
          deadline: of the call that made it; any other call begins here.
        """
        if deadline is None:
            deadline = FOREVER if self._timeout is None else Deadline(self._timeout)
        try:
            step = self._step or self._register(deadline)
            if self._is_plain:
                return step.compute(args, deadline)
            values = step.compute(_mapped(self._unwraps, args), deadline)
        except OpError as error:
            add_origin(error, self.graph)
            raise
        known = [*_mapped(self._wraps, values), *args]
        return [jax.numpy.asarray(known[i]) for i in self._wanted]

    def _register(self, deadline: Deadline) -> Step:
        with deadline.holding(self._registering, "waiting for the function to be compiled"):
            step = self._step
            if step is None:
                step = self._step = self._runner.register(self.graph, self._key, deadline)
        deadline.check("compiling the function")
        return step

    def placement(self) -> dict[Operation, Device]:
        """Where each of its operations runs."""
        return self._runner.place(self.graph, self._key, Deadline(self._timeout))


def _mapped(functions: Sequence[Callable[[Any], Any] | None], values: Sequence[Any]) -> list[Any]:
    """The values, each through its function where it has one."""
    return [f(value) if f else value for f, value in zip(functions, values, strict=True)]


def insert(
    graph: Graph, jaxpr: jex.ClosedJaxpr, args: Sequence[Tensor]
) -> tuple[list[Tensor], list[Operation]]:
    """Adds the equations of a traced function, each with the line and scope it was written in.

    Returns:
      Its results, and the operations that run although nobody may need their results.
    """
    order = StateOrder[Operation]()
    inputs = [tensor.var for tensor in args]
    # The blocks around the call are around the trace too: the equations have them already.
    with request.asking_for_nothing():
        outputs = graph.inline(jaxpr, inputs, _name, place_of=origin.place_of, order=order)
    return outputs, order.effects


def _name(eqn: jex.JaxprEqn) -> str:
    """The scopes of `jax.named_scope` and the primitive; a backward pass is a scope of its own."""
    scopes = str(eqn.source_info.name_stack)
    inner = re.sub(r"\w+\(|\)", "", scopes)
    primitive = eqn.params.get("name") if eqn.primitive.name == "jit" else None
    parts = ["gradients" if "transpose(" in scopes else "", inner, primitive or eqn.primitive.name]
    return legal("/".join(filter(None, parts)))


def legal(name: str) -> str:
    """A name as an operation can have it."""
    return re.sub(r"[^A-Za-z0-9_.\-/]+", "_", name).strip("_/") or "call"
