"""What operations need: their inputs, and tensors that have the sizes which they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jflow.base.values import HostArray, is_known, is_symbol, symbols_of
from jflow.compiler.graph import Operation, Tensor


def needs(ops: Sequence[Operation], fed: Iterable[Tensor]) -> Mapping[Operation, Sequence[Tensor]]:
    """Returns the tensors that each operation needs: its inputs, and its size sources.

    Args:
      ops: in the graph's order.
      fed: tensors whose values are inputs of the step.
    """
    size_sources: dict[str, Tensor] = {}
    for tensor in fed:
        _add_size_source(size_sources, tensor)
    needed: dict[Operation, Sequence[Tensor]] = {}
    for op in ops:
        needed[op] = op.inputs
        # An input may have a size such as `n + m`, from which a program cannot tell n and m.
        sizes = _dims(op.inputs) if size_sources else ()
        named = _symbols((*_dims(op.outputs), op.eqn.params.get("dim", 0), *sizes))
        if named:
            seen = {str(dim) for dim in sizes if is_symbol(dim)}
            # The order must not depend on the names of symbols, which are numbered by process.
            sources = (size_sources[x] for x in named if x not in seen and x in size_sources)
            needed[op] = tuple(dict.fromkeys((*op.inputs, *sources)))
            for tensor in op.outputs:
                _add_size_source(size_sources, tensor)
    return needed


def _add_size_source(size_sources: dict[str, Tensor], tensor: Tensor) -> None:
    """Records the sizes that a program can read from a tensor."""
    if not isinstance(tensor.aval, HostArray):
        for dim in _dims([tensor]):
            if is_symbol(dim):
                size_sources.setdefault(str(dim), tensor)


def _dims(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    return tuple(dim for tensor in tensors for dim in tensor.aval.shape or ())


def _symbols(dims: Iterable[Any]) -> dict[str, None]:
    """Returns the names in unknown sizes; names of functions such as max are harmless."""
    unknown = [dim for dim in dims if not is_known(dim)]
    return dict.fromkeys(name for dim in unknown for name in symbols_of(dim)) if unknown else {}
