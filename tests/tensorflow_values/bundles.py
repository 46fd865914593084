"""Checkpoints that TensorFlow wrote, with what it reads of them, and how they were made.

`compare.py --record` writes the folder `bundles` anew. Trainings go on after they were saved, by
steps that jflow repeats from the checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "bundles"

DTYPES, QUANTIZED, SHARDS, TRAINED, OBJECTS = (
    FOLDER / name for name in ("dtypes", "quantized", "shards", "m-3", "o-1")
)

N_BEFORE, N_AFTER = 3, 2
"""The steps of a training before and after it is saved."""

OPTIMIZERS: Mapping[str, Callable[[Any], Any]] = {
    "momentum": lambda tf: tf.train.MomentumOptimizer(0.5, 0.9),
    "adagrad": lambda tf: tf.train.AdagradOptimizer(0.5),
    "adadelta": lambda tf: tf.train.AdadeltaOptimizer(10.0, 0.9, 1e-3),
    "rmsprop": lambda tf: tf.train.RMSPropOptimizer(0.1, momentum=0.9, epsilon=0.1, centered=True),
    "adam": lambda tf: tf.train.AdamOptimizer(0.1, 0.8, 0.99, epsilon=1e-30),
    "ftrl": lambda tf: tf.train.FtrlOptimizer(0.5),
    "dual_averaging": lambda tf: tf.train.AdagradDAOptimizer(0.5, tf.train.get_global_step()),
    "proximal": lambda tf: tf.train.ProximalAdagradOptimizer(0.5, 0.1, 0.01, 0.2),
    "scoped": lambda tf: tf.train.AdamOptimizer(0.1),
}


def training(tf: Any, names: Iterable[str] = OPTIMIZERS) -> tuple[Any, dict[str, Any]]:
    """A step of some optimizers, each on a variable, and all these variables.

    Adam has a partitioned variable too, once in a variable scope, of which TensorFlow puts the name
    before those of slots.
    """
    step = tf.train.get_or_create_global_step()
    updates, values = [], {"global_step": step}
    for name in names:
        with tf.variable_scope(name):
            w = tf.get_variable("w", initializer=np.array([1.0, 2.0], np.float32))
            values[f"{name}/w"] = w
            trained = [w]
            if name in {"adam", "scoped"}:
                two = tf.fixed_size_partitioner(2)
                ones = tf.ones_initializer()
                parts = tf.get_variable("parts", (3, 1), initializer=ones, partitioner=two)
                values[f"{name}/parts"] = tf.convert_to_tensor(parts)
                trained.extend(parts)  # whose sum with a list would be a tensor
        slope = tf.cast(step + 1, tf.float32) * 0.1
        pairs = [(slope * variable, variable) for variable in trained]
        with tf.variable_scope("scope" if name == "scoped" else tf.get_variable_scope()):
            updates.append(OPTIMIZERS[name](tf).apply_gradients(pairs))
    with tf.control_dependencies(updates):
        return step.assign_add(1), values


def tensors(tf: Any) -> dict[str, Any]:
    """A tensor of each dtype, and of unusual shapes."""
    signed = np.array([[1, -2, 3], [-4, 5, 0]])
    names = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64"]
    names += ["uint8", "uint16", "uint32", "uint64", "int4", "uint4", "complex64", "complex128"]
    names += ["float8_e5m2", "float8_e4m3fn"]
    made = {}
    for name in names:
        values = abs(signed) if name.startswith("uint") else signed
        through = np.int8 if name.endswith("int4") else np.float32
        made[name] = tf.cast(tf.constant(values.astype(through)), _dtype(tf, name))
    return made | {
        "bool": tf.constant([True, False, True]),
        "strings": tf.constant([[b"", b"a"], [b"\xff\x00", b"long" * 50]]),
        "string": tf.constant(b"scalar"),
        "no_strings": tf.zeros((0, 2), tf.string),
        "scalar": tf.constant(2.5),
        "empty": tf.zeros((0, 3)),
        "a/very/long/scope/name/w": tf.constant([1.0]),
        "a/very/long/scope/name/w/Adam": tf.constant([2.0]),
    }


def _dtype(tf: Any, name: str) -> Any:
    return getattr(tf.dtypes, name, None) or getattr(tf.dtypes.experimental, name)


def record(tensorflow: Any) -> None:
    """Writes the folder, by the module `tensorflow`."""
    tf = tensorflow.compat.v1
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with tf.Graph().as_default(), tf.Session() as session:
        quantized = {"quantized": tf.bitcast(tf.constant([1, 2], tf.int8), tf.qint8)}
        for path, made in ((DTYPES, tensors(tf)), (QUANTIZED, quantized)):
            _save_tensors(tf, session, path, made)
    _record_shards(tf)
    after = _record_training(tf)
    with tf.Graph().as_default(), tf.Session():
        step = tensorflow.Variable(7, name="counter")
        checkpoint = tensorflow.train.Checkpoint(step=step)
        step.initializer.run()
        checkpoint.save(str(FOLDER / "o"))
    (FOLDER / "checkpoint").unlink()
    read = {path.name: _read(tf, path) for path in (DTYPES, SHARDS, TRAINED, OBJECTS)}
    text = json.dumps({"read": read, "after": after}, sort_keys=True)
    (FOLDER / "expected.json").write_text(text + "\n")


def _save_tensors(tf: Any, session: Any, path: Path, made: Mapping[str, Any]) -> None:
    names = sorted(made)
    values, whole = [made[name] for name in names], [""] * len(names)
    save = tf.raw_ops.SaveV2(
        prefix=str(path), tensor_names=names, shape_and_slices=whole, tensors=values
    )
    session.run(save)


def _record_shards(tf: Any) -> None:
    """Variables on several devices, two of them partitioned, in a file for each device."""
    config = tf.ConfigProto(device_count={"CPU": 3})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        with tf.device(lambda op: "/cpu:2" if "part_1" in op.name else "/cpu:1"):
            for name, partitions in {"rows": [2, 1], "columns": [1, 3]}.items():
                tf.get_variable(
                    f"scope/{name}",
                    (4, 3),
                    initializer=_numbered,
                    partitioner=lambda partitions=partitions, **_: partitions,
                )
            tf.get_variable("scope/whole", initializer=np.arange(3, dtype=np.int32))
        session.run(tf.global_variables_initializer())
        _save(tf.train.Saver(sharded=True), session, SHARDS)


def _numbered(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
    """The numbers from 0, in a matrix of four rows and three columns, or a part of it."""
    offset = partition_info.var_offset
    region = tuple(slice(begin, begin + n) for begin, n in zip(offset, shape, strict=True))
    return np.arange(12, dtype=np.float32).reshape(4, 3)[region]


def _record_training(tf: Any) -> dict[str, Any]:
    """A training that is saved; returns its values some steps later."""
    with tf.Graph().as_default(), tf.Session() as session:
        train, values = training(tf)
        session.run(tf.global_variables_initializer())
        for _ in range(N_BEFORE):
            session.run(train)
        _save(tf.train.Saver(), session, TRAINED)
        for _ in range(N_AFTER):
            session.run(train)
        return {name: value.tolist() for name, value in session.run(values).items()}


def _save(saver: Any, session: Any, path: Path) -> None:
    saver.save(session, str(path), write_meta_graph=False, write_state=False)


def _read(tf: Any, path: Path) -> dict[str, Any]:
    """The dtype and the shape of each tensor, and its numbers as text, as TensorFlow reads it.

    There are no numbers of a tensor that has no slices for some of it.
    """
    reader = tf.train.NewCheckpointReader(str(path))
    dtypes = reader.get_variable_to_dtype_map()
    read = {}
    for name, shape in reader.get_variable_to_shape_map().items():
        dtype = dtypes[name].name
        read[name] = [dtype, shape, None]
        if dtype in {"qint8", "string"}:
            continue
        with suppress(ValueError):
            value = np.asarray(reader.get_tensor(name))
            number = value.astype(np.complex128 if dtype.startswith("complex") else np.float64)
            read[name][2] = [str(one) for one in number.ravel().tolist()]
    return read
