"""`Kind`: what the registry has of a kind of resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.kernel import Kernel
from jflow.state.resources.snapshot import Snapshot, Snapshottable
from jflow.state.resources.spec import Spec

AnySpec = TypeVar("AnySpec", bound=Spec)


@dataclass(frozen=True)
class Kind(Generic[AnySpec]):
    """A kind of resource: its spec, constructor, snapshot and kernels.

    Attributes:
      name: its name in plans.
      spec: the class of its specs.
      make: creates a resource from a spec, a name for messages, and the directories it may read.
      snapshot: the class of its snapshots.
      kernels: its kernels by their names in plans, "<kind>.<kernel>".
      slow_kernels: the names of the kernels that may wait for a disk or compute for long, which an
        event loop runs in threads.
      transient_kernels: the names of the kernels that leave nothing behind which a checkpoint has.
    """

    name: str
    spec: type[AnySpec]
    make: Callable[[AnySpec, str, AllowedDirectories], Snapshottable]
    snapshot: type[Snapshot]
    kernels: Mapping[str, Kernel]
    slow_kernels: frozenset[str] = frozenset()
    transient_kernels: frozenset[str] = frozenset()
