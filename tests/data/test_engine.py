"""Grain is imported only when it is needed, and a plain install brings it."""

from __future__ import annotations

import subprocess
import sys

from tests.data.plain import run_plain


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_jflow_does_not_import_grain() -> None:
    assert run("import sys, jflow; print('grain' in sys.modules, 'data' in dir(jflow))") == (
        "False True"
    )


def test_without_grain_the_error_says_how_to_get_it() -> None:
    program = """
import sys
sys.modules["grain"] = None
import jflow
try:
    jflow.data.Dataset
except ModuleNotFoundError as error:
    print(error)
"""
    assert run(program).endswith("pip install grain")


PLAIN = """
import sys, jflow as tf

path = sys.argv[1]
assert list(iter(tf.data.from_tensor_slices([3] * 3))) == [3, 3, 3]
ones = tf.data.Dataset.from_tensor_slices([1, 1, 1])
assert next(iter(ones)) == 1
rows = ones.shuffle(3).repeat(2).map(lambda x: x + 1, num_parallel_calls=2).batch(4).prefetch(1)
assert [batch.tolist() for batch in rows] == [[2, 2, 2, 2], [2, 2]]

with tf.data.TFRecordWriter(path) as writer:
    for number in range(3):
        writer.write(tf.data.encode_example({"x": number}))
features = {"x": tf.FixedLenFeature([], tf.int64)}
records = tf.data.Dataset.from_files(path, "tfrecord")
parsed = records.map(lambda record: tf.parse_single_example(record, features))
assert [int(row["x"]) for row in parsed] == [0, 1, 2]

with open(path, "w") as file:
    file.write("a,b\\n1,x\\n")
assert list(tf.data.Dataset.from_csv(path)) == [{"a": b"1", "b": b"x"}]

for make in (
    lambda: tf.data.Dataset.from_parquet(path),
    lambda: list(tf.data.Dataset.from_files(path, "parquet")),
):
    try:
        make()
    except tf.errors.UnimplementedError as error:
        print(error)
"""


def test_after_a_plain_install_pipelines_run_and_parquet_says_what_to_install(tmp_path) -> None:
    lines = run_plain(PLAIN, str(tmp_path / "file")).splitlines()
    assert len(lines) == 2
    assert all(line.endswith("pip install 'jflow[data]'") for line in lines)
