"""What the blocks around an equation ask for, as it rides in the equation's metadata.

JAX carries metadata through its transformations, so a derivative asks for what its forward equation
asks for. A function may be traced under some blocks and used under others, and a device function is
called only when there is an operation to show it; so what rides along is the stack of blocks, and
`Graph` resolves it when it makes an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import jax.experimental.xla_metadata
import jax.extend.core as jex

from jflow.cluster import DeviceSpec

_KEY = "jflow"

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class DeviceFunction:
    """A user's function from an operation to a device; equal to itself alone, hashable or not."""

    call: Callable[[Any], Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceFunction) and other.call is self.call

    def __hash__(self) -> int:
        return id(self.call)

    def __str__(self) -> str:
        return getattr(self.call, "__qualname__", type(self.call).__qualname__)


Block = DeviceSpec | DeviceFunction | None
"""What one device block says."""


@dataclass(frozen=True)
class Request:
    """The blocks around an equation, the outermost first.

    Attributes:
      devices: what each device block says; None forgets the ones before it.
      targets: names of the operations to be colocated with; None forgets the ones before it.
    """

    devices: tuple[Block, ...] = ()
    targets: tuple[str | None, ...] = ()

    def inside(self, outer: Request) -> Request:
        """These blocks within others."""
        devices = _remembered((*outer.devices, *self.devices))
        targets = _remembered((*outer.targets, *self.targets))
        return Request(tuple(_merged(devices)), targets)

    @property
    def is_resolved(self) -> bool:
        """Whether it is for one device, or none, and nothing else."""
        return not self.targets and all(isinstance(block, DeviceSpec) for block in self.devices)

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing."""
        return not any(self.devices) and not any(self.targets)

    @property
    def alone(self) -> Request:
        """The same where no blocks are around, which leaves nothing to forget."""
        return Request(
            tuple(block for block in self.devices if block is not None),
            tuple(name for name in self.targets if name is not None),
        )

    @property
    def spec(self) -> DeviceSpec:
        """The device, where it is resolved."""
        return next((block for block in self.devices if isinstance(block, DeviceSpec)), _ANYWHERE)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operations to be colocated with."""
        return tuple(name for name in self.targets if name is not None)

    def __str__(self) -> str:
        # JAX writes metadata into the programs that it lowers.
        return " ".join(str(entry) for entry in (*self.devices, *self.targets))


_ANYWHERE = DeviceSpec()
_NO_BLOCK = nullcontext()
_NOTHING = Request()


def resolved(spec: DeviceSpec, targets: Iterable[str]) -> Request:
    """The request of an operation: one device, and the first members of its colocation groups."""
    return Request(() if spec.is_empty else (spec,), tuple(targets))


def carried(context: Any, here: Any = None) -> AbstractContextManager[Any]:
    """A block whose equations have the context of another one, `jex.JaxprEqn.ctx`.

    A request in it is one within those around the block. For `here`, the context of this thread
    without its request, nothing is entered: JAX has one object for equal contexts.
    """
    if context is here:
        return _NO_BLOCK
    request = _request_in(context)
    block: AbstractContextManager[Any] = context.manager
    return block if request is None else _nested(block, request)


@contextmanager
def _nested(block: AbstractContextManager[Any], request: Request) -> Iterator[None]:
    # What is around is known when the block begins, and before the context is entered.
    within = request.inside(_current())
    with block, _carrying({_KEY: within}):
        yield


def _carrying(metadata: Mapping[str, Any]) -> AbstractContextManager[Any]:
    block: AbstractContextManager[Any] = jax.experimental.xla_metadata.set_xla_metadata(**metadata)
    return block


@contextmanager
def request_scope(request: Request) -> Iterator[None]:
    """A block whose equations ask for `request`, within what the blocks around it ask for."""
    with _carrying({_KEY: request.inside(_current())}):
        yield


def device_request_scope(spec: DeviceSpec) -> AbstractContextManager[Any]:
    """A block whose equations ask for a device, within what the blocks around it ask for."""
    return request_scope(Request((spec,)))


def exact_request_scope(request: Request) -> AbstractContextManager[Any]:
    """A block whose equations ask for `request`, whatever the blocks around it ask for."""
    return _carrying({_KEY: None if request == _NOTHING else request})


def empty_request_scope() -> AbstractContextManager[Any]:
    """A block whose equations ask for what is around the place where they will be used."""
    return exact_request_scope(_NOTHING)


def requested(eqn: jex.JaxprEqn) -> Request:
    """The request that an equation carries."""
    return _request_in(eqn.ctx) or _NOTHING


def replaced(eqn: jex.JaxprEqn, request: Request | None) -> jex.JaxprEqn:
    """The equation asking for `request`; the rest of its context stays as it is."""
    changed: jex.JaxprEqn = eqn.replace(ctx=context_with(eqn.ctx, request))
    return changed


def context_with(context: Any, request: Request | None) -> Any:
    """The context of an equation with another request, or without one.

    All else in it decides what the equation computes (how random bits are made, the mesh) or is
    metadata of the user's own, so none of it is taken from the code around this call.
    """
    around = dict.fromkeys(present_context().xla_metadata or {})
    metadata = {
        **around,
        **(context.xla_metadata or {}),
        _KEY: None if request == _NOTHING else request,
    }
    with context.manager, _carrying(metadata):
        return present_context()


def _request_in(context: Any) -> Request | None:
    found: Request | None = (context.xla_metadata or {}).get(_KEY)
    return found


def requested_device(eqn: jex.JaxprEqn) -> DeviceSpec:
    """The device that an operation's equation requests; fields that were not set are None."""
    return requested(eqn).spec


def _current() -> Request:
    """The request of the blocks that are open: what an equation made here and now carries."""
    return _request_in(present_context()) or _NOTHING


def present_context() -> Any:
    """The context of an equation made here and now."""
    return jex.new_jaxpr_eqn([], [], jex.primitives.add_p, {}, jex.no_effects).ctx


def _remembered(blocks: tuple[T, ...]) -> tuple[T, ...]:
    """The blocks from the last None on."""
    return blocks[max((i for i, block in enumerate(blocks) if block is None), default=0) :]


def _merged(devices: Iterable[Block]) -> list[Block]:
    """One name for names that follow each other, so that equal scopes give equal requests."""
    merged: list[Block] = []
    for block in devices:
        last = merged[-1] if merged else None
        if isinstance(block, DeviceSpec) and isinstance(last, DeviceSpec):
            merged[-1] = last.merge(block)
        elif block != _ANYWHERE:
            merged.append(block)
    return merged
