"""Lookup tables, under TensorFlow's name tf.lookup."""

from typing import NoReturn as _NoReturn

from jflow.api.missing import missing as _missing
from jflow.base import tracebacks as _tracebacks
from jflow.client.ops.table_initializers import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
)
from jflow.client.ops.table_initializers import TextFileIndex as TextFileIndex
from jflow.client.ops.table_initializers import TextFileInitializer as TextFileInitializer
from jflow.client.ops.tables import StaticHashTable as StaticHashTable
from jflow.client.ops.tables import StaticVocabularyTable as StaticVocabularyTable

__all__ = [
    "KeyValueTensorInitializer",
    "StaticHashTable",
    "StaticVocabularyTable",
    "TextFileIndex",
    "TextFileInitializer",
]


def __getattr__(name: str) -> _NoReturn:
    raise _missing(__name__, name, __all__)


_tracebacks.end_here(globals())
