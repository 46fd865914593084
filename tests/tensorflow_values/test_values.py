"""Each program that TensorFlow runs, on every backend."""

from __future__ import annotations

import importlib

import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest as Backend
from tests.tensorflow_values.compare import TOPICS
from tests.tensorflow_values.program import Program

PROGRAMS = [
    program
    for topic in TOPICS
    for program in importlib.import_module(f"tests.tensorflow_values.{topic}").PROGRAMS
]


@pytest.mark.usefixtures("fresh_graph")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_gives_what_tensorflow_gives(program: Program, backend: Backend) -> None:
    program.check(tf, backend.session)
