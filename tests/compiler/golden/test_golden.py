"""The text of five programs before and after placement, partition and lowering."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax.export
import pytest

from jflow.base.values import unknown_dim
from jflow.compiler import lowering
from jflow.compiler.partition import partition
from jflow.compiler.pipeline import compile_step, prune_step
from jflow.compiler.pipeline.text import placement_text
from tests.compiler.golden.programs import INVENTORY, PROGRAMS, build

HERE = Path(__file__).parent
RENEW = "JFLOW_RENEW_GOLDEN"


def _sections(name: str) -> Iterator[tuple[str, str]]:
    graph, request = build(PROGRAMS[name])
    yield "Graph", str(graph)
    yield "After pruning", "\n".join(f"  {op.name}" for op in prune_step(graph, request))
    compiled = compile_step(graph, request, INVENTORY)
    yield "After placement", placement_text(compiled.placement)
    ops = [*compiled.placement]
    cut = partition(ops, compiled.placement, request.fed, request.fetches)
    yield "After partition", "\n\n".join(map(str, cut.plans))
    segments = (
        f"{segment}: {', '.join(op.name for op in one.ops)}"
        for segment, one in cut.segments.items()
    )
    yield "Segments, before lowering", "\n".join(segments)
    yield "After lowering", _programs(compiled.programs)


def _programs(programs: Mapping[str, lowering.Lowered]) -> str:
    return "\n\n".join(
        f"{name}: {program.text()}\n{_stablehlo(program)}" for name, program in programs.items()
    )


_ABOUT_SIZES = frozenset(
    {"broadcast_in_dim", "compare", "concatenate", "constant", "convert", "custom_call"}
    | {"dynamic_broadcast_in_dim", "get_dimension_size", "reshape"}
)
"""Operations by which JAX brings arrays together and checks unknown sizes, as versions differ."""


def _stablehlo(program: lowering.Lowered) -> str:
    """The types of arguments, and the names of the operations that compute, each once."""
    data = lowering.export(program.jaxpr, "cpu")
    exported = jax.export.deserialize(bytearray(data.tobytes()))
    shapes = ", ".join(f"{aval.dtype}{aval.shape}" for aval in exported.in_avals)
    names = dict.fromkeys(re.findall(r"stablehlo\.(\w+)", exported.mlir_module()))
    computing = [name for name in names if name not in _ABOUT_SIZES]
    return f"  as StableHLO of ({shapes}): {', '.join(computing) or 'no operation'}"


def _text(name: str) -> str:
    return "\n".join(f"=== {title} ===\n\n{body}\n" for title, body in _sections(name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_stage_of_the_pipeline_makes_what_it_made(name: str) -> None:
    path, found = HERE / f"{name}.txt", _text(name)
    if os.environ.get(RENEW):
        path.write_text(found)
    wanted = path.read_text() if path.exists() else ""
    changes = difflib.unified_diff(
        wanted.splitlines(), found.splitlines(), path.name, "made now", lineterm="", n=2
    )
    assert found == wanted, "\n".join(
        [*changes, f"If this is meant: {RENEW}=1 python -m pytest tests/golden, and read the diff."]
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_does_not_depend_on_what_was_made_before(name: str) -> None:
    before = _text(name)
    for _ in range(13):
        unknown_dim()
    assert _text(name) == before


def test_each_golden_file_belongs_to_a_program() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == PROGRAMS.keys()
