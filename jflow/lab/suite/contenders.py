"""The strategies that take part in a comparison."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jflow.compiler.placement
import jflow.compiler.schedule
from jflow.compiler.placement.explain import RULES
from jflow.compiler.placement.named import function_of
from jflow.compiler.schedule import PlaceFunction
from jflow.compiler.schedule.schedule import name_of
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.lab.measure import FUSED, SINGLE

AUTO = "auto"


@dataclass(frozen=True)
class Contender:
    """A strategy that takes part.

    Attributes:
      name: what tables call it.
      place: the strategy.
      fingerprint: digest of its source and of what scores it, by which a resumed run tells whether
        that has changed.
    """

    name: str
    place: PlaceFunction
    fingerprint: str


def fused_step() -> Contender:
    """Returns the step as one program, which takes part in measurements and is no strategy."""

    def place(*_: Any) -> Any:
        raise UnimplementedError("a fused step is one program, and has no placement")

    return Contender(FUSED, place, "")


def contenders_of(strategies: Sequence[str | Callable[..., Any]]) -> list[Contender]:
    """Returns the strategies by the names or functions that a user gives.

    Args:
      strategies: "all" for those that ship, or what `ConfigProto(placement=...)` takes, but for
        "rules", which has no costs to compare. A single device always takes part.

    Raises:
      InvalidArgumentError: if there is no such strategy, or two have one name.
    """
    placements: list[str | Callable[..., Any]] = [SINGLE]
    for each in strategies:
        placements += [*STRATEGIES] if each == "all" else [each]
    contenders: dict[str, Contender] = {}
    for each in dict.fromkeys(placements):
        if each == RULES:
            raise InvalidArgumentError(
                "the placement rules are no strategy: they obey requests and put all else on one "
                "device; compare 'single' instead"
            )
        place = function_of(each)
        name = each if isinstance(each, str) else name_of(place)
        if name in contenders:
            raise InvalidArgumentError(
                f"two strategies to compare are called {name!r}; rename one of them"
            )
        contenders[name] = Contender(name, place, _fingerprint(place))
    return [*contenders.values()]


def fingerprints_of(contenders: Sequence[Contender]) -> dict[str, str]:
    """Returns the fingerprints of all strategies that ship and of contenders, by name."""
    ship = {name: _fingerprint(place) for name, place in STRATEGIES.items()}
    return ship | {each.name: each.fingerprint for each in contenders}


def _fingerprint(place: PlaceFunction) -> str:
    """Digest of the file of a strategy, and of what gives problems their costs and scores."""
    try:
        source = Path(inspect.getfile(inspect.unwrap(place)))
    except (TypeError, OSError):
        source = None
    if place in STRATEGIES.values():
        text = b""  # it is part of the room
    elif source is not None and source.is_file():
        text = source.read_bytes()
    else:  # typed into a notebook, where every run has to begin anew
        text = repr(place).encode()
    return hashlib.sha256(_scoring_text() + text).hexdigest()[:12]


@cache
def _scoring_text() -> bytes:
    """Returns the source of costs, simulator, strategies that ship, and scores."""
    rooms = (*jflow.compiler.placement.__path__, *jflow.compiler.schedule.__path__)
    paths = [path for room in rooms for path in sorted(Path(room).rglob("*.py"))]
    paths.append(Path(__file__).with_name("scoring.py"))
    return b"".join(path.read_bytes() for path in paths)
