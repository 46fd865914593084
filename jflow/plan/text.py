"""Notation for the text form of plans: slots, variables, resources, digests and clauses.

The records of `jflow.plan.plan` use it in `__str__`, one line per instruction:

    %2, v0 = run 3f2a91c04b7d(v0, %0, const 77aa01b2c3d4) donates v0   [op 'add']

`%2` is slot 2; `v0` and `r0` are the first variable and resource of the plan's tables. The text
depends only on the plan, so equal plans have equal texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jflow.base.packing import unpack
from jflow.errors import InvalidArgumentError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHORT = 12
_LONGEST = 100


def short_digest(name: Any) -> str:
    """Abbreviates a digest to 12 digits; returns provisional names of artifacts unchanged."""
    return name[:_SHORT] if _DIGEST.fullmatch(str(name)) else str(name)


def slot_name(slot: Any) -> str:
    """Formats a slot as "%3"; None is a signal, which has no value."""
    return "signal" if slot is None else f"%{slot}"


def slot_names(slots: Iterable[Any]) -> list[str]:
    """Formats slots as ["%3", "%4"]."""
    return [slot_name(slot) for slot in slots]


def variable_names(numbers: Iterable[Any]) -> list[str]:
    """Formats variables as ["v0", "v1"]."""
    return [f"v{number}" for number in numbers]


def constant_names(digests: Iterable[Any]) -> list[str]:
    """Formats constants as ["const 77aa01b2c3d4"]."""
    return [f"const {short_digest(digest)}" for digest in digests]


def held_names(held: Iterable[tuple[Any, Any]], when: str) -> list[str]:
    """Formats slots that hold a variable as clauses such as ["%3 = v0 before"]."""
    return [f"%{slot} = v{variable} {when}" for variable, slot in held]


def instruction_line(
    results: Sequence[str], what: str, arguments: Sequence[str], clauses: Sequence[str], op: Any
) -> str:
    """Formats a `Run` or `Call` as a line."""
    left = f"{', '.join(results)} = " if results else ""
    right = "".join(f"; {clause}" for clause in clauses)
    return f"{left}{what}({', '.join(arguments)}){right}" + (f"   [op {op!r}]" if op else "")


def attributes_text(attributes: bytes) -> str:
    """Formats the attributes of a call, abridged; "" if there are none."""
    try:
        values = unpack(attributes)
    except InvalidArgumentError:
        return f"{len(attributes)} bytes that are not attributes"
    text = json.dumps(values, default=repr) if values else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Returns a title and its indented lines; nothing if there are no lines."""
    indented = [f"    {line}" for line in lines]
    return [f"  {title}:", *indented] if indented else []
