"""Writes docs/names.md: what jflow has for each public name of TensorFlow 1.

With --check it says whether the page is up to date. The names are in tools/tensorflow_names.json,
which `python tools/generate_names_page.py --record` writes where TensorFlow is installed.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "names.md"
NAMES = Path(__file__).with_name("tensorflow_names.json")
MODULES = ("", "initializers", "nn", "summary", "train")
"""The modules of `compat.v1` whose names are listed."""

_HEAD = """# Names of TensorFlow 1

What jflow has for each public name of `tensorflow.compat.v1` {version}. Written by
`tools/generate_names_page.py`; do not edit. A name that is missing says the same when it is used.
"""


def page() -> str:
    """The text of the page."""
    recorded = json.loads(NAMES.read_text())
    lines = [_HEAD.format(version=recorded["version"])]
    for module in MODULES:
        lines += _section(module, recorded["names"][module])
    return "\n".join(lines) + "\n"


def _section(module: str, names: list[str]) -> list[str]:
    ours = importlib.import_module("jflow" + (f".{module}" if module else ""))
    title = f"tf.{module}" if module else "tf"
    answers = {name: answer(ours, name) for name in names}
    same = [name for name, found in answers.items() if not found]
    other: dict[str, list[str]] = {}
    for name, found in answers.items():
        if found:
            other.setdefault(found, []).append(name)
    lines = [f"## {title}", "", f"jflow has {len(same)} of {len(names)}:", ""]
    lines += [", ".join(f"`{name}`" for name in same) + ".", ""]
    lines += ["| not there | instead |", "|---|---|"]
    rows = sorted((", ".join(f"`{name}`" for name in own), said) for said, own in other.items())
    lines += [f"| {own} | {said.replace('|', chr(92) + '|')} |" for own, said in rows]
    return [*lines, ""]


def answer(module: ModuleType, name: str) -> str:
    """What the error for a missing name says to do; "" if the module has the name."""
    try:
        getattr(module, name)
    except AttributeError as error:
        return str(error).partition("; ")[2]
    return ""


def record() -> None:
    """Writes the names of the TensorFlow that is installed."""
    tensorflow: Any = importlib.import_module("tensorflow")
    found = {}
    for module in MODULES:
        owner = tensorflow.compat.v1
        for part in filter(None, module.split(".")):
            owner = getattr(owner, part)
        found[module] = [name for name in dir(owner) if not name.startswith("_")]
    text = json.dumps({"version": tensorflow.__version__, "names": found}, indent=0)
    NAMES.write_text(text + "\n")


def main() -> None:
    """Writes, checks or records."""
    if sys.argv[1:] == ["--record"]:
        record()
    elif sys.argv[1:] == ["--check"]:
        if PAGE.read_text() != page():
            sys.exit("docs/names.md is not up to date: run tools/generate_names_page.py")
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
