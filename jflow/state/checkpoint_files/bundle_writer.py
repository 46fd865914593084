"""Writes tensors of a checkpoint as a V2 checkpoint of TensorFlow, byte for byte as it does."""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np

from jflow.base.values import NUMBERS, Array, from_physical, string
from jflow.errors import AlreadyExistsError, InvalidArgumentError
from jflow.state.checkpoint_files.bundle_index import DTYPES, VERSION
from jflow.state.checkpoint_files.checkpoint import Checkpoint, SavedTensor
from jflow.state.checkpoint_files.commit import exists
from jflow.state.checkpoint_files.layout import bundle_shard_name, manifest_name
from jflow.state.checkpoint_files.prefix import locate
from jflow.state.checkpoint_files.sorted_table import table_of, varint_of
from jflow.state.records.crc32c import checksum, extended, masked
from jflow.state.records.v1 import tensor_bundle_pb2 as pb

_NUMBERS = {name: number for number, name in DTYPES.items()}


def write_tensorflow(
    checkpoint: Checkpoint, prefix: str | os.PathLike[str], keys: Collection[str] | None = None
) -> None:
    """Writes the tensors of a checkpoint in TensorFlow's V2 format, for its `Saver.restore`.

    One of them is in memory at a time. Random keys are written as their data, partitioned tensors
    as whole ones.

    Args:
      checkpoint: the checkpoint.
      prefix: the prefix of the files to make.
      keys: which tensors; all if None.

    Raises:
      AlreadyExistsError: if there is a checkpoint, or part of one, with that prefix.
      InvalidArgumentError: if TensorFlow has no such dtype.
      NotFoundError: if there is no tensor of a key.
      ResourceExhaustedError: if the disk or the quota is full; the files are removed.
    """
    names = sorted(checkpoint.keys() if keys is None else keys, key=str.encode)
    infos = {name: checkpoint.info(name) for name in names}
    numbers = {name: _dtype_number(name, info) for name, info in infos.items()}
    header = pb.BundleHeader(num_shards=1, version=pb.Version(producer=VERSION))
    entries = {b"": header.SerializeToString()}
    with locate(prefix, makes=True) as place:
        if exists(place):
            raise AlreadyExistsError(f"{place.path!r} is a checkpoint already")
        sink = place.storage.create(
            bundle_shard_name(place.name, 0, 1), sum(info.n_bytes for info in infos.values())
        )
        try:
            offset = 0
            for name, info in infos.items():
                data, crc = _encoded(checkpoint.read(name), info)
                sink.write(memoryview(data))
                shape = pb.Shape(dim=[pb.Dim(size=n) for n in (*info.shape, *info.trailing)])
                entries[name.encode()] = pb.BundleEntry(
                    dtype=numbers[name], shape=shape, offset=offset, size=len(data), crc32c=crc
                ).SerializeToString()
                offset += len(data)
            sink.finish()
            place.storage.replace(
                manifest_name(place.name), table_of(entries), f"{place.name}.index.tmp"
            )
        except BaseException:
            sink.discard()
            raise


def _dtype_number(name: str, info: SavedTensor) -> int:
    """Returns TensorFlow's number of the dtype that a tensor is written with."""
    dtype = info.dtype if info.dtype in _NUMBERS else info.stored
    if dtype not in _NUMBERS or (info.dtype in NUMBERS and dtype != info.dtype):
        raise InvalidArgumentError(
            f"{name!r} has dtype {info.dtype}, which TensorFlow's format lacks; choose the other "
            "keys with `keys`"
        )
    return _NUMBERS[dtype]


def _encoded(value: Array, info: SavedTensor) -> tuple[bytes, int]:
    """Returns the bytes of a tensor, and their masked CRC."""
    if info.stored != string.name:
        number = np.asarray(from_physical(value, NUMBERS.get(info.dtype, value.dtype)))
        data = number.tobytes()
        return data, masked(checksum(data))
    strings = value.reshape(-1).tolist()
    lengths = b"".join(len(one).to_bytes(4, "little") for one in strings)
    crc = checksum(lengths)
    tail = masked(crc).to_bytes(4, "little") + b"".join(strings)
    return b"".join(varint_of(len(one)) for one in strings) + tail, masked(extended(crc, tail))
