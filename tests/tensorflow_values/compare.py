"""Runs the programs by TensorFlow: `python tests/tensorflow_values/compare.py`.

With `--record` it writes the values of mathematical functions, and the checkpoints of `bundles.py`,
instead of comparing.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOPICS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in {"__init__", "bundles", "compare", "program", "test_values"}
)
"""The modules that have programs."""


def main() -> None:
    """Runs each program in a graph of its own, with both kinds of variables."""
    sys.path.insert(0, str(ROOT))
    tensorflow: Any = importlib.import_module("tensorflow")
    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    if sys.argv[1:] == ["--record"]:
        _record(tf)
        importlib.import_module("tests.tensorflow_values.bundles").record(tensorflow)
        return
    n_programs = 0
    for topic in TOPICS:
        module = importlib.import_module(f"tests.tensorflow_values.{topic}")
        for program in module.PROGRAMS:
            for resource in (True,) if program.needs_resources else (True, False):
                (tf.enable_resource_variables if resource else tf.disable_resource_variables)()
                with tf.Graph().as_default():
                    program.check(tf, tf.Session)
                n_programs += 1
    sys.stdout.write(f"{n_programs} programs give the expected values\n")


def _record(tf: Any) -> None:
    topic = importlib.import_module("tests.tensorflow_values.mathematics")
    recorded = {}
    for table in topic.PROGRAMS:
        with tf.Graph().as_default():
            recorded[table.name] = table.record(tf, tf.Session)
    topic.write(recorded)


if __name__ == "__main__":
    main()
