"""Each program that TensorFlow runs, on every backend."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import jflow as tf
from tests.clusters import BACKENDS, Backend
from tests.tensorflow_values.compare import TOPICS
from tests.tensorflow_values.program import Program

OF_FUNCTIONS = {"mathematics", "sparse"}
"""Topics whose programs are functions alone: `product` runs them on servers, too."""


def _cases() -> Iterator[Any]:
    for topic in TOPICS:
        for program in importlib.import_module(f"tests.tensorflow_values.{topic}").PROGRAMS:
            for name in BACKENDS:
                is_repeated = topic in OF_FUNCTIONS and name != "local"
                marks = [pytest.mark.product] if is_repeated else []
                yield pytest.param(name, program, marks=marks, id=f"{name}-{program.name}")


@pytest.mark.usefixtures("fresh_graph")
@pytest.mark.parametrize(
    ("opened_backend", "program"), [*_cases()], indirect=["opened_backend"], scope="session"
)
def test_a_program_gives_what_tensorflow_gives(program: Program, backend: Backend) -> None:
    program.check(tf, backend.session)
