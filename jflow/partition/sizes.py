"""What operations need: their inputs, and tensors that have the sizes which they do not see.

A size that is not known is a symbol (`values/dims.py`), which a program learns from the shapes of
its arguments. JAX makes equations that name a symbol and take no argument that has it, such as the
one for `x.shape[0]`; in a program of its own such an equation needs a *size source*: a tensor in
whose shape the symbol is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jflow.graph import Operation, Tensor
from jflow.values import HostArray, is_known, is_symbol, symbols_of


def needs(ops: Sequence[Operation], fed: Iterable[Tensor]) -> Mapping[Operation, Sequence[Tensor]]:
    """The tensors that each operation needs: its inputs, and one for each size it does not see.

    Args:
      ops: in the graph's order.
      fed: tensors whose values come with the step.
    """
    size_sources: dict[str, Tensor] = {}
    for tensor in fed:
        _add_size_source(size_sources, tensor)
    needed: dict[Operation, Sequence[Tensor]] = {}
    for op in ops:
        needed[op] = op.inputs
        named = _symbols((*_dims(op.outputs), op.eqn.params.get("dim", 0)))
        if named:
            seen = _symbols(_dims(op.inputs))
            # In an order that does not depend on the names, which are numbered by process.
            sources = (size_sources[x] for x in named if x not in seen and x in size_sources)
            needed[op] = tuple(dict.fromkeys((*op.inputs, *sources)))
            for tensor in op.outputs:
                _add_size_source(size_sources, tensor)
    return needed


def _add_size_source(size_sources: dict[str, Tensor], tensor: Tensor) -> None:
    """Notes the sizes that a program can learn from a tensor."""
    if not isinstance(tensor.aval, HostArray):
        for dim in _dims([tensor]):
            if is_symbol(dim):
                size_sources.setdefault(str(dim), tensor)


def _dims(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    return tuple(dim for tensor in tensors for dim in tensor.shape or ())


def _symbols(dims: Iterable[Any]) -> dict[str, None]:
    """The names in sizes that are not known; those of functions of sizes do no harm."""
    unknown = (dim for dim in dims if not is_known(dim))
    return dict.fromkeys(name for dim in unknown for name in symbols_of(dim))
