"""Variables: values that a container keeps between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.graph import Graph, Operation, Symbolic, Tensor, VariableRef, origin, owners
from jflow.graph import get_default_graph as _default_graph
from jflow.graph.completion import visible
from jflow.graph.primitives import assign_p, check_p, read_p, update_p, variable_p
from jflow.ops.bodies import body_of
from jflow.ops.indices import report_indices
from jflow.ops.initial import check_initial, initial_tensor
from jflow.ops.preview import preview
from jflow.ops.sizes import checked
from jflow.values import Dtype, as_array, is_known, is_static, is_symbol, may_be, unknown_sizes
from jflow.xla import internals

GLOBAL_VARIABLES = "variables"
LOCAL_VARIABLES = "local_variables"
TRAINABLE_VARIABLES = "trainable_variables"


class Variable(Symbolic):
    """A named value that outlives a step.

    In graph code a variable is part of the graph: `initializer` sets it, a session reads it. A
    local session keeps its own copy and loses it at close. On a cluster the value lives in a
    container of the task that holds it, and every session that uses the same name, container and
    device shares it.

    Inside `jflow.connect` a variable is *live*: it is there from the start, with its initial value
    if its container does not have it yet, and it can be used as an array, in a `jflow.function` and
    outside of one.

    Args:
      initial_value: a number, array or tensor, or a function without arguments that makes one.
      trainable: whether optimizers should train it.
      name: identifies the value. In a graph it is made unique by `_1`, `_2`, …; a live variable
        without a name is shared with nobody.
      dtype: wanted dtype, or None for the initial value's.
      collections: of the graph that list it, the global variables if None; a live variable is in
        none. The trainable variables list it as well if it is trainable.
      validate_shape: whether the shape stays that of the initial value, which must be known then.
        Else an assignment may change its sizes, but not its rank; in graph code only.

    Raises:
      TypeError, ValueError: if there is no proper initial value, or its shape is not known.
      InvalidArgumentError: if it is live and exists with another shape or dtype.
    """

    def __init__(
        self,
        initial_value: Any,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        collections: Sequence[str] | None = None,
        validate_shape: bool = True,
    ) -> None:
        if initial_value is None:
            raise ValueError(f"variable {name or ''!r} needs an initial value")
        self.trainable = trainable
        owner = owners.current()
        if owner is None:
            name = name or "Variable"
            self._define(_default_graph(), initial_value, name, dtype, validate_shape)
            for key in _listing(collections, trainable):
                self.graph.add_to_collection(key, self)
        elif not validate_shape:
            raise ValueError(
                f"variable {name or ''!r} is live and cannot have validate_shape=False: functions "
                "are compiled for the sizes of live variables; make it in graph code"
            )
        else:
            self._come_alive(owner, initial_value, name, dtype)

    def _define(
        self, graph: Graph, initial_value: Any, name: str, dtype: Any, validate_shape: bool
    ) -> None:
        """Becomes part of a graph."""
        # Reading and initializing later must not wait for the control inputs of this block.
        with graph.scopes.replaced(control_inputs=()):
            value = initial_value() if callable(initial_value) else initial_value
            self.initial_value = initial_tensor(graph, value, dtype, name, validate_shape)
            shape = self.initial_value.shape
            self._op: Operation | None = graph.add(variable_p, [], [], name=name)
            self._ref = VariableRef(
                self._op.name,
                graph.scopes.container,
                shape if validate_shape else unknown_sizes(len(shape)),
                self.initial_value.dtype,
                self._op.spec,
                graph,
            )
            graph.declare(self._ref, self._op)
            with graph.scopes.replaced(names=f"{self._op.name}/"):
                tensor = self._write(assign_p, [self.initial_value], "Assign")
                self.initializer: Operation = tensor.op
                self._value: Tensor = self._read("read")
            graph.declare_value(self.name, self._value)

    def _come_alive(
        self, owner: owners.EagerOwner, initial_value: Any, name: str | None, dtype: Any
    ) -> None:
        """Attaches to the value that the owner has, or gives it the first one."""
        if internals.is_tracing():
            raise ValueError(
                f"variable {name or ''!r} is made inside of a function that JAX traces; make it "
                "outside, once, and use it there"
            )
        self._op = None
        scopes = _default_graph().scopes
        initial = initial_value
        if callable(initial):
            aval = jax.eval_shape(initial)
        else:
            aval = initial = as_array(initial, dtype)
        check_initial(aval, dtype, name or "")
        name = scopes.names + name if name else owner.unnamed()
        # A graph of its own, for the blocks around may want to see an operation.
        spec = Graph().add(variable_p, [], [], name=name).spec
        asked = VariableRef(name, scopes.container, tuple(aval.shape), aval.dtype, spec, owner)
        self._ref = owner.create(asked, initial)

    # What it is -------------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Whether it has a value outside of sessions."""
        return self._op is None

    @property
    def op(self) -> Operation:
        """The operation that stands for a graph variable."""
        if self._op is None:
            raise AttributeError(f"{self._ref} is live and belongs to no graph")
        return self._op

    @property
    def graph(self) -> Graph:
        """The graph that a graph variable belongs to."""
        return self.op.graph

    @property
    def name(self) -> str:
        """Name, as of a tensor: "x:0"."""
        return f"{self._ref.name}:0"

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension."""
        # What was read tells the sizes of a variable that may change them.
        shape: tuple[int, ...] = self._value.shape if self._is_varying else self._ref.shape
        return shape

    @property
    def _is_varying(self) -> bool:
        """Whether an assignment may change its sizes."""
        return self._op is not None and not is_static(self._ref.shape)

    @property
    def dtype(self) -> Dtype:
        """Type of the elements."""
        return self._ref.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def container(self) -> str:
        """The container that holds it, "" for the default one."""
        return self._ref.container

    @property
    def device(self) -> str:
        """The device that was asked for, "" when none was; of a live variable, the one it is on."""
        return str(self._ref.spec)

    # Reading ----------------------------------------------------------------------------------

    def value(self) -> Any:
        """The value: a tensor in graph code, else an array.

        In one step of a graph it is not said whether the value is that before or after an update.
        In a `jflow.function` it is the value at this line.
        """
        return (
            self._value
            if self._op is not None and not internals.is_tracing()
            else self._read("read")
        )

    def read_value(self) -> Any:
        """A read of its own; in graph code, after the control inputs of the block around it."""
        return self._read("read_value")

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value of a live variable as a NumPy array."""
        return np.asarray(self)

    def eval(self, session: Any = None) -> Any:
        """The value in `session` or the default session."""
        return self.to_tensor().eval(session=session)

    def to_tensor(self) -> Tensor:
        if self._op is not None:
            return self._value
        return _add(_default_graph(), read_p, [], self._ref, "read")

    # Writing ----------------------------------------------------------------------------------

    def assign(self, value: Any, name: str = "Assign") -> Any:
        """Sets the value (and so initializes it).

        Returns:
          The new value: a tensor in graph code, an array in a `jflow.function`; elsewhere the
          variable itself, for nobody may need its value.

        Raises:
          ValueError: if the shape differs.
          InvalidArgumentError: in the step, if only that tells the shape.
          TypeError: if the dtype differs.
        """
        operand = self._operand(value)
        if not may_be(self.shape, operand.shape):
            raise ValueError(
                f"cannot assign a value of shape {operand.shape} to {self._ref} "
                f"of shape {self.shape}"
            )
        if self._is_varying:
            operand = self._of_rank(operand)
        else:
            operand = self.check_shape(operand, self.shape, "cannot assign to")
        return self._write(assign_p, [operand], name)

    def _of_rank(self, operand: Any) -> Any:
        """The operand of an assignment that may change the sizes, with the rank checked."""
        # A sum of sizes could not be told from an argument of the program that assigns.
        if operand.shape is not None and all(is_known(x) or is_symbol(x) for x in operand.shape):
            return operand
        return self.check_shape(operand, unknown_sizes(self.ndim), "cannot assign to")

    def assign_add(self, delta: Any, name: str = "AssignAdd") -> Any:
        """Adds to the value in one atomic turn; returns and raises as `assign`."""
        return self.update(jnp.add, self._fitting(delta), name=name)

    def assign_sub(self, delta: Any, name: str = "AssignSub") -> Any:
        """Subtracts from the value in one atomic turn; returns and raises as `assign`."""
        return self.update(jnp.subtract, self._fitting(delta), name=name)

    def load(self, value: Any, session: Any = None) -> None:
        """Sets the value to an array, for a graph variable in `session` or the default session."""
        if self.is_live:
            self.assign(value)
        else:
            self.initializer.run({self.initial_value: value}, session)

    def _fitting(self, value: Any) -> Any:
        """An operand that broadcasts to the variable's shape; has it if its own is not known."""
        self._check_fixed()
        operand = self._operand(value)
        has_sizes = is_static(operand.shape)
        if not has_sizes and may_be(self.shape, operand.shape):
            return self.check_shape(operand, self.shape, "cannot update")
        if not has_sizes or jnp.broadcast_shapes(self.shape, operand.shape) != self.shape:
            raise ValueError(
                f"an update of shape {operand.shape} does not fit {self._ref} of shape {self.shape}"
            )
        return operand

    def check_shape(
        self, value: Any, shape: tuple[Any, ...], what: str, like: Any = None, leading: int = 0
    ) -> Any:
        """An operand of an update here, of which the step checks the shape; see `checked`."""
        if value.shape == shape:
            return value
        return checked(self._graph_of((value,)), value, shape, self._ref, what, like, leading)

    def _check_fixed(self) -> None:
        if self._is_varying:
            raise ValueError(
                f"{self._ref} may change its size and cannot be updated in place; assign the whole "
                "value: v.assign(v + delta)"
            )

    def update(self, fun: Callable[..., Any], *operands: Any, name: str = "Update") -> Any:
        """Sets the value to `fun` of the old one and the operands, in one atomic turn.

        Args:
          fun: a function of JAX arrays that gives an array of the variable's shape and dtype.
          operands: what it takes after the old value.
          name: name for the operation.

        Returns:
          As `assign`.

        Raises:
          TypeError, ValueError: if it gives something else, or does not take the operands.
        """
        self._check_fixed()
        given = [self.operand(operand) for operand in operands]
        body = body_of(fun, self._ref.aval, given)
        new = body.out_avals
        if [(x.shape, x.dtype) for x in new] != [(self.shape, self.dtype)]:
            raise ValueError(
                f"an update of {self._ref} gives {', '.join(map(str, new))}, "
                f"the variable is {self._ref.aval}"
            )
        return self._write(update_p, given, name, body=body)

    def check_indices(self, indices: Any, sizes: tuple[int, ...]) -> Any:
        """Fails the step with InvalidArgumentError if an index is out of range.

        Args:
          indices: i[..., len(sizes)], into dimensions of the variable; i[...] for a single one.
          sizes: of these dimensions.

        Returns:
          In graph code the operation, for others to wait for.
        """
        report = self._apply(report_indices, self.operand(indices), sizes)
        graph = self._graph_of((report,))
        if graph is None:
            return self._bind(check_p, (report,), **_line())
        return graph.add(check_p, [report.var], [], name="check_indices", variable=self._ref)

    def operand(self, value: Any, dtype: Any = None) -> Any:
        """The value as an operand of an update here: a tensor in graph code, else an array."""
        if isinstance(value, Variable):
            value = value.value()
        if not isinstance(value, Tensor | jax.Array):
            value = as_array(value, dtype)
        graph = self._graph_of((value,))
        return graph.as_tensor(value) if graph else value

    # Access, in a graph, in a function or at once -----------------------------------------------

    def _read(self, name: str) -> Any:
        graph = self._graph_of(())
        return _add(graph, read_p, [], self._ref, name) if graph else self._bind(read_p, ())

    def _write(
        self, primitive: jex.Primitive, inputs: Sequence[Any], name: str, **params: Any
    ) -> Any:
        graph = self._graph_of(inputs)
        if graph:
            return _add(graph, primitive, inputs, self._ref, name, **params)
        written = self._bind(primitive, inputs, **params, **_line())
        return self if written is None else written

    def _bind(self, primitive: jex.Primitive, inputs: Sequence[Any], **params: Any) -> Any:
        if self._is_varying:
            raise ValueError(
                f"{self._ref} may change its size and cannot be used in a function that is traced; "
                "pass its value as an argument, and assign what the function returns"
            )
        # No derivative goes through state, as in graph code.
        values = map(jax.lax.stop_gradient, inputs)
        return primitive.bind(*values, variable=self._ref, **params)

    def _graph_of(self, inputs: Sequence[Any]) -> Graph | None:
        """The graph to add an access to; None if JAX traces a function, or it happens at once."""
        if self._op is not None and not internals.is_tracing():
            return self._op.graph
        return next((value.graph for value in inputs if isinstance(value, Tensor)), None)

    def _operand(self, value: Any) -> Any:
        """The value as a tensor or array of this variable's dtype."""
        if isinstance(value, Variable):
            value = value.value()
        elif not isinstance(value, Tensor | jax.Array):
            array = as_array(value, self.dtype)
            graph = self._graph_of(())
            return graph.constant(array) if graph else array
        elif not isinstance(value, Tensor) and self._takes(value):
            value = value.astype(self.dtype)
        if value.dtype != self.dtype:
            raise TypeError(
                f"{self._ref} has dtype {self.dtype.name}, the value has {value.dtype.name}; "
                "convert it with .astype first (in graph code jflow.numpy.astype)"
            )
        graph = self._graph_of((value,))
        return graph.as_tensor(value) if graph else value

    def _takes(self, value: Any) -> bool:
        """Whether it is a number of Python's, traced, of a kind that the variable can hold."""
        weak = getattr(value, "weak_type", False)
        return bool(weak and jnp.promote_types(value.dtype, self.dtype) == self.dtype)

    # Arithmetic -------------------------------------------------------------------------------

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        graph = self._graph_of(args)
        if graph:
            return graph.apply(fun, args)
        return fun(*(arg.value() if isinstance(arg, Variable) else arg for arg in args))

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        if internals.asker() is not internals.Asker.JIT:
            return lambda: self._bind(read_p, ())
        raise ValueError(
            f"{self._ref} is no array to functions that JAX compiles; give them its value(), or "
            "use the same name in jflow.numpy, jflow.nn, jflow.lax or jflow.random"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if not self.is_live:
            return super().__array__()
        return np.array(self._bind(read_p, ()), dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self._ref}, which is a scalar")
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(self.value()) if self.is_live else super().__iter__()

    def __bool__(self) -> bool:
        return bool(self.value()) if self.is_live else super().__bool__()

    def __repr__(self) -> str:
        what = f"{self.name!r} shape={self.shape} dtype={self.dtype.name}"
        if not self.is_live:
            return f"<jflow.Variable {what}>"
        has_numbers = isinstance(self.dtype, np.dtype)  # and is no random key
        value = preview(owners.peek(self._ref)) if has_numbers else None
        shown = f"device={self.device}" if value is None else f"value={value}"
        return f"<jflow.Variable live {what} {shown}>"

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "check_indices", "operand", "to_tensor")


def _add(
    graph: Graph,
    primitive: jex.Primitive,
    inputs: Sequence[Tensor],
    ref: VariableRef,
    name: str,
    **params: Any,
) -> Tensor:
    atoms = [tensor.var for tensor in inputs]
    aval = ref.aval
    if not is_static(ref.shape):
        # Between two operations another may change the sizes, so each has symbols of its own.
        sizes = inputs[0].shape if primitive is assign_p else unknown_sizes(len(ref.shape))
        aval = jax.core.ShapedArray(sizes, ref.dtype)
    return graph.add(primitive, atoms, [aval], name=name, variable=ref, **params).outputs[0]


def _line() -> dict[str, str]:
    """The user's line, for a write that JAX traces: it may refuse it somewhere else."""
    return {"line": origin.describe(origin.user_place())} if internals.is_tracing() else {}


def _listing(collections: Sequence[str] | None, trainable: bool) -> dict[str, None]:
    """The collections that list a variable, each once."""
    if isinstance(collections, str):
        raise TypeError(f"collections is a list of names, got the text {collections!r}")
    keys = (GLOBAL_VARIABLES,) if collections is None else tuple(collections)
    return dict.fromkeys((*keys, TRAINABLE_VARIABLES) if trainable else keys)
