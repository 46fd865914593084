"""Device requests: the device scopes around an equation, kept in the equation's metadata.

JAX's transformations preserve metadata, so a derivative has the request of its forward equation. A
function may be traced under some blocks and used under others, and a device function is called only
when there is an operation to show it. The metadata therefore holds the stack of blocks, which
`Graph` resolves when it makes an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.experimental.xla_metadata
import jax.extend.core as jex
from jax.sharding import AbstractMesh

from jflow.base.cluster import DeviceSpec
from jflow.plan.xla.hardware import in_mesh

_KEY = "jflow"

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class DeviceFunction:
    """A user's function that returns the device for an operation; compared by identity."""

    call: Callable[[Any], Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceFunction) and other.call is self.call

    def __hash__(self) -> int:
        return id(self.call)

    def __str__(self) -> str:
        return getattr(self.call, "__qualname__", type(self.call).__qualname__)


Block = DeviceSpec | DeviceFunction | None
"""The argument of a device block."""


@dataclass(frozen=True)
class Request:
    """The device, colocation and loop scopes around an equation, outermost first.

    Attributes:
      devices: arguments of the device blocks; None discards those before it.
      targets: names of operations to colocate with; None discards those before it.
      window: how many iterations of a loop may be under way; None for the default. It requests no
        place: two requests that differ only in it are `alone` the same.
    """

    devices: tuple[Block, ...] = ()
    targets: tuple[str | None, ...] = ()
    window: int | None = None

    def inside(self, outer: Request) -> Request:
        """Returns this request nested inside the scopes of `outer`."""
        devices = _since_last_none((*outer.devices, *self.devices))
        targets = _since_last_none((*outer.targets, *self.targets))
        window = outer.window if self.window is None else self.window
        return Request(tuple(_merge_specs(devices)), targets, window)

    @property
    def is_resolved(self) -> bool:
        """Whether the request is at most one device, given by name, and no colocation."""
        return not self.targets and all(isinstance(block, DeviceSpec) for block in self.devices)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is requested."""
        return not any(self.devices) and not any(self.targets)

    @property
    def alone(self) -> Request:
        """The same request without the None entries that discard outer scopes, and the window."""
        return Request(
            tuple(block for block in self.devices if block is not None),
            tuple(name for name in self.targets if name is not None),
        )

    @property
    def spec(self) -> DeviceSpec:
        """The requested device; the request must be resolved."""
        return next((block for block in self.devices if isinstance(block, DeviceSpec)), _ANYWHERE)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operations to colocate with."""
        return tuple(name for name in self.targets if name is not None)

    def __str__(self) -> str:
        # JAX writes metadata into lowered programs.
        return " ".join(str(entry) for entry in (*self.devices, *self.targets))


_ANYWHERE = DeviceSpec()
_NO_BLOCK = nullcontext()
_NOTHING = Request()


def resolved(spec: DeviceSpec, targets: Iterable[str], window: int | None = None) -> Request:
    """Returns an operation's request as a device and the first members of its colocation groups."""
    return Request(() if spec.is_empty else (spec,), tuple(targets), window)


def carried(context: Any, here: Any = None) -> AbstractContextManager[Any]:
    """Returns a context manager whose equations get another equation's context (`JaxprEqn.ctx`).

    The request of the context is nested inside the current one. For `here`, the context of this
    thread without its request, nothing is entered: JAX has one object for equal contexts.
    """
    if context is here:
        return _NO_BLOCK
    request = _request_in(context)
    block: AbstractContextManager[Any] = context.manager
    return block if request is None else _nested(block, request)


@contextmanager
def _nested(block: AbstractContextManager[Any], request: Request) -> Iterator[None]:
    # The current request must be read before the context is entered.
    within = request.inside(_current())
    with block, _metadata_scope({_KEY: within}):
        yield


def _metadata_scope(metadata: Mapping[str, Any]) -> AbstractContextManager[Any]:
    block: AbstractContextManager[Any] = jax.experimental.xla_metadata.set_xla_metadata(**metadata)
    return block


def default_request_scope(spec: DeviceSpec | None) -> AbstractContextManager[Any]:
    """Returns a context manager that requests a device unless there is a device request already."""
    if spec is None or not _current().is_empty:
        return nullcontext()
    return device_request_scope(spec)


@contextmanager
def request_scope(request: Request) -> Iterator[None]:
    """Context manager that nests `request` inside the current request."""
    with _metadata_scope({_KEY: request.inside(_current())}):
        yield


def device_request_scope(spec: DeviceSpec) -> AbstractContextManager[Any]:
    """Returns a context manager that nests a device request inside the current request."""
    return request_scope(Request((spec,)))


def exact_request_scope(request: Request) -> AbstractContextManager[Any]:
    """Returns a context manager whose equations have exactly `request`."""
    return _metadata_scope({_KEY: None if request == _NOTHING else request})


def empty_request_scope() -> AbstractContextManager[Any]:
    """Returns a context manager without a request, for equations that get one at their use."""
    return exact_request_scope(_NOTHING)


def requested(eqn: jex.JaxprEqn) -> Request:
    """Returns the request of an equation."""
    return _request_in(eqn.ctx) or _NOTHING


def requests_in_bodies(eqn: jex.JaxprEqn) -> list[Request]:
    """Returns the distinct non-empty requests of nested equations, without what they discard."""
    return distinct(whole_requests_in_bodies(eqn))


def distinct(requests: Iterable[Request]) -> list[Request]:
    """Returns the distinct requests that are not empty, without what they discard."""
    alone = {one.alone for one in requests}
    return sorted((one for one in alone if not one.is_empty), key=str)


def whole_requests_in_bodies(eqn: jex.JaxprEqn) -> set[Request]:
    """Returns the distinct requests of nested equations, with the entries that discard others."""
    return {
        one
        for body in jex.jaxprs_in_params(eqn.params)
        for inner in body.eqns
        for one in (requested(inner), *whole_requests_in_bodies(inner))
    }


def replaced(eqn: jex.JaxprEqn, request: Request | None) -> jex.JaxprEqn:
    """Returns the equation with another request; the rest of its context is unchanged."""
    changed: jex.JaxprEqn = eqn.replace(ctx=context_with(eqn.ctx, request))
    return changed


def on_mesh(eqn: jex.JaxprEqn, mesh: AbstractMesh) -> jex.JaxprEqn:
    """Returns the equation with another current mesh; the rest of its context is unchanged."""
    context = context_with(eqn.ctx, _request_in(eqn.ctx), mesh)
    changed: jex.JaxprEqn = eqn.replace(ctx=context)
    return changed


def context_with(context: Any, request: Request | None, mesh: AbstractMesh | None = None) -> Any:
    """Returns an equation's context with its request replaced, or removed if `request` is None.

    The rest of the context determines what the equation computes (random bits, the mesh) or is the
    user's metadata, so nothing is taken from the scopes around this call.

    Args:
      context: the context.
      request: its new request.
      mesh: its new mesh; None if that does not change.
    """
    around = dict.fromkeys(present_context().xla_metadata or {})
    metadata = {
        **around,
        **(context.xla_metadata or {}),
        _KEY: None if request == _NOTHING else request,
    }
    scope = nullcontext() if mesh is None else in_mesh(mesh)
    with context.manager, _metadata_scope(metadata), scope:
        return present_context()


def user_metadata(eqn: jex.JaxprEqn) -> dict[str, Any]:
    """Returns the metadata that the user gave an equation by `set_xla_metadata`."""
    return {key: value for key, value in (eqn.ctx.xla_metadata or {}).items() if key != _KEY}


def _request_in(context: Any) -> Request | None:
    own: Request | None = (context.xla_metadata or {}).get(_KEY)
    return own


def requested_device(eqn: jex.JaxprEqn) -> DeviceSpec:
    """Returns the device that an equation requests; fields that are not requested are None."""
    return requested(eqn).spec


def _current() -> Request:
    """Returns the current request, which a new equation on this thread gets."""
    return _request_in(present_context()) or _NOTHING


def present_context() -> Any:
    """Returns the context that JAX would give a new equation now."""
    return jex.new_jaxpr_eqn([], [], jex.primitives.add_p, {}, jex.no_effects).ctx


def _since_last_none(blocks: tuple[T, ...]) -> tuple[T, ...]:
    """Returns the items from the last None on; None discards those before it."""
    return blocks[max((i for i, block in enumerate(blocks) if block is None), default=0) :]


def _merge_specs(devices: Iterable[Block]) -> list[Block]:
    """Merges consecutive device specs into one, so that equal scopes give equal requests."""
    merged: list[Block] = []
    for block in devices:
        last = merged[-1] if merged else None
        if isinstance(block, DeviceSpec) and isinstance(last, DeviceSpec):
            merged[-1] = last.merge(block)
        elif block != _ANYWHERE:
            merged.append(block)
    return merged
