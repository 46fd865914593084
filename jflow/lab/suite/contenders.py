"""The strategies that take part in a comparison."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jflow.schedule
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.placement.explain import RULES
from jflow.placement.named import function_of
from jflow.schedule import PlaceFunction
from jflow.schedule.schedule import name_of
from jflow.schedule.strategies import STRATEGIES

SINGLE, AUTO = "single", "auto"
FUSED = "fused"
"""What takes part in measurements of models too: the step as one program, without a runtime."""


@dataclass(frozen=True)
class Contender:
    """A strategy that takes part.

    Attributes:
      name: what tables call it.
      place: the strategy.
      given: what the user gave for it, which sessions take as `placement`.
      fingerprint: digest of its source, by which a resumed run tells whether it has changed.
    """

    name: str
    place: PlaceFunction
    given: str | Callable[..., Any]
    fingerprint: str


def fused_step() -> Contender:
    """The contender `FUSED`, which is no strategy."""

    def place(*_: Any) -> Any:
        raise UnimplementedError("a fused step is one program, and has no placement")

    return Contender(FUSED, place, FUSED, "")


def contenders_of(strategies: Sequence[str | Callable[..., Any]]) -> list[Contender]:
    """The strategies by the names or functions that a user gives.

    Args:
      strategies: "all" for those that ship, or what `ConfigProto(placement=...)` takes, but for
        "rules", which has no costs to compare. A single device always takes part.

    Raises:
      InvalidArgumentError: if there is no such strategy, or two have one name.
    """
    given: list[str | Callable[..., Any]] = [SINGLE]
    for each in strategies:
        given += [*STRATEGIES] if each == "all" else [each]
    found: dict[str, Contender] = {}
    for each in dict.fromkeys(given):
        if each == RULES:
            raise InvalidArgumentError(
                "the placement rules are no strategy: they obey requests and put all else on one "
                "device; compare 'single' instead"
            )
        place = function_of(each)
        name = each if isinstance(each, str) else name_of(place)
        if name in found:
            raise InvalidArgumentError(
                f"two strategies to compare are called {name!r}; rename one of them"
            )
        found[name] = Contender(name, place, each, _fingerprint(place))
    return [*found.values()]


def _fingerprint(place: PlaceFunction) -> str:
    """Digest of the file of a strategy; of the whole room for one that ships."""
    try:
        source = Path(inspect.getfile(inspect.unwrap(place)))
    except (TypeError, OSError):
        source = None
    if place in STRATEGIES.values():
        room = Path(jflow.schedule.__file__).parent
        text = b"".join(path.read_bytes() for path in sorted(room.rglob("*.py")))
    elif source is not None and source.is_file():
        text = source.read_bytes()
    else:  # typed into a notebook, where every run has to begin anew
        text = repr(place).encode()
    return hashlib.sha256(text).hexdigest()[:12]
