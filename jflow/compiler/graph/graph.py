"""`Graph`: operations, the tensors between them, and their names.

An operation is one JAX equation (`jax.extend.core.JaxprEqn`) with a name. Its tensors are the
equation's variables, so any sequence of operations is a jaxpr and needs no translation. The device
request is part of the equation's metadata, which JAX's transformations preserve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable
from jflow.base.cluster import DeviceSpec
from jflow.base.context import Stack
from jflow.base.values import (
    AbstractValue,
    Dtype,
    TensorShape,
    abstract_of,
    as_array,
    declared,
    is_unranked,
    plain_size,
    refuse_host,
    to_physical,
)
from jflow.compiler.graph import definition, origin, request, stack, text, tracing, unify
from jflow.compiler.graph.effect_order import EffectOrder
from jflow.compiler.graph.members import GraphKeys, GraphMember
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.packing import has_tensors, packed
from jflow.compiler.graph.primitives import (
    ACCESSES,
    ResourceRef,
    VariableRef,
    constant_p,
    group_p,
    host_p,
    recorded_p,
    resource_p,
    state_of,
    variable_p,
)
from jflow.compiler.graph.recorded import RecordedCall, record
from jflow.compiler.graph.refinement import refined, retype
from jflow.compiler.graph.resolve import resolve
from jflow.compiler.graph.scoped import ScopedMembers
from jflow.compiler.graph.size_sources import sources_of, unbound_sizes, with_sources
from jflow.compiler.graph.symbolic import Symbolic
from jflow.plan.xla import jaxprs
from jflow.state.records.graph_def import GraphDef

graphs: Stack[Graph] = Stack()


class Tensor(GraphMember, Carded, Symbolic):
    """An output of an operation: a symbolic array with a dtype and shape."""

    __slots__ = ("index", "op", "var")

    def __init__(self, op: Operation, index: int, var: jex.Var) -> None:
        self.op = op
        self.index = index
        self.var = var

    @property
    def name(self) -> str:
        """The name, "operation:index"."""
        return f"{self.op.name}:{self.index}"

    @property
    def graph(self) -> Graph:
        """The graph that the tensor belongs to."""
        return self.op.graph

    @property
    def aval(self) -> AbstractValue:
        """The abstract value: shape, dtype and weak type."""
        aval = self.var.aval
        assert isinstance(aval, AbstractValue)
        return aval

    @property
    def shape(self) -> TensorShape:
        """The sizes of the dimensions."""
        return TensorShape.of(self.aval.shape)

    @property
    def dtype(self) -> Dtype:
        """Dtype of the elements; for random keys a JAX extended dtype."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions. Raises ValueError if it is unknown."""
        if self.aval.shape is None:
            raise ValueError(
                f"the rank of {self!r} is unknown; declare it with set_shape or jflow.ensure_shape"
            )
        return len(self.aval.shape)

    def set_shape(self, shape: Any) -> None:
        """Declares what is known of the shape, with None for unknown sizes; no step checks it.

        Raises ValueError if the tensor cannot have that shape, or operations were built on its
        unknown sizes, or it is computed from a tensor of unknown rank and a size is unknown.
        """
        dims = refined(self, shape)
        if dims is not None:
            self.graph.retype(self, dims)

    @property
    def device(self) -> str:
        """The requested device, "" if there is none."""
        return self.op.device

    def to_tensor(self) -> Tensor:
        return self

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        return self.graph.apply(fun, args)

    def eval(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> Any:
        """Computes the value in `session`, else the default one; ValueError if there is neither."""
        return stack.runner(session).run(self, feed_dict)

    def __repr__(self) -> str:
        shape = declared(self.aval.shape)
        return f"<jflow.Tensor {self.name!r} shape={shape} dtype={self.dtype.name}>"

    def _card(self) -> Card:
        facts = (
            ("shape", declared(self.aval.shape)),
            ("dtype", self.dtype.name),
            ("operation", f"{self.op.name} ({self.op.type})"),
            ("device", self.device),
            ("made at", self.op.origin),
        )
        return Card("Tensor", self.name, facts, note="It has a value in a step: session.run.")


class Operation(GraphMember, Carded):
    """A node of the graph: a JAX equation with a name and control inputs.

    Attributes:
      declares: the abstract value of the variable that the operation stands for; None if it stands
        for none, or a file or function has brought it into the graph.
      loop: the open loop that it belongs to (`loops.py`), or None.
    """

    __slots__ = (
        "_location",
        "control_inputs",
        "declares",
        "eqn",
        "graph",
        "inputs",
        "loop",
        "name",
        "outputs",
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        eqn: jex.JaxprEqn,
        inputs: tuple[Tensor, ...],
        control_inputs: tuple[Operation, ...],
        location: origin.SourceLocation | None,
        declares: AbstractValue | None = None,
        loop: OpenLoop | None = None,
    ) -> None:
        self.graph = graph
        self.loop = loop
        self.declares = declares
        self.name = name
        self.eqn = eqn
        self.inputs = inputs
        self.control_inputs = control_inputs
        self._location = location
        self.outputs = tuple(Tensor(self, i, var) for i, var in enumerate(eqn.outvars))

    @property
    def type(self) -> str:
        """Name of the primitive, of the host function, or of the function under `jit`."""
        if self.eqn.primitive in (host_p, recorded_p):
            function: str = self.eqn.params["function"]
            return function
        name = self.eqn.params.get("name")
        return name if self.eqn.primitive.name == "jit" and name else self.eqn.primitive.name

    @property
    def spec(self) -> DeviceSpec:
        """The requested device; fields that are not requested are None."""
        return request.requested_device(self.eqn)

    @property
    def device(self) -> str:
        """The requested device as a string, "" if there is none."""
        return str(self.spec)

    @property
    def colocated_with(self) -> tuple[str, ...]:
        """Names of the operations that it is colocated with."""
        return request.requested(self.eqn).names

    def colocation_groups(self) -> list[bytes]:
        """Its colocation groups as in TensorFlow: b"loc:@" and the name of the first member."""
        return [f"loc:@{name}".encode() for name in self.colocated_with or (self.name,)]

    @property
    def origin(self) -> str:
        """The user's line that made the operation, "file:line in function"."""
        return origin.describe(self._location)

    def run(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> None:
        """Runs the operation in `session`, else the default one; ValueError if there is neither."""
        stack.runner(session).run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<jflow.Operation {self.name!r} type={self.type}>"

    def _card(self) -> Card:
        tensors = [("input", tensor) for tensor in self.inputs]
        tensors += [("output", tensor) for tensor in self.outputs]
        rows = [
            (role, one.name, str(declared(one.aval.shape)), one.dtype.name) for role, one in tensors
        ]
        facts = (
            ("type", self.type),
            ("device", self.device),
            ("runs after", ", ".join(op.name for op in self.control_inputs[:MAX_ROWS])),
            ("made at", self.origin),
        )
        table = CardTable("tensors", ("role", "name", "shape", "dtype"), rows, is_open=True)
        return Card("Operation", self.name, facts, (table,))


def _counts(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in pairs[:MAX_ROWS]]


def _no_existing(_: jex.JaxprEqn, __: list[jaxprs.Atom]) -> Sequence[Tensor] | None:
    return None


class Graph(Carded, ScopedMembers):
    """A graph: operations in the order of their creation, which is a valid order of execution.

    A graph is thread-safe. Scopes (names, containers, control inputs) belong to the thread that
    has opened them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._handles: dict[VariableRef | ResourceRef, Operation] = {}
        self._initializers: dict[VariableRef, Operation] = {}
        self._finalized = False
        self._unfeedable: set[Tensor] = set()

    # Making operations ----------------------------------------------------------------------

    def add(
        self,
        primitive: jex.Primitive,
        inputs: Sequence[jaxprs.Atom],
        out_avals: Sequence[Any],
        *,
        name: str,
        declares: AbstractValue | None = None,
        **params: Any,
    ) -> Operation:
        """Adds an operation of one of jflow's primitives under the current scopes."""
        outvars = [jex.Var(aval) for aval in out_avals]
        eqn = jex.new_jaxpr_eqn(list(inputs), outvars, primitive, params, jex.no_effects)
        return self._insert(name, eqn, declares=declares)

    def apply(
        self,
        fun: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        *,
        name: str | None = None,
    ) -> Any:
        """Adds a call of a JAX function as operations.

        Args:
          fun: any function that `jax.make_jaxpr` can trace.
          args, kwargs: pytrees whose leaves are tensors, variables, arrays or static values.
          name: name of the operation; by default the function's name.

        Returns:
          The result of `fun` with tensors for arrays; each of them depends on all effects of
          `fun`. If there are no tensors but effects, an operation that depends on the effects.

        Raises:
          ValueError: if an argument is a tensor of another graph.
          TypeError: if an argument is a string or a JAX tracer, or does not fit `fun`.
        """
        name = name or tracing.name_of(fun)
        leaves, in_tree = jax.tree.flatten((tuple(args), kwargs or {}))
        tensors: list[Tensor] = []
        keys: list[Any] = []
        for leaf in leaves:
            tracing.refuse_tracer(leaf)
            if isinstance(leaf, Symbolic | np.ndarray | jax.Array):
                tensors.append(self.as_tensor(leaf))
                if not is_unranked(tensors[-1].aval):
                    refuse_host(tensors[-1], name)
                keys.append(tensors[-1].aval)
            else:
                keys.append(tracing.Static.of(plain_size(leaf)))
        static = [key.value for key in keys if isinstance(key, tracing.Static)]
        unbound = unbound_sizes(static, (tensor.aval.shape for tensor in tensors))
        if unbound and (sources := sources_of(unbound, list(self._tensors.values()))):
            return self.apply(with_sources(fun), (sources, tuple(args), kwargs or {}), name=name)
        args = [tensor.var for tensor in tensors]
        if any(map(is_unranked, keys)):
            call = record(fun, in_tree, keys, name)
            op = self.add_recorded(args, call, name)
            return jax.tree.unflatten(call.out_tree, op.outputs) if op.outputs else op
        traced = unify.fitted(
            partial(tracing.trace, fun, in_tree, keys), (t.shape for t in tensors), tensors
        )
        order = EffectOrder()
        outputs = self.inline(traced.jaxpr, args, lambda _: name, order=order, here=traced.context)
        if order.effects and not outputs:
            after = (*self.scopes.here.control_inputs, *order.effects)
            with self.scopes.replaced(control_inputs=after):
                return self.add(group_p, [], [], name=name)
        if order.effects:
            outputs = self.after(order.effects, outputs)
        return jax.tree.unflatten(traced.out_tree, outputs)

    def retype(self, tensor: Tensor, dims: tuple[Any, ...]) -> None:
        """Refines the shape of a tensor. Raises as `Tensor.set_shape`."""
        with self._lock:
            self._check_changeable()
            users = [op for op in self._operations.values() if tensor in op.inputs]
            self._tensors[retype(tensor, dims, users)] = tensor

    def add_recorded(
        self, inputs: Sequence[jaxprs.Atom], call: RecordedCall, name: str
    ) -> Operation:
        """Adds a recorded call, which a step replaces by operations once the ranks are known."""
        for ref in call.state:
            self.handle_of(ref)
        params: dict[str, Any] = {"replay": call.replay, "fallback": call.fallback}
        params |= {"function": name, "state": call.state}
        return self.add(recorded_p, inputs, call.avals, name=name, **params)

    def after(self, ops: Sequence[Operation], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns copies of tensors that run after operations."""
        with self.scopes.replaced(control_inputs=(*self.scopes.here.control_inputs, *ops)):
            return [self.apply(jnp.copy, (tensor,), name="Identity") for tensor in tensors]

    def inline(
        self,
        jaxpr: jex.ClosedJaxpr,
        args: Sequence[jaxprs.Atom],
        name_of: Callable[[jex.JaxprEqn], str],
        existing: Callable[
            [jex.JaxprEqn, list[jaxprs.Atom]], Sequence[Tensor] | None
        ] = _no_existing,
        location_of: Callable[[jex.JaxprEqn], origin.SourceLocation | None] = lambda _: None,
        order: EffectOrder | None = None,
        here: Any = None,
    ) -> list[Tensor]:
        """Adds the equations of a traced function, each with the device it was traced under.

        Operations on the same variable run in the order of their equations.

        Args:
          jaxpr: the equations.
          args: a variable of this graph for each input.
          name_of: returns the name of an equation's operation.
          existing: returns tensors to use instead of the results of an equation, or None.
          location_of: returns the line of the user's program that an equation comes from, or None.
          order: records the operations on variables.
          here: this thread's context without a request, if known; its equations do not enter it.
        """
        order = order or EffectOrder()

        def emit(eqn: jex.JaxprEqn, inputs: list[jaxprs.Atom]) -> list[jaxprs.Atom]:
            if (results := existing(eqn, inputs)) is not None:
                return [tensor.var for tensor in results]
            outvars = [jex.Var(var.aval) for var in eqn.outvars]
            with request.carried(eqn.ctx, here):
                # An equation made here gets the device scope of this thread.
                own = jex.new_jaxpr_eqn(inputs, outvars, eqn.primitive, eqn.params, eqn.effects)
                op = self._insert(name_of(eqn), own, order.before(eqn), location_of(eqn))
            order.add(op)
            return outvars

        consts = [t.var for t in map(self._traced_constant, jaxpr.consts, jaxpr.jaxpr.constvars)]
        atoms = jaxprs.inline(jaxpr.jaxpr, consts, args, emit)
        return [self.literal(x) if isinstance(x, jex.Literal) else self._tensors[x] for x in atoms]

    def literal(self, atom: jex.Literal) -> Tensor:
        """Adds a literal of an equation as a constant."""
        if getattr(atom.aval, "dtype", None) == jax.dtypes.float0:  # no constant can hold it
            return self.add(jex.primitives.copy_p, [atom], [atom.aval], name="float0").outputs[0]
        return self._traced_constant(np.asarray(atom.val), atom)

    def _traced_constant(self, value: Any, like: jaxprs.Atom) -> Tensor:
        """Adds a constant of a traced function; it keeps 64 bits if it was traced with them."""
        with jaxprs.allow_64_bits(jaxprs.have_64_bits([like.aval])):
            return self.constant(value)

    def constant(
        self, value: Any, dtype: Any = None, *, name: str = "constant", on_host: bool = False
    ) -> Tensor:
        """Adds a constant; `on_host` if only host calls use it. Raises as `as_array`."""
        array = as_array(value, dtype, on_host=on_host)
        carried = np.array(to_physical(array))
        carried.flags.writeable = False
        params: dict[str, Any] = {"value": carried, "on_host": on_host}
        return self.add(constant_p, [], [abstract_of(array)], name=name, **params).outputs[0]

    def as_tensor(self, value: Any, dtype: Any = None) -> Tensor:
        """Converts a tensor, a variable or a value (as a new constant) to a tensor.

        Lists and tuples that contain tensors are packed; see `packing.packed`.

        Raises ValueError if it is a tensor of another graph.
        """
        if not isinstance(value, Symbolic) and not has_tensors(value):
            return self.constant(value, dtype)
        is_list = not isinstance(value, Symbolic)
        tensor: Tensor = packed(self, value, dtype) if is_list else value.to_tensor()
        if tensor.graph is not self:
            raise ValueError(f"{tensor!r} belongs to another graph than the one being built")
        return tensor

    def _insert(
        self,
        name: str,
        eqn: jex.JaxprEqn,
        after: Sequence[Operation] = (),
        location: origin.SourceLocation | None = None,
        declares: AbstractValue | None = None,
    ) -> Operation:
        scope = self.scopes.here
        with self._lock:
            self._check_changeable()
            # Programs may pass None for any name, as in TensorFlow.
            unique = self._op_name(scope.names, name or eqn.primitive.name)
        tensors = tuple(self._tensors[x] for x in eqn.invars if not isinstance(x, jex.Literal))
        data = {tensor.op for tensor in tensors}
        before = dict.fromkeys((*scope.control_inputs, *after))
        control = tuple(op for op in before if op not in data)
        made_at = location or scope.location or origin.user_location()
        op = Operation(self, unique, eqn, tensors, control, made_at, declares, scope.loop)
        handles = [self.handle_of(ref) for ref in state_of(eqn)]
        # Without the lock, because this may call the user's device functions.
        resolve(op, self._operations, handles[0] if eqn.primitive in ACCESSES else None)
        with self._lock:
            self._operations[op.name] = op
            for tensor in op.outputs:
                self._tensors[tensor.var] = tensor
        return op

    def _op_name(self, scope: str, name: str) -> str:
        """Returns the name of a new operation; one that ends with "/" is that of a name scope."""
        exact = name.removesuffix("/")
        if exact == name or exact in self._operations:
            return self._names.unique(scope + name if exact == name else exact)
        self._names.reserve(exact)
        return exact

    def _check_changeable(self) -> None:
        if self._finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")

    # State ------------------------------------------------------------------------------------

    def handle_of(self, ref: VariableRef | ResourceRef) -> Operation:
        """Returns the handle op of a variable or resource; its device is where the state lives."""
        with self._lock:
            self._add_handle(ref)
        return self._handles[ref]

    def declare(self, ref: VariableRef | ResourceRef, op: Operation) -> None:
        """Makes `op` the handle op of a variable or resource."""
        self._handles[ref] = op

    def declare_initializer(self, ref: VariableRef, op: Operation) -> None:
        """Makes `op` the operation that initializes a variable."""
        self._initializers[ref] = op

    def initializer_of(self, ref: VariableRef) -> Operation | None:
        """Returns the operation that initializes a variable; None if there is none."""
        return self._initializers.get(ref)

    def declare_value(self, name: str, value: Tensor) -> None:
        """Makes the name of a variable refer to `value` in look-ups of tensors by name."""
        self._values[name] = value

    def _add_handle(self, ref: VariableRef | ResourceRef) -> None:
        if ref in self._handles:
            return
        if isinstance(ref.owner, Graph):
            raise ValueError(f"{ref} belongs to another graph than the one being built")
        name = self._names.unique(ref.name)
        primitive = variable_p if isinstance(ref, VariableRef) else resource_p
        with request.empty_request_scope(), request.device_request_scope(ref.spec):
            eqn = jex.new_jaxpr_eqn([], [], primitive, {}, jex.no_effects)
        op = Operation(self, name, eqn, (), (), origin.user_location())
        self._operations[op.name] = self._handles[ref] = op

    def access(self, primitive: jex.Primitive, args: tuple[Any, ...], params: Any) -> Any:
        """Raises TypeError: a variable of a graph has no value while the graph is built."""
        raise TypeError(
            f"{params['variable']} has no value while the graph is built, so jax.numpy cannot use "
            "it; use the same name in jflow.numpy, jflow.nn, jflow.lax or jflow.random, or make "
            "the variable inside `with jflow.connect():`, where it is eager"
        )

    # Scopes -----------------------------------------------------------------------------------

    def as_default(self) -> AbstractContextManager[Graph]:
        """Returns a context manager in which this thread adds operations to this graph."""
        return graphs.pushed(self)

    def __repr__(self) -> str:
        return f"<jflow.Graph of {len(self._operations)} operations>"

    def _card(self) -> Card:
        ops = self.get_operations()
        types = Counter(op.type for op in ops).most_common()
        devices = Counter(op.device or "not requested" for op in ops).most_common()
        facts = (
            ("operations", f"{len(ops):,}"),
            ("variables", f"{len(self.get_collection(GraphKeys.GLOBAL_VARIABLES)):,}"),
            ("state", f"{len(self._handles):,} variables and resources"),
            ("finalized", "yes: no operation can be added" if self._finalized else ""),
        )
        tables = (
            CardTable("types", ("type", "operations"), _counts(types), len(types)),
            CardTable("devices", ("device", "operations"), _counts(devices), len(devices)),
        )
        return Card("Graph", "", facts, tables, note="jflow.inspect draws a placed graph.")

    def __str__(self) -> str:
        return text.graph_text(self.get_operations())

    def as_graph_def(self, *, add_shapes: bool = False) -> GraphDef:
        """Returns the definition of the graph as TensorFlow's message, which TensorBoard draws.

        Its operations are of JAX and jflow, so TensorFlow cannot run them; `export_meta_graph`
        writes a graph that jflow reads. Constants of more than 1 KiB are without their value, and
        what is inside of loops, branches and calls is not there.

        Args:
          add_shapes: whether each node has the shapes of its outputs, as attribute
            "_output_shapes".
        """
        with self._lock:
            ops, handles = self.get_operations(), dict(self._handles)
        return definition.graph_def(ops, handles, add_shapes)

    def prevent_feeding(self, tensor: Tensor) -> None:
        """Makes `Session.run` refuse a value for this tensor."""
        self._unfeedable.add(tensor)

    def is_feedable(self, tensor: Tensor) -> bool:
        """Whether a step can be fed a value for this tensor."""
        return tensor not in self._unfeedable

    def finalize(self) -> None:
        """Makes the graph read-only: adding an operation raises RuntimeError."""
        self._finalized = True

    def _unsafe_unfinalize(self) -> None:
        """Undoes `finalize`; steps registered before are not changed."""
        self._finalized = False

    @property
    def finalized(self) -> bool:
        """Whether the graph is read-only."""
        return self._finalized
