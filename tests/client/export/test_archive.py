"""Files of exported graphs that are damaged, foreign or hostile: each gets one clear error."""

from __future__ import annotations

import dataclasses
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import jflow as tf
from jflow.client.export.archive import Archive, read_archive, write_archive
from jflow.client.export.document import Equation, ProgramEntry


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with tf.Graph().as_default():
        w = tf.Variable(np.arange(64, dtype=np.float32), name="w")
        tf.numpy.sum(w * 2.0)
        tf.constant(["some", "text"])
        tf.export.save_graph(tmp_path / "graph")
    return tmp_path / "graph"


def load(file: Path) -> None:
    with tf.Graph().as_default():
        tf.export.load_graph(file)


def test_a_missing_file_and_a_foreign_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError, match=r"none.*found none"):
        load(tmp_path / "none")
    (tmp_path / "text").write_text("a text")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"text.*expected a graph"):
        load(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "zip", "w") as packed:
        packed.writestr("other", b"content")
    with pytest.raises(tf.errors.InvalidArgumentError, match="'document'; got one with 'other'"):
        load(tmp_path / "zip")


def test_a_compressed_entry_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("document", bytes(1 << 20))
    with pytest.raises(tf.errors.InvalidArgumentError, match="without compression"):
        load(tmp_path / "bomb")


def test_every_short_file_is_refused(file: Path) -> None:
    data = file.read_bytes()
    for size in range(0, len(data), max(len(data) // 40, 1)):
        file.write_bytes(data[:size])
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.DataLossError)):
            load(file)


def test_a_flipped_bit_of_the_content_is_data_loss(file: Path) -> None:
    data = file.read_bytes()
    with zipfile.ZipFile(file) as packed:
        entries = packed.infolist()
    for entry in entries:
        # The extra field beside the content may be longer than that in the directory.
        n_extra = int.from_bytes(
            data[entry.header_offset + 28 : entry.header_offset + 30], "little"
        )
        at = entry.header_offset + 30 + len(entry.filename) + n_extra + entry.file_size // 2
        changed = bytearray(data)
        changed[at] ^= 4
        file.write_bytes(changed)
        with pytest.raises(tf.errors.DataLossError, match=f"{entry.filename}.*damaged"):
            load(file)


def test_a_directory_that_is_damaged_anywhere_is_refused_as_any_damage(file: Path) -> None:
    data = file.read_bytes()
    directory = data.index(b"PK\x01\x02")
    for at in range(directory, len(data)):
        for value in (0x7F, 0xFF):
            file.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            with suppress(tf.errors.InvalidArgumentError, tf.errors.DataLossError):
                read_archive(str(file))


def changed(file: Path, **fields: Any) -> None:
    """Writes the file again with other fields of its document."""
    archive = read_archive(str(file))
    document = structs.replace(archive.document, **fields)
    write_archive(str(file), Archive(document, archive.arrays, archive.programs))


def test_references_to_nothing_are_refused(file: Path) -> None:
    good = read_archive(str(file)).document
    first = good.nodes[0]
    for nodes in (
        [dataclasses.replace(first, controls=(0,))],
        [dataclasses.replace(first, inputs=(7,))],
        [dataclasses.replace(first, outputs=(99,))],
        [dataclasses.replace(first, primitive="surprise")],
        [dataclasses.replace(first, primitive="", program=99)],
        [dataclasses.replace(first, params={})],
        [dataclasses.replace(first, params={**first.params, "value": {"array": 99}})],
        [dataclasses.replace(first, params={**first.params, "other": 1})],
        [dataclasses.replace(first, params={**first.params, "value": {"array": 1}})],
        [dataclasses.replace(first, device="nonsense")],
        [dataclasses.replace(first, name="a b")],
    ):
        changed(file, nodes=tuple(nodes), collections={}, objects=(), variables=())
        with pytest.raises(tf.errors.InvalidArgumentError, match="malformed exported graph"):
            load(file)


def test_programs_that_jax_refuses_are_refused(file: Path) -> None:
    good = read_archive(str(file)).document
    whole = next(node for node in good.nodes if not node.primitive)
    assert whole.program is not None
    program = good.programs[whole.program]
    (equation,) = program.equations
    for changes in (
        {"primitive": "surprise"},
        {"inputs": (5, 6)},
        {"outputs": ()},
        {"params": {"a": {"enum": ["Precision", "NONE"]}}},
        {"params": {"a": {"program": whole.program}}},
        {"params": {"a": {"surprise": 1}}},
    ):
        worse: tuple[Equation, ...] = (dataclasses.replace(equation, **changes),)  # type: ignore[arg-type]
        programs: list[ProgramEntry] = list(good.programs)
        programs[whole.program] = dataclasses.replace(program, equations=worse)
        changed(file, programs=tuple(programs))
        with pytest.raises(tf.errors.InvalidArgumentError, match="malformed exported graph"):
            load(file)


def test_a_shape_is_not_believed_before_its_bytes_are_there(file: Path) -> None:
    good = read_archive(str(file)).document
    huge = dataclasses.replace(good.arrays[0], shape=(2**30, 2**30))
    write = read_archive(str(file))
    write_archive(
        str(file),
        Archive(
            structs.replace(good, arrays=(huge, *good.arrays[1:])), write.arrays, write.programs
        ),
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"has 256 bytes, expected \d{19}"):
        load(file)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(file: Path) -> None:
    before = file.read_bytes()
    with tf.Graph().as_default() as graph:
        graph.apply(lambda x: np.float32(1.0) * x, (tf.constant(1.0),))
        archive = read_archive(str(file))
        broken = Archive(archive.document, [object()], ())  # type: ignore[list-item]
        with pytest.raises((AttributeError, TypeError, ValueError)):
            write_archive(str(file), broken)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["graph"]
