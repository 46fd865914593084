"""Short texts for names and types."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jflow.base.values import TensorSpec

_KINDS = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}
_DTYPE = re.compile(r"(bfloat|float|uint|int|complex)(\d.*)")


def spec_text(spec: TensorSpec) -> str:
    """Dtype and shape in JAX's short notation, such as "f32[32,?]"; "?" is an unknown size."""
    match = _DTYPE.fullmatch(spec.dtype.name)
    kind = _KINDS[match[1]] + match[2] if match else spec.dtype.name
    sizes = spec.shape
    shown = "..." if sizes is None else ",".join("?" if n is None else str(n) for n in sizes)
    return f"{kind}[{shown}]"


def counted(count: int, noun: str) -> str:
    """A number and its noun, such as "1 send" or "2 sends"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def short_name(name: str, limit: int) -> str:
    """A name in `limit` characters: without its outer scopes, then without its middle."""
    if len(name) <= limit:
        return name
    parts = name.split("/")
    for start in range(1, len(parts)):
        candidate = "…/" + "/".join(parts[start:])
        if len(candidate) <= limit:
            return candidate
    return cut(parts[-1], limit)


def cut(text: str, limit: int) -> str:
    """The text, with "…" in place of its middle if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return text[:head] + "…" + text[len(text) - (limit - 1 - head) :]


def listed(words: Iterable[str], limit: int) -> str:
    """The words with commas between them, ending in "…" if `limit` characters are not enough."""
    line = ""
    for word in words:
        longer = f"{line}, {word}" if line else word
        if line and len(longer) > limit:
            return f"{line}, …"
        line = longer
    return line
