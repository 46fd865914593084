"""Versions of JAX: what is tested, the warning of a newer one, and what is private to JAX."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from jflow.plan.xla import internals, versions

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/jax_versions.md").read_text()


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("0.10.2", False), ("0.12.0.1", False), ("0.12.9", False), ("0.13.0", True), ("1.0", True)],
)
def test_fixes_of_a_tested_version_are_tested_and_later_versions_are_not(
    version: str, is_newer: bool
) -> None:
    assert versions.is_newer(version) is is_newer


def test_the_oldest_version_is_the_bound_and_no_newest_one_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = (one for one in project["dependencies"] if re.match(r"jax\W", one))
    assert bound == f"jax>={versions.OLDEST}"
    assert f"with {versions.OLDEST} on Python" in PAGE
    assert f"with {versions.NEWEST} on Python" in PAGE


_NEWER = """
import jax, jax._src.xla_bridge as bridge
jax.__version__ = "9.8.7"
{change}
import jflow as tf
for name in ("function", "Variable", "Session"):
    getattr(tf, name)
"""


def _run(change: str) -> str:
    program = [sys.executable, "-c", _NEWER.format(change=change)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False).stderr


def test_a_newer_jax_is_named_once_and_so_is_what_it_lacks() -> None:
    said = _run("del bridge.backends_are_initialized")
    assert said.count("UserWarning") == 1
    tested = rf"tested with JAX {versions.OLDEST} to {versions.NEWEST}; this is JAX 9\.8\.7"
    assert len(re.findall(tested, said)) == 2
    assert re.search(rf"ImportError: .*{tested}.*'backends_are_initialized'.*install 'jax<", said)


def test_deprecations_of_jax_are_errors_in_tests() -> None:
    with pytest.raises(DeprecationWarning):
        warnings.warn("jax.something is deprecated", DeprecationWarning, stacklevel=1)


def _taken(*, at_import: bool = False) -> set[str]:
    """The names of JAX that are not public, as the source has them; or those looked up at once."""
    tree = ast.parse(Path(internals.__file__).read_text())
    modules, found = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and "._src" in (node.module or ""):
            modules |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    later = (ast.FunctionDef, ast.ClassDef) if at_import else ()
    first = [one for one in tree.body if not isinstance(one, later)]
    for node in (node for one in first for node in ast.walk(one)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None:
                found.add(f"{module}.{node.attr}")
        if isinstance(node, ast.Constant) and str(node.value).startswith("jax._src."):
            found.add(str(node.value))
    return found


def test_the_page_lists_what_is_taken_and_what_replaces_it() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(jax[\w.]+)`", row[0])}
    taken = {name if ".mlir.ir." not in name else "jax._src.lib.mlir.ir" for name in _taken()}
    assert {name.removesuffix(".FlatTree") for name in listed} == taken
    assert all(len(row) == 3 and row[2].strip() for row in rows)


def test_what_is_taken_is_looked_up_when_it_is_imported() -> None:
    assert _taken(at_import=True) == _taken()


def test_no_other_file_takes_what_is_not_public() -> None:
    private = re.compile(r"^\s*(from|import) (jax\._src|jaxlib)|import_module\(.jax", re.M)
    taking = [path for path in (ROOT / "jflow").rglob("*.py") if private.search(path.read_text())]
    assert taking == [Path(internals.__file__)]
    assert not versions.is_newer(versions.NEWEST)
