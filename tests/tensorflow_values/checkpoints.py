"""Lists of checkpoints, URLs of files, and what readers say; 1 stands for what is expected."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tensorflow_values.program import gives


def _ones(tf: Any, *checks: bool) -> Any:
    return tf.constant([float(check) for check in checks])


def _listed(tf: Any, directory: str, latest: str, *paths: str) -> list[str]:
    tf.train.update_checkpoint_state(directory, latest, [*paths])
    lines = (Path(directory) / "checkpoint").read_text().splitlines()
    return [line.split('"')[1] for line in lines]


@gives(relative=[1], absolute=[1])
def a_list_of_checkpoints_keeps_absolute_paths(tf: Any) -> Mapping[str, Any]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        try:
            Path("train").mkdir()
            relative = _listed(tf, "train", "train/m-2", "/abs/m-0", "train/m-2")
            absolute = _listed(tf, f"{root}/train", "m-2", "/abs/m-0", "m-2")
        finally:
            os.chdir(before)
    return {
        "relative": _ones(tf, relative == ["m-2", "/abs/m-0", "m-2"]),
        "absolute": _ones(tf, absolute == ["m-2", "/abs/m-0", "m-2"]),
    }


@gives(paths=[1, 1, 1, 1], text=[1])
def a_path_may_be_the_url_of_a_file(tf: Any) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as root, tf.Graph().as_default(), tf.Session() as session:
        v, w = tf.Variable(1.0, name="v"), tf.Variable([[1, 2, 3]], name="w")
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(max_to_keep=1)
        for step in (3, 4):
            path = saver.save(session, f"file://{root}/m", global_step=step)
        session.run([tf.assign(v, 5.0), tf.assign(w, [[0, 0, 0]])])
        saver.restore(session, path)
        names = {name for name in os.listdir(root) if not name.startswith("m-4.")}
        paths = (
            path == tf.train.latest_checkpoint(f"file://{root}") == f"file://{root}/m-4",
            tf.train.checkpoint_exists(path) and bool(tf.train.get_checkpoint_mtimes([path])),
            session.run(v) == 1.0,
            names == {"checkpoint"} and os.path.exists(f"{root}/m-4.meta"),
        )
        text = tf.train.NewCheckpointReader(path).debug_string()
    expected = b"v (DT_FLOAT) []\nw (DT_INT32) [1,3]\n"
    return {"paths": _ones(tf, *paths), "text": _ones(tf, text == expected)}


PROGRAMS = [a_list_of_checkpoints_keeps_absolute_paths, a_path_may_be_the_url_of_a_file]
