"""The records of an exported graph or function.

A document is a few tables that refer to each other by index, so that what occurs often is written
once: abstract values, arrays, programs, variables, resources. A program refers only to programs
before it. Arrays and StableHLO are entries of the archive beside the document (`archive.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from jflow.base.packing import Limits, Meta, Record

VERSION = 1
"""The version of the format; a reader refuses others."""

DEVICE_KEY = "jflow.device"
WINDOW_KEY = "jflow.window"

Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Location = tuple[str, int, str]


@dataclass(frozen=True)
class Aval:
    """An abstract value in written form.

    Attributes:
      shape: sizes; text is an expression of symbols; None if the rank is unknown.
      dtype: the name of the dtype; "key:" and the implementation for random keys.
      is_weak: whether JAX promotes it like a Python number.
      is_on_host: whether it never reaches XLA.
    """

    shape: tuple[int | str, ...] | None
    dtype: str
    is_weak: bool
    is_on_host: bool


@dataclass(frozen=True)
class ArrayEntry:
    """An array's physical shape and dtype; its bytes are the archive's `arrays/<index>`."""

    shape: tuple[Index, ...]
    dtype: str


@dataclass(frozen=True)
class LiteralEntry:
    """A literal operand of an equation: the index of its type, and its bytes."""

    aval: Index
    value: bytes


@dataclass(frozen=True)
class Equation:
    """An equation of a program; its results are numbered after all values before it.

    Attributes:
      primitive: the name of the JAX primitive, or one of `special.py`.
      params: its parameters, as `params.py` writes them.
      inputs: its operands.
      outputs: the abstract values of its results.
      is_partitionable: JAX's setting `jax_threefry_partitionable`, which random bits depend on.
      metadata: the user's XLA metadata; also, of equations in bodies of loops over devices, the
        requested device (`DEVICE_KEY`), and the window of a loop (`WINDOW_KEY`).
    """

    primitive: str
    params: Mapping[str, Any]
    inputs: tuple[Index | LiteralEntry, ...]
    outputs: tuple[Index, ...]
    is_partitionable: bool
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class ProgramEntry:
    """A jaxpr. Its values are numbered: arguments, constants, then results of equations.

    Attributes:
      inputs: abstract values of the arguments.
      constants: arrays.
      equations: in order.
      outputs: the results.
    """

    inputs: tuple[Index, ...]
    constants: tuple[Index, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Index | LiteralEntry, ...]


@dataclass(frozen=True)
class VariableEntry:
    """A variable: its definition, not its value.

    Attributes:
      name, container, device: where its value is.
      aval: the type of its value.
      node: the number of its handle operation.
      is_own: whether its name is that of its operation, which an import scope changes.
      sharding: how it is divided over its mesh, as in plans; "" if that is not declared.
    """

    name: str
    container: str
    device: str
    aval: Index
    node: Index
    is_own: bool
    sharding: str = ""


@dataclass(frozen=True)
class ResourceEntry:
    """A queue or other resource: its definition, not its content; fields as in `VariableEntry`."""

    kind: str
    name: str
    container: str
    device: str
    definition: bytes
    is_shared: bool
    node: Index


@dataclass(frozen=True)
class Node:
    """An operation of the graph.

    Attributes:
      name: its name.
      primitive: the name of jflow's primitive; "" if the operation computes a program.
      program: the program that it computes, which has one equation.
      params: parameters of jflow's primitive.
      inputs: numbers of tensors, which are numbered in the order of the operations.
      controls: numbers of operations to run before it.
      outputs: abstract values of its results.
      device: the requested device.
      colocated: the operations that it is colocated with.
      location: the user's line that made it.
    """

    name: str
    primitive: str
    program: Index | None
    params: Mapping[str, Any]
    inputs: tuple[Index | LiteralEntry, ...]
    controls: tuple[Index, ...]
    outputs: tuple[Index, ...]
    device: str
    colocated: tuple[str, ...]
    location: Location | None


@dataclass(frozen=True)
class Slice:
    """The fields of a `SaveSliceInfo`."""

    full_name: str
    full_shape: tuple[Index, ...]
    var_offset: tuple[Index, ...]
    var_shape: tuple[Index, ...]


@dataclass(frozen=True)
class VariableObject:
    """A `jflow.Variable` of the graph, given by the numbers of its entry, operations and tensors.

    `slice` has the fields of its `SaveSliceInfo`, if it is a part of a partitioned variable.
    """

    variable: Index
    initial_value: Index
    initializer: Index
    value: Index
    is_trainable: bool
    slice: Slice | None


@dataclass(frozen=True)
class Member:
    """A member of a collection: the name of its `MemberKind`, and its value in written form."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Signature:
    """A function's arguments and results as structures of tensor numbers (see `functions.py`)."""

    name: str
    arguments: Any
    results: Any


class Document(Record, frozen=True):
    """The document of an exported graph or function.

    Attributes:
      kind: whether it is a graph or a function.
      version: `VERSION`.
      jax: the version of JAX that wrote it.
      has_64_bits: whether `jax_enable_x64` was on.
      n_programs: how many entries of StableHLO the archive has.
      signatures: of a function, one for each structure of its arguments.
      others: the tables.
    """

    what: ClassVar[str] = "exported graph"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 30, n_text=1 << 24, n_items=1 << 26, depth=32)

    kind: Literal["graph", "function"]
    version: int
    jax: str
    has_64_bits: bool
    n_programs: Index
    avals: tuple[Aval, ...]
    arrays: tuple[ArrayEntry, ...]
    programs: tuple[ProgramEntry, ...]
    variables: tuple[VariableEntry, ...]
    resources: tuple[ResourceEntry, ...]
    nodes: tuple[Node, ...]
    objects: tuple[VariableObject, ...]
    collections: Mapping[str, tuple[Member, ...]]
    signatures: tuple[Signature, ...]
