"""Lookup tables, under TensorFlow's name tf.contrib.lookup."""

from typing import NoReturn as _NoReturn

from jflow.api.missing import missing as _missing
from jflow.base import tracebacks as _tracebacks
from jflow.client.ops.index_tables import index_table_from_file as index_table_from_file
from jflow.client.ops.index_tables import index_table_from_tensor as index_table_from_tensor
from jflow.client.ops.index_tables import (
    index_to_string_table_from_file as index_to_string_table_from_file,
)
from jflow.client.ops.index_tables import (
    index_to_string_table_from_tensor as index_to_string_table_from_tensor,
)
from jflow.client.ops.table_initializers import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
)
from jflow.client.ops.table_initializers import TextFileIndex as TextFileIndex
from jflow.client.ops.table_initializers import TextFileInitializer as TextFileInitializer
from jflow.client.ops.tables import FastHashSpec as FastHashSpec
from jflow.client.ops.tables import HasherSpec as HasherSpec
from jflow.client.ops.tables import HashTable as HashTable
from jflow.client.ops.tables import IdTableWithHashBuckets as IdTableWithHashBuckets

__all__ = [
    "FastHashSpec",
    "HashTable",
    "HasherSpec",
    "IdTableWithHashBuckets",
    "KeyValueTensorInitializer",
    "TextFileIndex",
    "TextFileInitializer",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
]


def __getattr__(name: str) -> _NoReturn:
    raise _missing(__name__, name, __all__)


_tracebacks.end_here(globals())
