"""`PlanBuilder`: builds the plan of one device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import jax
import jax.numpy as jnp

from jflow.base.cluster import Device
from jflow.base.packing import pack
from jflow.base.values import Array, TensorSpec, as_strings, is_known, unwrapping
from jflow.compiler.graph import Operation, ResourceRef, Tensor, VariableRef
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.graph.primitives import (
    WRITES,
    check_p,
    constant_p,
    is_initialized_p,
    read_p,
    value_or_p,
)
from jflow.compiler.partition.state import analyse, varying_reads
from jflow.errors import UnimplementedError
from jflow.plan import (
    CALLBACK,
    NAN_CHECK,
    VARYING,
    Call,
    CallbackAttributes,
    Instruction,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    Slot,
    VariableKey,
    VariableSpec,
)


@dataclass(frozen=True)
class Segment:
    """Operations of the graph that become one pure program.

    The program takes the old values of `reads`, then `inputs`, and returns the new values of
    `writes`, then `outputs`. The next values of `carries`, which are inputs, take their memory.
    """

    device: Device
    ops: tuple[Operation, ...]
    reads: tuple[VariableRef, ...]
    inputs: tuple[Tensor | Bundle, ...]
    writes: tuple[VariableRef, ...]
    outputs: tuple[Tensor | Bundle, ...]
    carries: frozenset[Tensor] = frozenset()

    @property
    def donated(self) -> tuple[int, ...]:
        """Positions of the arguments whose memory the results may reuse."""
        updated = [i for i, ref in enumerate(self.reads) if ref in self.writes]
        carried = [i for i, one in enumerate(self.inputs, len(self.reads)) if one in self.carries]
        return (*updated, *carried)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        has_effects = any(op.eqn.effects for op in self.ops)
        return not self.writes and not self.outputs and not has_effects


def may_be_nan(ops: Sequence[Operation], fed: Collection[Tensor]) -> list[Tensor]:
    """Returns the tensors that XLA operations compute and that can be NaN."""
    return [
        tensor
        for op in ops
        if op.eqn.primitive is not read_p
        for tensor in op.outputs
        if tensor not in fed and jax.dtypes.issubdtype(tensor.dtype, jnp.inexact)
    ]


def nan_attributes(checked: Sequence[Tensor], escaping: Collection[Tensor]) -> bytes:
    """Encodes the attributes of a call that checks tensors for NaN.

    As under `jax.jit`, a NaN counts if it is a result: leaves its program, or goes to a variable.
    """
    return pack(
        {
            "ops": [tensor.op.name for tensor in checked],
            "results": [
                i
                for i, tensor in enumerate(checked)
                if tensor in escaping or tensor.op.eqn.primitive in WRITES
            ],
        }
    )


_NO_BUNDLES: Mapping[Tensor, Bundle] = MappingProxyType({})


@dataclass
class Contents:
    """Segments and constants of a step, by the names that its plans refer to.

    Attributes:
      callbacks: the operations that call the client, with their numbers.
      segments: segments by the program names in `Run` instructions.
      constants: host tensors by the constant names in `Call` instructions.
      edges: the values that plans send each other, by the number of their edge.
      n_loops: the number of loops over devices.
      variables, resources: the state that each device uses, with its numbers. The plan of a device
        and the bodies of its loops share them.
    """

    callbacks: Mapping[Operation, int]
    segments: dict[str, Segment] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    edges: list[Tensor | Operation | Bundle] = field(default_factory=list)
    n_loops: int = 0
    variables: dict[Device, dict[VariableRef, int]] = field(default_factory=dict)
    resources: dict[Device, dict[ResourceRef, int]] = field(default_factory=dict)

    def new_loop(self) -> int:
        """Returns the number of a new loop."""
        self.n_loops += 1
        return self.n_loops - 1

    def add_segment(self, segment: Segment) -> Program:
        """Adds a segment; returns a program with its name, but without code or constants yet."""
        name = f"segment {len(self.segments)}"
        self.segments[name] = segment
        return Program(name, (), segment.donated)

    def add_constant(self, value: Array) -> str:
        """Adds a host tensor and returns its name."""
        name = f"constant {len(self.constants)}"
        self.constants[name] = value
        return name


class PlanBuilder:
    """Builds the plan of a device: numbers slots and state, and collects instructions by stage.

    Args:
      device: the device.
      contents: collects what the plan refers to by name.
      owner: the session that owns resources that are not shared.
      arriving: the bundle in which a tensor comes here, if it comes in one.
    """

    def __init__(
        self,
        device: Device,
        contents: Contents,
        owner: str,
        arriving: Mapping[Tensor, Bundle] = _NO_BUNDLES,
    ) -> None:
        self.device = device
        self._contents = contents
        self._owner = owner
        self._arriving = arriving
        self._slots: dict[Tensor | Bundle, Slot] = {}
        self._n_slots = 0
        self._variables = contents.variables.setdefault(device, {})
        self._resources = contents.resources.setdefault(device, {})
        self._stages: dict[int, list[Instruction]] = {}

    @property
    def n_stages(self) -> int:
        """Number of stages up to the last one with instructions on this device."""
        return max(self._stages, default=-1) + 1

    def slot(self, value: Tensor | Bundle) -> Slot:
        """Returns the slot that holds a tensor or bundle."""
        if value not in self._slots:
            self._slots[value] = self._new_slot()
        return self._slots[value]

    def _new_slot(self) -> Slot:
        self._n_slots += 1
        return self._n_slots - 1

    def _variable(self, ref: VariableRef) -> int:
        return self._variables.setdefault(ref, len(self._variables))

    def _resource(self, ref: ResourceRef) -> int:
        return self._resources.setdefault(ref, len(self._resources))

    def add(self, stage: int, instruction: Instruction) -> None:
        """Appends an instruction to a stage."""
        self._stages.setdefault(stage, []).append(instruction)

    def transfers(self) -> Iterator[tuple[int, Send | Recv]]:
        """Yields the sends and receives, each with its stage."""
        for stage, instructions in self._stages.items():
            for one in instructions:
                if isinstance(one, Send | Recv):
                    yield stage, one

    def add_calls(self, stage: int, ops: Sequence[Operation], fed: Collection[Tensor]) -> None:
        """Appends a `Call` for each of some host operations, or a `Run` of no program.

        Args:
          stage: the number of the stage.
          ops: the operations.
          fed: tensors whose values are inputs of the step instead of results of operations.
        """
        for op in ops:
            self.add(stage, self._call(op, fed))

    def _call(self, op: Operation, fed: Collection[Tensor]) -> Call | Run:
        params, contents = op.eqn.params, self._contents
        # A call returns all of its results. If one is fed, the feed has filled its slot, so the
        # computed value goes to a slot that nothing reads.
        outputs = tuple(self._new_slot() if t in fed else self.slot(t) for t in op.outputs)
        inputs = tuple(self.slot(tensor) for tensor in op.inputs)
        if op.eqn.primitive is constant_p:
            constant = contents.add_constant(params["value"])
            return Call("identity", (), outputs, (constant,), op=op.name)
        if op.eqn.primitive is check_p:
            variable = contents.add_constant(as_strings(str(params["variable"])))
            return Call("check_indices", inputs, (), (variable,), op=op.name)
        if op.eqn.primitive is is_initialized_p:
            number = self._variable(params["variable"])
            return Call("identity", (), outputs, op=op.name, variables=(number,))
        if op.eqn.primitive is value_or_p:
            default = (self._variable(params["variable"]), outputs[0], inputs[0])
            return Run(None, op=op.name, defaults=(default,))
        if op in contents.callbacks:
            attributes = _callback_attributes(op, contents.callbacks[op])
            return Call(CALLBACK, inputs, outputs, attributes=attributes, op=op.name)
        resources = tuple(map(self._resource, params["resources"]))
        function, attributes = params["function"], params["attributes"]
        return Call(function, inputs, outputs, (), resources, attributes, op.name)

    def add_run(
        self,
        stage: int,
        ops: Sequence[Operation],
        needed: Collection[Tensor],
        escaping: Collection[Tensor],
        fed: Collection[Tensor],
        bundles: Collection[Bundle] = (),
        carries: frozenset[Tensor] = frozenset(),
    ) -> None:
        """Appends a `Run` of some XLA operations.

        Args:
          stage: the number of the stage.
          ops: the operations, in the graph's order.
          needed: the tensors that they need, in the order of the program's arguments.
          escaping: tensors that are needed outside of their segment; may include others.
          fed: tensors whose values are inputs of the step.
          bundles: what leaves the segment in bundles.
          carries: what the program takes of the iteration before, and nothing else uses.
        """
        arriving = varying_reads(ops, needed)
        inside = {tensor for op in ops for tensor in op.outputs if tensor not in fed}
        inside.difference_update(arriving)
        arrived: dict[Tensor | Bundle, None] = {}
        for tensor in needed:
            if tensor not in inside:
                arrived[self._arriving.get(tensor, tensor)] = None
        inputs = tuple(arrived)
        leaving = [t for op in ops for t in op.outputs if t in escaping]
        state = analyse(ops, leaving, arriving)
        outputs: tuple[Tensor | Bundle, ...] = (*state.outputs, *bundles)
        segment = Segment(
            self.device, tuple(ops), state.reads, inputs, state.writes, outputs, carries
        )
        named = (*state.written.values(), *leaving, *(t for one in bundles for t in one.tensors))
        self.add(
            stage,
            Run(
                program=None if segment.is_empty else self._contents.add_segment(segment),
                reads=tuple(self._variable(ref) for ref in state.reads),
                inputs=tuple(map(self.slot, inputs)),
                writes=tuple(self._variable(ref) for ref in state.writes),
                initializes=tuple(self._variable(ref) for ref in state.initialized),
                outputs=tuple(map(self.slot, outputs)),
                before=tuple((self._variable(r), self.slot(t)) for r, t in state.before),
                after=tuple((self._variable(r), self.slot(t)) for r, t in state.after),
                op=next((t.op for t in named), ops[-1]).name,
            ),
        )

    def add_bundling(self, stage: int, bundle: Bundle) -> None:
        """Appends a `Run` that makes a bundle of tensors that are in slots."""
        segment = Segment(self.device, (), (), bundle.tensors, (), (bundle,))
        self.add(
            stage,
            Run(
                program=self._contents.add_segment(segment),
                inputs=tuple(map(self.slot, bundle.tensors)),
                outputs=(self.slot(bundle),),
                op=bundle.tensors[0].op.name,
            ),
        )

    def add_nan_check(
        self, stage: int, checked: Sequence[Tensor], escaping: Collection[Tensor]
    ) -> None:
        """Appends a `Call` that checks some tensors for NaN, if there are any."""
        if checked:
            slots = tuple(self.slot(tensor) for tensor in checked)
            self.add(stage, Call(NAN_CHECK, slots, attributes=nan_attributes(checked, escaping)))

    def plan(self, after: tuple[tuple[int, ...], ...], *, is_body: bool = False) -> Plan:
        """Returns the plan.

        Args:
          after: see `Plan.after`.
          is_body: whether it is the body of a loop, which uses the state of the plan around it.
        """
        variables = () if is_body else self._variables
        resources = () if is_body else self._resources
        return Plan(
            self.device,
            self._n_slots,
            tuple(
                VariableSpec(
                    VariableKey(ref.container, ref.name), ref.dtype.name, _sizes(ref), ref.sharding
                )
                for ref in variables
            ),
            tuple(tuple(self._stages.get(stage, ())) for stage in range(self.n_stages)),
            tuple(self._spec(ref) for ref in resources),
            after,
        )

    def _spec(self, ref: ResourceRef) -> ResourceSpec:
        owner = "" if ref.is_shared else ref.session or self._owner
        return ResourceSpec(ref.kind, ref.container, ref.name, owner, ref.definition)


def _sizes(ref: VariableRef) -> tuple[int, ...]:
    return tuple(size if is_known(size) else VARYING for size in ref.shape)


def _callback_attributes(op: Operation, number: int) -> bytes:
    results = []
    for tensor in op.outputs:
        unwrap = unwrapping(tensor.aval)
        aval = tensor.aval if unwrap is None else unwrap.out_avals[0]
        sizes = tuple(int(size) if is_known(size) else None for size in aval.shape or ())
        results.append(TensorSpec(sizes, aval.dtype))
    is_conditional = op.eqn.params["is_conditional"]
    if is_conditional and not all(spec.is_static for spec in results):
        raise UnimplementedError(
            f"{op.name!r}: {op.eqn.params['callback']} is inside a branch and returns arrays of "
            "unknown sizes, which is not supported; call it outside of the branch",
            op=op.name,
        )
    return CallbackAttributes(number, tuple(results), is_conditional).to_bytes()
