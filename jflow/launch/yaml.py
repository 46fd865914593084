"""YAML of plain data: objects, lists, texts, numbers, truth values and None."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

# The type of what JSON can hold.
Plain = Mapping[str, "Plain"] | Sequence["Plain"] | str | int | bool | None
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def to_yaml(documents: Iterable[Plain]) -> str:
    """A stream of YAML documents in block style; each begins with "---".

    Texts are written as JSON writes them, which is YAML, too, so none is taken for a number.
    """
    return "".join(f"---\n{chr(10).join(_block(document, ''))}\n" for document in documents)


def _block(value: Plain, indent: str) -> Iterator[str]:
    """The lines of a value, of which none is on the line of its key."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{indent}{_key(key)}:", item, indent + "  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            first, *others = _block(item, indent + "  ")
            yield f"{indent}- {first.strip()}"
            yield from others
    else:
        yield indent + json.dumps(value, ensure_ascii=False)


def _entry(key: str, item: Plain, indent: str) -> Iterator[str]:
    """The lines of an entry of an object."""
    if isinstance(item, Mapping | list | tuple) and item:
        yield key
        yield from _block(item, indent)
    else:
        yield f"{key} {json.dumps(item, ensure_ascii=False)}"


def _key(key: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _NOT_TEXT
    return key if is_plain else json.dumps(key)
