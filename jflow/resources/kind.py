"""A kind of resource: everything that the rest of jflow has to know about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from jflow.records.allowed_directories import AllowedDirectories
from jflow.resources.kernel import Kernel
from jflow.resources.snapshot import Snapshot, Snapshottable
from jflow.resources.spec import Spec

AnySpec = TypeVar("AnySpec", bound=Spec)


@dataclass(frozen=True)
class Kind(Generic[AnySpec]):
    """A kind of resource.

    Attributes:
      name: what plans call it.
      spec: what a resource of this kind is made as.
      make: makes one of its spec, its name for messages, and the directories that it may read.
      snapshot: the class of its snapshots.
      kernels: its kernels by the names that plans use, "<kind>.<kernel>".
      reads_files: whether a kernel may block on a disk.
    """

    name: str
    spec: type[AnySpec]
    make: Callable[[AnySpec, str, AllowedDirectories], Snapshottable]
    snapshot: type[Snapshot]
    kernels: Mapping[str, Kernel]
    reads_files: bool = False
