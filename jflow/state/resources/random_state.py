"""Random states: what operations that draw random numbers keep between steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.kernel import Kernel, single_attempt
from jflow.state.resources.kind import Kind
from jflow.state.resources.snapshot import PlainSnapshot, Snapshottable
from jflow.state.resources.spec import Spec
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource

_Word = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class RandomStateSpec(Spec, frozen=True):
    """The spec of a random state.

    Attributes:
      seed: what its keys follow from, as words of 32 bits; None if each life of it has others.
    """

    what = "random state"

    seed: tuple[_Word, ...] | None = None


class RandomStateSnapshot(PlainSnapshot, frozen=True):
    """A saved random state.

    Attributes:
      spec: its definition.
      words: what its keys follow from.
      n_drawn: how many keys were drawn.
    """

    what = "snapshot of a random state"

    spec: RandomStateSpec
    words: tuple[_Word, ...]
    n_drawn: int

    def __post_init__(self) -> None:
        if self.n_drawn < 0:
            raise InvalidArgumentError(f"{self.what}: {self.n_drawn} keys were drawn")


class RandomState(QueuedResource[RandomStateSnapshot]):
    """The resource that draws keys, each another one: those of a seed are always the same.

    Args:
      spec: its definition.
      name: its name in messages.

    Attributes:
      words: what its keys follow from.
      n_drawn: how many keys were drawn.
    """

    spec: RandomStateSpec
    saved_as = RandomStateSnapshot

    def __init__(self, spec: RandomStateSpec, name: str) -> None:
        super().__init__(spec, name, DrawKey)
        self.n_drawn = 0
        self.words = spec.seed if spec.seed is not None else _entropy()

    def clear(self) -> None:
        self.n_drawn = 0

    def save(self) -> RandomStateSnapshot:
        return RandomStateSnapshot(self.spec, self.words, self.n_drawn)

    def load(self, snapshot: RandomStateSnapshot) -> None:
        self.words, self.n_drawn = snapshot.words, snapshot.n_drawn


class DrawKey(QueuedAttempt[RandomState]):
    """Draws the next key: u32[2], as JAX's default generator takes it."""

    __slots__ = ()

    def advance(self, state: RandomState) -> bool:
        mixed = np.random.SeedSequence(state.words, spawn_key=(state.n_drawn,))
        state.n_drawn += 1
        self.succeed((mixed.generate_state(2),))
        return True


def _entropy() -> tuple[int, ...]:
    return tuple(np.random.SeedSequence().generate_state(4).tolist())


KERNELS: Mapping[str, Kernel] = {"random_state.draw": single_attempt(DrawKey)}


def _make(spec: RandomStateSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return RandomState(spec, name)


RANDOM_STATE = Kind("random_state", RandomStateSpec, _make, RandomStateSnapshot, KERNELS)
