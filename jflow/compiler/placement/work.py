"""Counts the arithmetic and memory traffic of equations that are fused as in one XLA program.

The equations of a step, or of one program, are flattened: calls are replaced by their bodies, and
what a loop does is counted once for each iteration. Then XLA's fusion is imitated. An operation
that computes each element from few others is part of the operation that uses its result, so that
this result is never in memory, unless

* something uses it that does not fuse: a matrix product, a convolution, a sort, a loop;
* several operations use it and it is expensive to compute again;
* it leaves the program.

What is computed with one result that is in memory is a *kernel*; it reads each array once. What
several kernels use and no memory holds is computed in each of them.

XLA's own counts (`cost_analysis`) are not used: they take a loop for one pass through its body, and
a gather for its whole table. The rules above are those of XLA's instruction fusion on CPUs
(`xla/service/cpu/cpu_instruction_fusion.cc`) in short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.extend.core as jex
import numpy as np

from jflow.compiler.graph import Operation
from jflow.compiler.graph.primitives import is_on_host
from jflow.compiler.placement.equations import (
    CALLS,
    INPUTS,
    N_COUNTS,
    NEAR_BYTES,
    STORES,
    VIEWS,
    Count,
    Fusion,
    Vector,
    bodies_of,
    fusion_of,
    is_expensive,
    is_nested,
    size_of,
    touched_by,
    vector,
    work_of,
)

_Known = dict[Any, int | None]
"""The numbers of values by the variables of a jaxpr; None for what takes no memory."""


def count_operations(ops: Sequence[Operation]) -> Vector:
    """Counts the work of each operation as if all of them were compiled into one program.

    Returns:
      f64[operations, N_COUNTS]. What operations do together counts for the one that reads an array
      first, or that makes the array that is in memory.
    """
    program = _Program()
    known: _Known = {}
    for number, op in enumerate(ops):
        program.add(op.eqn, known, number)
    for op in ops:
        carried = [] if op.loop is None else [op.loop.next[op]] if op in op.loop.next else []
        for tensor in (*op.outputs, *carried):
            value = known.get(tensor.var)
            if value is not None and (tensor in carried or not program.readers[value]):
                program.keep(value)
    return program.counts(len(ops))


def count_program(jaxpr: jex.Jaxpr) -> Vector:
    """Counts the work of a program: f64[N_COUNTS]."""
    program = _Program()
    known: _Known = {}
    for eqn in jaxpr.eqns:
        program.add(eqn, known, 0)
    for atom in jaxpr.outvars:
        value = None if isinstance(atom, jex.Literal) else known.get(atom)
        if value is not None:
            program.keep(value)
    total: Vector = program.counts(1)[0]
    return total


@dataclass
class _Node:
    """An equation of the flattened program.

    Attributes:
      owner: the operation that it belongs to.
      fusion: how it fuses.
      work: what it computes, f64[N_COUNTS], without bytes and kernels.
      reads: the values that it uses, with the bytes of them that it touches.
      writes: the values that it makes.
      written: how many bytes of each of these it writes.
      is_expensive: whether it is never computed twice.
      is_nested: whether its kernels are those of its body, which are part of its work.
      is_transpose, is_product: what it is; a product reads a transposed argument where it is.
      is_needed: whether anything needs it.
    """

    owner: int
    fusion: Fusion
    work: Vector
    reads: list[tuple[int, float]] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    written: float | None = None
    is_expensive: bool = False
    is_nested: bool = False
    is_transpose: bool = False
    is_product: bool = False
    is_needed: bool = False


class _Program:
    """The flattened program; values are numbers, and None is a literal."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.sizes: list[float] = []
        self.makers: list[int | None] = []
        self.readers: list[list[int]] = []
        self.kept: set[int] = set()

    def keep(self, value: int) -> None:
        """Marks a value as a result of the program, which must be written to memory."""
        self.kept.add(value)

    def value(self, aval: Any, maker: int | None = None) -> int:
        self.sizes.append(size_of(aval))
        self.makers.append(maker)
        self.readers.append([])
        return len(self.sizes) - 1

    def add(self, eqn: jex.JaxprEqn, known: _Known, owner: int) -> None:
        """Adds an equation; inputs that are not `known` are read from memory."""
        name = eqn.primitive.name
        inputs = [self._read(atom, known) for atom in eqn.invars]
        if name in INPUTS:
            known.update((var, self.value(var.aval)) for var in eqn.outvars)
        elif name in VIEWS and len(eqn.outvars) == 1:
            (var,) = eqn.outvars
            known[var] = inputs[0]
        elif name in STORES:
            known[eqn.outvars[0]] = self._stored(inputs[0], eqn, owner)
        elif name in CALLS and (body := _only_body(eqn)) is not None:
            if name == "update":
                inputs = [self.value(eqn.outvars[0].aval), *inputs]
            outputs = self._inline(body, inputs, owner)
            known.update(zip(eqn.outvars, outputs, strict=True))
            if name == "update" and outputs[0] is not None:
                self.keep(outputs[0])
        else:
            self._add_node(eqn, inputs, known, owner)

    def _read(self, atom: Any, known: _Known) -> int | None:
        if isinstance(atom, jex.Literal):
            return None
        if atom not in known:
            known[atom] = self.value(atom.aval)
        return known[atom]

    def _inline(self, body: jex.Jaxpr, inputs: list[int | None], owner: int) -> list[int | None]:
        inner: _Known = dict(zip(body.invars, inputs, strict=True))
        for eqn in body.eqns:
            self.add(eqn, inner, owner)
        return [self._read(atom, inner) for atom in body.outvars]

    def _stored(self, value: int | None, eqn: jex.JaxprEqn, owner: int) -> int:
        """Returns a variable's new value: the computed array, or a copy of an array in memory."""
        if value is not None and self.makers[value] is not None and value not in self.kept:
            self.keep(value)
            return value
        node = _Node(owner, Fusion.FUSED, vector({}))
        stored = self._link(node, [(value, None)], [eqn.outvars[0].aval])[0]
        self.keep(stored)
        return stored

    def _add_node(
        self, eqn: jex.JaxprEqn, inputs: list[int | None], known: _Known, owner: int
    ) -> None:
        touched = touched_by(eqn)
        node = _Node(owner, fusion_of(eqn), _work(eqn), written=touched)
        node.is_expensive = is_expensive(eqn)
        node.is_nested = is_nested(eqn) or is_on_host(eqn)
        node.is_transpose = eqn.primitive.name == "transpose"
        node.is_product = eqn.primitive.name == "dot_general"
        reads = [(value, touched) for value in inputs]
        stored = self._link(node, reads, [var.aval for var in eqn.outvars])
        known.update(zip(eqn.outvars, stored, strict=True))
        if eqn.effects or is_on_host(eqn):
            node.is_needed = True

    def _link(
        self, node: _Node, reads: Iterable[tuple[int | None, float | None]], avals: Sequence[Any]
    ) -> list[int]:
        number = len(self.nodes)
        self.nodes.append(node)
        for value, touched in reads:
            if value is not None:
                size = self.sizes[value]
                node.reads.append((value, size if touched is None else min(size, touched)))
                self.readers[value].append(number)
        node.writes = [self.value(aval, number) for aval in avals]
        return node.writes

    def counts(self, n_owners: int) -> Vector:
        """Returns the counts by owner: f64[n_owners, N_COUNTS]."""
        self._mark_needed()
        counts = np.zeros((n_owners, N_COUNTS))
        in_memory = [self._is_in_memory(value) for value in range(len(self.sizes))]
        for number, node in enumerate(self.nodes):
            if not node.is_needed:
                continue
            written = [value for value in node.writes if in_memory[value]]
            for value in written:
                size = self.sizes[value] if node.written is None else node.written
                counts[node.owner, _level(self.sizes[value])] += min(size, self.sizes[value])
            if node.fusion is not Fusion.FUSED or written:
                kind = Count.REDUCTIONS if node.fusion is Fusion.ROOT else Count.KERNELS
                counts[node.owner, kind] += not node.is_nested
                self._count_kernel(number, in_memory, counts)
        return counts

    def _mark_needed(self) -> None:
        """Marks the nodes that results and effects depend on; XLA removes the others."""
        needed = set(self.kept)
        for node in reversed(self.nodes):
            if node.is_needed or not needed.isdisjoint(node.writes):
                node.is_needed = True
                needed.update(value for value, _ in node.reads)

    def _is_in_memory(self, value: int) -> bool:
        maker = self.makers[value]
        if maker is None or value in self.kept:
            return True
        node = self.nodes[maker]
        readers = [self.nodes[reader] for reader in self.readers[value]]
        needed = [reader for reader in readers if reader.is_needed]
        if node.is_transpose and self._is_folded(node):
            return False
        return bool(needed) and (
            node.fusion is not Fusion.FUSED
            or (node.is_expensive and len(needed) > 1)
            or any(reader.fusion is Fusion.ALONE for reader in needed)
        )

    def _is_folded(self, node: _Node) -> bool:
        """Whether all users of a transposed array are products, into which XLA folds it."""
        readers = [self.nodes[reader] for value in node.writes for reader in self.readers[value]]
        is_kept = any(value in self.kept for value in node.writes)
        return not is_kept and all(reader.is_product for reader in readers if reader.is_needed)

    def _count_kernel(self, root: int, in_memory: list[bool], counts: Vector) -> None:
        """Adds the work and memory traffic of a node's kernel to the counts.

        What several kernels use and no memory holds is computed in each of them: in a recurrence
        that is unrolled, the last of n steps may compute all n.
        """
        seen: set[int] = set()
        members, ahead = {root}, [root]
        while ahead:
            node = self.nodes[ahead.pop()]
            if not (node.is_transpose and self._is_folded(node)):
                counts[node.owner] += node.work
            for value, n_bytes in node.reads:
                maker = self.makers[value]
                if in_memory[value]:
                    if value not in seen:
                        seen.add(value)
                        counts[node.owner, _level(self.sizes[value])] += n_bytes
                elif maker is not None and maker not in members:
                    members.add(maker)
                    ahead.append(maker)


def _level(n_bytes: float) -> Count:
    return Count.NEAR_BYTES if n_bytes <= NEAR_BYTES else Count.FAR_BYTES


def _work(eqn: jex.JaxprEqn) -> Vector:
    """Counts the work of an equation and its bodies, without the bytes and kernel of its own.

    A loop counts as often as it is known to run, `while` once; of branches the longest counts.
    """
    if is_on_host(eqn):
        return vector({Count.CALLS: 1})
    if not is_nested(eqn):
        return work_of(eqn)
    bodies = np.array([count_program(body) for body in bodies_of(eqn)])
    if eqn.primitive.name not in ("scan", "while"):
        together: Vector = (
            bodies.max(axis=0) if eqn.primitive.name == "cond" else bodies.sum(axis=0)
        )
        return together
    work: Vector = bodies.sum(axis=0)
    work[Count.ITERATIONS] += 1 + work[Count.KERNELS] + work[Count.REDUCTIONS]
    work[[Count.KERNELS, Count.REDUCTIONS]] = 0.0
    repeated: Vector = work * float(eqn.params.get("length", 1))
    return repeated


def _only_body(eqn: jex.JaxprEqn) -> jex.Jaxpr | None:
    """Returns the only jaxpr that an equation calls with its own arguments; None if not so."""
    bodies = bodies_of(eqn)
    n_arguments = len(eqn.invars) + (eqn.primitive.name == "update")
    if len(bodies) == 1 and len(bodies[0].invars) == n_arguments:
        return bodies[0]
    return None
