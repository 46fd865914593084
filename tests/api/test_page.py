"""docs/api.md has the public names, signatures and first lines of docstrings."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import pytest

import jflow as tf
from tools.generate_api_page import LIFTED, NESTED, PAGE, members, modules, page, signature

SECTIONS = {
    match[1]: match[2]
    for match in re.finditer(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.DOTALL)
}


def entry(module: str, name: str) -> str:
    """The line of a name."""
    (line,) = re.findall(rf"^- `{re.escape(name)}\b.*$", SECTIONS[module], re.MULTILINE)
    return str(line)


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run tools/generate_api_page.py"


def test_page_has_a_section_for_each_public_module() -> None:
    public = [name for name in dir(tf) if isinstance(getattr(tf, name), ModuleType)]
    wanted = {"jflow", *NESTED, *(f"jflow.{name}" for name in public)}
    assert set(SECTIONS) == {name for name in wanted if "._" not in name}


def test_page_has_every_public_name_of_jflow() -> None:
    public = {name for name in dir(tf) if not name.startswith("_")} - {"TYPE_CHECKING"}
    listed = set(re.findall(r"^- `(\w+)", SECTIONS["jflow"], re.MULTILINE))
    assert listed == {name for name in public if not isinstance(getattr(tf, name), ModuleType)}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_each_name_has_its_parameters_and_first_line(module: ModuleType) -> None:
    for name, value in members(module).items():
        line = entry(module.__name__, name)
        if getattr(value, "__module__", "").startswith("jflow"):
            about = (inspect.getdoc(value) or "").split("\n")[0]
            assert about, f"{module.__name__}.{name} has no docstring"
            assert line.endswith(f"`: {about}")
        if inspect.isfunction(value):
            for parameter in inspect.signature(value).parameters:
                assert re.search(rf"\b{parameter}\b", line), line


def test_signatures_read_as_in_the_source() -> None:
    class Thing:
        pass

    def fun(x: int, *rest: Any, y: Thing | None = None, z: Any = Thing(), t: Any = Thing) -> str:  # noqa: B008
        return ""

    wanted = "(x: int, *rest: Any, y: Thing | None = None, z: Any = ..., t: Any = Thing) -> str"
    assert signature(fun) == wanted
    assert signature(fun, is_method=True) == wanted.replace("x: int, ", "")


def test_methods_are_listed_with_the_class_that_adds_them() -> None:
    section = SECTIONS["jflow"]
    assert re.search(r"^- `Session\(.*\n(  - .*\n)*  - `run\(fetches: Any, ", section, re.MULTILINE)
    queue = re.search(r"^- `FIFOQueue\(.*\n((  - .*\n)*)", section, re.MULTILINE)
    assert queue is not None
    assert queue[1] == "  - and all of `QueueBase`\n"


def test_nothing_of_jax_is_listed_name_by_name() -> None:
    for name in LIFTED:
        assert SECTIONS[name].count("\n") < 6
    assert " at 0x" not in PAGE.read_text()
