"""Writes docs/api.md from the docstrings, or with --check says whether it is up to date.

The page is the same on all supported versions of Python and JAX: types are written as in the
source, and what is JAX's own is not listed.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ForwardRef, get_origin

import jflow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
_MEMBERS = (property, functools.cached_property, classmethod, staticmethod)

LIFTED = ("jflow.lax", "jflow.nn", "jflow.numpy", "jflow.random")
"""Modules that offer a namespace of JAX."""

NESTED = (
    "jflow.contrib.learn",
    "jflow.contrib.lookup",
    "jflow.contrib.training",
    "jflow.distribute.cluster_resolver",
    "jflow.distribute.coordinator",
    "jflow.distribute.experimental",
    "jflow.distribute.experimental.coordinator",
    "jflow.distribute.experimental.partitioners",
)
"""Public modules inside of those that `dir(jflow)` lists."""

_HEAD = """# Public names

Written by `tools/generate_api_page.py`; do not edit. `help(jflow.Session)` shows a whole docstring.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *(line for module in modules() for line in _section(module))])


def modules() -> list[ModuleType]:
    """The public modules: `jflow`, those that `dir(jflow)` lists, and `NESTED` ones."""
    names = [name for name in dir(jflow) if isinstance(getattr(jflow, name), ModuleType)]
    public = sorted(f"jflow.{name}" for name in names if not name.startswith("_"))
    return [jflow, *map(importlib.import_module, [*public, *NESTED])]


def members(module: ModuleType) -> dict[str, Any]:
    """The public names of a module that are not modules, sorted; none of a namespace of JAX."""
    if module.__name__ in LIFTED:
        return {}
    found = {name: getattr(module, name) for name in sorted(dir(module)) if name[0] != "_"}
    return {name: value for name, value in found.items() if _is_public(value)}


def first_line(value: Any) -> str:
    """The first line of a docstring, "" if there is none."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def signature(value: Any, *, is_method: bool = False) -> str:
    """The parameters and result of a function or class, "" for what has none.

    Args:
      value: anything.
      is_method: whether the first parameter is the object or class itself, which is not shown.
    """
    if not callable(value) or (isinstance(value, type) and issubclass(value, enum.Enum)):
        return ""
    try:
        found = inspect.signature(value)
    except ValueError:  # a message of protocol buffers
        return ""
    result = inspect.Signature.empty if isinstance(value, type) else found.return_annotation
    parameters = [
        each.replace(annotation=_annotation(each.annotation), default=_default(each.default))
        for each in found.parameters.values()
    ]
    return str(inspect.Signature(parameters[is_method:], return_annotation=_annotation(result)))


class _Verbatim:
    """Shows a text in a signature without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(annotation: Any) -> Any:
    """An annotation as the source has it."""
    if annotation is inspect.Signature.empty:
        return annotation
    if get_origin(annotation) is Annotated:  # the bounds of a record's field
        return _annotation(annotation.__origin__)
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    is_text = isinstance(annotation, str)
    return _Verbatim(annotation if is_text else inspect.formatannotation(annotation))


def _default(default: Any) -> Any:
    """A default that reads the same everywhere: a plain value, the name of a class, or "..."."""
    is_plain = default is None or isinstance(default, bool | int | float | str | bytes | tuple)
    if default is inspect.Parameter.empty or is_plain:
        return default
    return _Verbatim(default.__name__ if isinstance(default, type) else "...")


def _is_public(value: Any) -> bool:
    """Whether a name is offered, and not only imported: it is of jflow, or a dtype of JAX."""
    if value is None:  # `newaxis`
        return True
    origin = getattr(value, "__module__", None) or type(value).__module__
    return not isinstance(value, ModuleType) and origin.split(".")[0] in ("jflow", "jax")


def _section(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}\n"
    yield first_line(module)
    if module.__name__ in LIFTED:
        theirs = module.__name__.replace("jflow", "jax")
        yield f"It has the public names of the installed `{theirs}`."
    yield ""
    for name, value in members(module).items():
        yield from _entry(name, value)
    yield ""


def _entry(name: str, value: Any) -> Iterator[str]:
    if not (getattr(value, "__module__", None) or "").startswith("jflow"):
        yield f"- `{name}`"
        return
    yield _line(name, signature(value), value)
    if isinstance(value, type):
        bases = [base for base in value.__mro__[1:] if base in _public_classes()]
        if bases:
            yield f"  - and all of `{bases[0].__name__}`"
        for each, member in class_members(value):
            is_method = not isinstance(member, staticmethod)
            function = member.__func__ if isinstance(member, classmethod) else member
            documented = None if isinstance(member, enum.Enum) else member
            yield "  " + _line(each, signature(function, is_method=is_method), documented)


def _line(name: str, parameters: str, value: Any) -> str:
    """The line of a name; `value` is what is documented, None if nothing is."""
    about = first_line(value) if value is not None else ""
    return f"- `{name}{parameters}`" + (f": {about}" if about else "")


def class_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods, properties and enumerated values that no public base of a class has."""
    bases = [base for base in cls.__mro__[1:] if base in _public_classes()]
    # Some classes hide what is for other parts of jflow from `dir` of their objects.
    hides = (getattr(cls.__dir__, "__module__", None) or "").startswith("jflow")
    found = dir(object.__new__(cls)) if hides else dir(cls)
    for name in sorted(name for name in found if not name.startswith("_")):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        member = vars(owner).get(name)
        is_listed = any(inspect.getattr_static(base, name, None) is member for base in bases)
        if is_listed or not owner.__module__.startswith("jflow"):
            continue
        if inspect.isroutine(member) or isinstance(member, (*_MEMBERS, cls)):
            yield name, member


@functools.cache
def _public_classes() -> frozenset[type]:
    values = (value for module in modules() for value in members(module).values())
    return frozenset(value for value in values if isinstance(value, type))


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == text else f"out of date, run {Path(__file__).name}")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
