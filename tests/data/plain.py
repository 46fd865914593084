"""Runs programs as if only jflow's own dependencies were installed, without any extra."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

_BLOCK = """
import sys
sys.modules.update(dict.fromkeys({modules!r}))
"""


@cache
def _modules_of_extras() -> list[str]:
    """Packages that can be imported here and are not dependencies of jflow."""
    wanted = [*map(Requirement, tomllib.loads(PROJECT.read_text())["project"]["dependencies"])]
    found = {"jflow", "pip", "setuptools"}
    seen = set()
    while wanted:
        requirement = wanted.pop()
        found.add(canonicalize_name(requirement.name))
        for extra in ("", *requirement.extras):
            key = (requirement.name, extra)
            if key in seen:
                continue
            seen.add(key)
            for text in metadata.requires(requirement.name) or []:
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    wanted.append(inner)
    owners = metadata.packages_distributions()
    return sorted(
        module
        for module, distributions in owners.items()
        if not found & {canonicalize_name(name) for name in distributions} and module.isidentifier()
    )


def run_plain(program: str, *arguments: str) -> str:
    """The output of a program for which imports of optional packages fail."""
    modules = _modules_of_extras()
    assert {"orbax", "pyarrow", "PIL", "tqdm"} <= {*modules}
    assert not {"jflow", "grain", "jax", "numpy", "array_record"} & {*modules}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _BLOCK.format(modules=modules) + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
